"""Versions, environment variables, and what ends or explains the hang of a job."""

from __future__ import annotations

import contextlib
import difflib
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from importlib import metadata
from pathlib import Path

from jaxmon.errors import SettingsError
from jaxmon.preflight.doctor import Area, Check
from jaxmon.screens.timeouts import FLAGS, OF_START, TIMEOUTS, Timeout, has, numbers
from jaxmon.settings import PREFIX, Settings, load


VERSIONS, VARIABLES = Area("versions"), Area("environment")

OLDEST_JAX, NEWEST_JAX = (0, 4, 35), (0, 12)
PYTHONS = ((3, 11), (3, 14))

# JAX ignores a plugin of another version, and then runs on the CPU.
_PLUGINS = [
    f"jax-{kind}-{part}"
    for kind in ("cuda12", "cuda13", "rocm60", "rocm7")
    for part in ("plugin", "pjrt")
]

# Read elsewhere than in the settings of the agent.
_OTHERS = ("JAXMON_BOOTSTRAP", "JAXMON_EXPORTER_")

_COSTLY = {
    "JAX_DISABLE_JIT": "nothing is compiled; every operation runs individually",
    "JAX_DEBUG_NANS": "each output is checked on the host, which blocks on the device",
    "JAX_DEBUG_INFS": "each output is checked on the host, which blocks on the device",
    "JAX_CHECK_TRACER_LEAKS": "tracing is slower and not cached",
    "JAX_ENABLE_CHECKS": "internal checks slow down every trace",
}
_OFF = ("", "0", "false", "off", "no")

Version = Callable[[str], str | None]


def installed(package: str) -> str | None:
    """Return the version of a package, `None` if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(version: Version = installed) -> Iterator[Check]:
    """Yield findings about Python, JAX, jaxlib and plugins."""
    yield _python()
    jax, jaxlib = version("jax"), version("jaxlib")
    if jax is None:
        advice = "install the build for your hardware, or pip install 'jaxmon[jax]'"
        yield VERSIONS.failure("JAX is not installed", advice)
        return
    yield _jax(jax)
    if jaxlib is None:
        advice = f"pip install jaxlib=={jax}"
        yield VERSIONS.failure("jaxlib is not installed", advice)
        return
    yield _jaxlib(jax, jaxlib)
    for package in _PLUGINS:
        plugin = version(package)
        if plugin is not None:
            yield _plugin(package, plugin, jaxlib)
    if libtpu := version("libtpu"):
        yield VERSIONS.ok(f"libtpu {libtpu}")


def _python() -> Check:
    running, text = sys.version_info[:2], ".".join(map(str, sys.version_info[:3]))
    oldest, newest = PYTHONS
    if oldest <= running <= newest:
        return VERSIONS.ok(f"Python {text}")
    tested = f"{_dotted(oldest)} to {_dotted(newest)}"
    advice = f"jaxmon is tested with {tested}; check the hooks below"
    return VERSIONS.warning(f"Python {text}", advice)


def _jax(jax: str) -> Check:
    found = numbers(jax)
    if found < OLDEST_JAX:
        advice = f"jaxmon needs JAX {_dotted(OLDEST_JAX)} or later"
        return VERSIONS.failure(f"JAX {jax} is too old", advice)
    if found[:2] > NEWEST_JAX:
        advice = (
            f"jaxmon was tested up to JAX {_dotted(NEWEST_JAX)}; check below that "
            "all hooks attach"
        )
        return VERSIONS.note(
            f"JAX {jax} is newer than any release jaxmon was tested with", advice
        )
    return VERSIONS.ok(f"JAX {jax}")


def _jaxlib(jax: str, jaxlib: str) -> Check:
    if numbers(jaxlib) == numbers(jax):
        return VERSIONS.ok(f"jaxlib {jaxlib}")
    advice = f"pip install jax=={jax} jaxlib=={jax}"
    if numbers(jaxlib) > numbers(jax):
        return VERSIONS.failure(f"jaxlib {jaxlib} is newer than JAX {jax}", advice)
    # It works down to a limit that each release has.
    return VERSIONS.warning(f"jaxlib {jaxlib} is older than JAX {jax}", advice)


def _plugin(package: str, plugin: str, jaxlib: str) -> Check:
    if numbers(plugin) == numbers(jaxlib):
        return VERSIONS.ok(f"{package} {plugin}")
    return VERSIONS.failure(
        f"{package} {plugin} is incompatible with jaxlib {jaxlib}: JAX may ignore "
        "it and run on the CPU",
        f"pip install {package}=={jaxlib}",
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def variables(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield findings about *environ*."""
    yield _settings(environ)
    yield from _unknown(environ)
    for name, what in _COSTLY.items():
        if environ.get(name, "").lower() not in _OFF:
            advice = f"unset {name} in production"
            yield VARIABLES.warning(f"{name}={environ[name]}: {what}", advice)
    if environ.get("JAX_ENABLE_X64", "").lower() not in _OFF:
        text = "JAX_ENABLE_X64: arrays can become float64, which costs memory and time"
        yield VARIABLES.note(text)


