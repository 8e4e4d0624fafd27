"""
Jobs of several processes: whether anything would end a hang, and whether NCCL's RAS can
say what hangs, and Inspector what is slow.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from jaxmon.preflight.doctor import Area, Check
from jaxmon.preflight.doctor.environment import Version, dotted, installed, numbers
from jaxmon.screens.timeouts import FLAGS, OF_START, TIMEOUTS, Timeout, has


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
    flags = _flags(environ.get(FLAGS, ""))
    for timeout in TIMEOUTS.values():
        if timeout.flag in flags and not has(timeout, jaxlib):
            text = f"{FLAGS} has {timeout.flag}, which jaxlib {jaxlib} may not know"
            advice = (
                "XLA aborts at flags that it does not know: remove it, or install "
                f"jaxlib {dotted(timeout.since)} or later"
            )
            yield HANGS.warning(text, advice)
        elif (
            flags.get(timeout.flag, "").isdecimal() and not timeout.example.isdecimal()
        ):
            text = f"{FLAGS} has {timeout.flag}={flags[timeout.flag]}, without a unit"
            advice = f"XLA aborts at such a value: give one such as {timeout.example}"
            yield HANGS.warning(text, advice)
    if not are_several(environ):
        return
    wanted = TIMEOUTS.get(_platform(environ, version))
    if wanted is not None and has(wanted, jaxlib):
        yield from _limit(wanted, flags)


def are_several(environ: Mapping[str, str]) -> bool:
    """Return whether this process seems to be one of several of a job."""
    counts = (environ.get(name, "") for name in _NUMBERS)
    return any(re.fullmatch(_SEVERAL, count) for count in counts) or any(
        environ.get(name) for name in _SIGNS
    )


def _platform(environ: Mapping[str, str], version: Version) -> str:
    """Return the platform that programs will run on, ``""`` if that is unknown."""
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


def _flags(text: str) -> dict[str, str]:
    """Return the flags in *text* by name; of a file that it names, none."""
    found = re.finditer(r"(?<!\S)(--\w+)(?:=(\S*))?", text)
    return {flag[1]: flag[2] or "" for flag in found}


def processes_with(name: str, root: Path = Path("/")) -> list[int]:
    """
    Return the processes of this user that have mapped a file whose name contains
    *name*, such as ``libnccl.so``. Takes some 100 µs for each process.
    """
    found = []
    for entry in _processes_of(root / "proc")[:_MOST_PROCESSES]:
        # Of other users' it may not be read.
        with contextlib.suppress(OSError), (entry / "maps").open("rb") as maps:
            if name.encode() in maps.read(_MOST_BYTES):
                found.append(int(entry.name))
    return found


def _processes_of(proc: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        entries = [entry for entry in proc.iterdir() if entry.name.isdecimal()]
        return sorted(entries, key=lambda entry: int(entry.name))
    return []


def nccl(
    environ: Mapping[str, str],
    version: Version = installed,
    *,
    processes: Callable[[str], list[int]] = processes_with,
    listens: Callable[[str], bool] | None = None,
) -> Iterator[Check]:
    """
    Yield findings about NCCL's RAS and Inspector, which the sidecar reads; none without
    NCCL.
    """
    release = next(filter(None, map(version, _PACKAGES)), None)
    disabled = environ.get("NCCL_RAS_ENABLE") == "0"
    several = release is not None and are_several(environ)
    if release is not None and several:
        yield _installed(release, disabled=disabled)
    users = processes(_LIBRARY)
    if several or users or is_enabled(environ):
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


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether Inspector would record if NCCL loaded it."""
    return bool(_number(environ.get("NCCL_INSPECTOR_ENABLE", "")))


def _inspector(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield findings about the variables of Inspector."""
    if not is_enabled(environ):
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