def _settings(environ: Mapping[str, str]) -> Check:
    try:
        settings = load({}, environ)
    except SettingsError as error:
        advice = "fix or unset it; otherwise jaxmon.instrument() raises this error"
        return VARIABLES.failure(str(error), advice)
    if not settings.enabled:
        advice = "unset it to enable jaxmon"
        return VARIABLES.warning("JAXMON_ENABLED disables jaxmon", advice)
    chosen = [f.name for f in fields(Settings) if environ.get(PREFIX + f.name.upper())]
    given = ", ".join(PREFIX + name.upper() for name in chosen)
    return VARIABLES.ok(f"jaxmon's settings: {given or 'the defaults'}")


def _unknown(environ: Mapping[str, str]) -> Iterator[Check]:
    settings = [PREFIX + field.name.upper() for field in fields(Settings)]
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in settings or name.startswith(_OTHERS):
            continue
        close = difflib.get_close_matches(name, settings, 1)
        advice = f"did you mean {close[0]}?" if close else "see docs/settings.md"
        yield VARIABLES.warning(f"{name} is not a jaxmon setting", advice)


HANGS, NCCL = Area("hangs"), Area("nccl")

# Their number, by those who start them.
_NUMBERS = (
    *("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    "JAX_NUM_PROCESSES",
)
# Set only for jobs of several.
_SIGNS = ("JAX_COORDINATOR_ADDRESS", "JOBSET_NAME", "MEGASCALE_NUM_SLICES")
_GPU_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
_SEVERAL = r"0*([2-9]|[1-9][0-9]{1,5})"


_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
_LIBRARY = "libnccl.so"
_OLDEST, _JSON = (2, 24), (2, 28, 7)
_ADDRESS = "localhost:28028"
_PLUGIN = "NCCL_PROFILER_PLUGIN"
_INTERVAL = "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"
_DIRECTORY = "NCCL_INSPECTOR_DUMP_DIR"
_SECOND = 1_000_000
_RECOMMENDED = f"set {_INTERVAL}=1000000 (docs/nccl.md)"
_MOST_PROCESSES = 5000
_MOST_BYTES = 8 << 20


def hangs(environ: Mapping[str, str], version: Version = installed) -> Iterator[Check]:
    """Yield findings about time limits, of jobs of several processes only."""
    jaxlib = version("jaxlib")
    if jaxlib is None:
        return  # that is reported elsewhere
    # Of a file that they name, none.
    given = re.finditer(r"(?<!\S)(--\w+)(?:=(\S*))?", environ.get(FLAGS, ""))
    flags = {flag[1]: flag[2] or "" for flag in given}
    for timeout in TIMEOUTS.values():
        if timeout.flag in flags and not has(timeout, jaxlib):
            text = f"{FLAGS} has {timeout.flag}, which jaxlib {jaxlib} may not know"
            advice = (
                "XLA aborts at flags that it does not know: remove it, or install "
                f"jaxlib {_dotted(timeout.since)} or later"
            )
            yield HANGS.warning(text, advice)
        elif (
            flags.get(timeout.flag, "").isdecimal() and not timeout.example.isdecimal()
        ):
            text = f"{FLAGS} has {timeout.flag}={flags[timeout.flag]}, without a unit"
            advice = f"XLA aborts at such a value: give one such as {timeout.example}"
            yield HANGS.warning(text, advice)
    if not _are_several(environ):
        return
    wanted = TIMEOUTS.get(_platform(environ, version))
    if wanted is not None and has(wanted, jaxlib):
        yield from _limit(wanted, flags)


def _are_several(environ: Mapping[str, str]) -> bool:
    counts = (environ.get(name, "") for name in _NUMBERS)
    return any(re.fullmatch(_SEVERAL, count) for count in counts) or any(
        environ.get(name) for name in _SIGNS
    )


def _platform(environ: Mapping[str, str], version: Version) -> str:
    wanted = environ.get("JAX_PLATFORMS", "").partition(",")[0]
    if wanted:
        return "gpu" if wanted in {"cuda", "gpu"} else wanted
    if version("libtpu"):
        return "tpu"
    return "gpu" if any(map(version, _GPU_PLUGINS)) else ""


def _limit(timeout: Timeout, flags: Mapping[str, str]) -> Iterator[Check]:
    if value := flags.get(timeout.flag, timeout.default):
        yield HANGS.ok(f"{timeout.flag}={value} {timeout.what}")
        return
    text = "one process that is stuck stops all others of a job, with no time limit"
    if OF_START in flags:
        text += f": {OF_START} applies only while NCCL is set up"
    advice = f"{timeout.assignment} {timeout.what}; {timeout.price}"
    yield HANGS.note(text, advice)


def processes_with(name: str, root: Path = Path("/")) -> list[int]:
    """Return this user's processes that map a file like *name*; 100 µs for each."""
    found = []
    entries = sorted((root / "proc").glob("[0-9]*"), key=lambda of: int(of.name))
    for entry in entries[:_MOST_PROCESSES]:
        # Of other users' it may not be read.
        with contextlib.suppress(OSError), (entry / "maps").open("rb") as maps:
            if name.encode() in maps.read(_MOST_BYTES):
                found.append(int(entry.name))
    return found


def nccl(
    environ: Mapping[str, str],
    version: Version = installed,
    *,
    processes: Callable[[str], list[int]] = processes_with,
    listens: Callable[[str], bool] | None = None,
) -> Iterator[Check]:
    """Yield findings on NCCL's RAS and Inspector, which the sidecar reads."""
    release = next(filter(None, map(version, _PACKAGES)), None)
    disabled = environ.get("NCCL_RAS_ENABLE") == "0"
    several = release is not None and _are_several(environ)
    if release is not None and several:
        yield _installed(release, disabled=disabled)
    users = processes(_LIBRARY)
    if several or users or _is_enabled(environ):
        yield from _inspector(environ)
    if not users:
        return
    address = environ.get("NCCL_RAS_ADDR") or _ADDRESS
    shown = ", ".join(map(str, users[:3])) + (", …" if len(users) > 3 else "")  # noqa: PLR2004
    if (listens or _listens)(address):
        yield NCCL.ok(f"NCCL's RAS listens at {address} (pid {shown})")
        return
    text = f"pid {shown} use NCCL, but its RAS does not listen at {address}"
    advice = (
        "NCCL before 2.24 has none, NCCL_RAS_ENABLE=0 disables it, and the program may "
        "have another NCCL_RAS_ADDR; it starts with the first communicator "
        "(docs/nccl.md)"
    )
    yield NCCL.note(text, advice)


def _installed(version: str, *, disabled: bool) -> Check:
    release = numbers(version)
    if release < _OLDEST:
        text = f"NCCL {version} has no RAS, which says what hangs"
        return NCCL.note(text, "it is in NCCL 2.24 and later")
    if disabled:
        text = "NCCL_RAS_ENABLE=0: which process NCCL waits for remains unknown"
        return NCCL.warning(text, "unset it; RAS is idle until it is read")
    if release < _JSON:
        return NCCL.ok(f"NCCL {version}: RAS names ranks only if few are behind")
    return NCCL.ok(f"NCCL {version} with RAS")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def _is_enabled(environ: Mapping[str, str]) -> bool:
    return bool(_number(environ.get("NCCL_INSPECTOR_ENABLE", "")))


def _inspector(environ: Mapping[str, str]) -> Iterator[Check]:
    if not _is_enabled(environ):
        text = "NCCL Inspector is off: time and bandwidth of collectives are unknown"
        yield NCCL.ok(f"{text} (docs/nccl.md)")
        return
    found = [*_loaded(environ), *_written(environ)]
    yield from found
    if not found:
        directory = environ[_DIRECTORY]
        text = f"NCCL Inspector writes to {directory}, which the sidecar reads"
        yield NCCL.ok(f"{text} with --nccl-inspector")


def _loaded(environ: Mapping[str, str]) -> Iterator[Check]:
    plugin = environ.get(_PLUGIN, "")
    if not plugin:
        text = (
            f"NCCL_INSPECTOR_ENABLE is set, and {_PLUGIN} is not: NCCL may not load it"
        )
        advice = "give it the path of libnccl-profiler-inspector.so (docs/nccl.md)"
        yield NCCL.warning(text, advice)
    elif "/" in plugin and not Path(plugin).is_file():
        text = (
            f"{_PLUGIN}={plugin}: there is no such file, and NCCL continues without it"
        )
        yield NCCL.warning(text, "compile Inspector, or correct the path")


def _written(environ: Mapping[str, str]) -> Iterator[Check]:
    interval = _number(environ.get(_INTERVAL, "-1"))
    if _number(environ.get("NCCL_INSPECTOR_DUMP_THREAD_ENABLE", "1")) == 0:
        text = "NCCL_INSPECTOR_DUMP_THREAD_ENABLE=0: Inspector writes nothing"
        yield NCCL.warning(text, "unset it")
    elif interval < 0:
        text = f"without {_INTERVAL}, NCCL Inspector writes nothing"
        yield NCCL.warning(text, _RECOMMENDED)
    elif interval < _SECOND:
        text = (
            "a thread of NCCL Inspector may keep a core busy, as parts of a second are "
            "nanoseconds to it before NCCL 2.29.7"
            if interval
            else "NCCL Inspector writes nothing before NCCL 2.30.3, and keeps a core "
            "busy since"
        )
        text = f"{_INTERVAL}={interval}: {text}"
        yield NCCL.warning(text, _RECOMMENDED)
    if _number(environ.get("NCCL_INSPECTOR_PROM_DUMP", "")):
        text = "NCCL_INSPECTOR_PROM_DUMP=1: the sidecar does not read that format"
        yield NCCL.note(text, "unset it; node_exporter reads it")
    if not environ.get(_DIRECTORY):
        text = "NCCL Inspector writes below the directory where the program starts"
        advice = f"set {_DIRECTORY} for the program and for the sidecar"
        yield NCCL.note(text, advice)


def _number(text: str) -> int:
    """Return the number at the beginning of *text* as C does, 0 if there is none."""
    match = re.match(r"\s*([+-]?[0-9]{1,18})", text)
    return int(match[1]) if match else 0
