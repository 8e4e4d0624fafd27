"""Whether NCCL's RAS can say what hangs, and Inspector what is slow."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from jaxmon.preflight.doctor.finding import Check
from jaxmon.preflight.doctor.hangs import are_several
from jaxmon.preflight.doctor.versions import Version, installed


_MOST = 5000
_MOST_BYTES = 8 << 20


def processes_with(name: str, root: Path = Path("/")) -> list[int]:
    """
    Return the processes of this user that have mapped a file whose name contains
    *name*, such as ``libnccl.so``. Takes some 100 µs for each process.
    """
    found = []
    for entry in sorted(filter(str.isdecimal, _names(root / "proc")), key=int)[:_MOST]:
        # Of other users' it may not be read.
        with (
            contextlib.suppress(OSError),
            (root / "proc" / entry / "maps").open("rb") as maps,
        ):
            if name.encode() in maps.read(_MOST_BYTES):
                found.append(int(entry))
    return found


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names only
    except OSError:
        return []


AREA = "nccl"

_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
_LIBRARY = "libnccl.so"
_OLDEST, _JSON = (2, 24), (2, 28, 7)
_OFF = "0"
_ADDRESS = "localhost:28028"


def check(
    environ: Mapping[str, str],
    version: Version = installed,
    *,
    processes: Callable[[str], list[int]] = processes_with,
    listens: Callable[[str], bool] | None = None,
) -> Iterator[Check]:
    """
    Yield findings about NCCL's RAS and Inspector, which the sidecar reads; none without
    NCCL.

    Args:
        environ: variables.
        version: returns the version of a package.
        processes: returns the processes that have loaded a library.
        listens: returns whether a process listens at an address.
    """
    known = next(filter(None, map(version, _PACKAGES)), None)
    disabled = environ.get("NCCL_RAS_ENABLE") == _OFF
    several = known is not None and are_several(environ)
    if known is not None and several:
        yield _installed(known, disabled=disabled)
    users = processes(_LIBRARY)
    if several or users or is_enabled(environ):
        yield from _inspector(AREA, environ)
    if not users:
        return
    address = environ.get("NCCL_RAS_ADDR") or _ADDRESS
    shown = ", ".join(map(str, users[:3])) + (", …" if len(users) > 3 else "")  # noqa: PLR2004
    if (listens or _listens)(address):
        yield Check(AREA, "ok", f"NCCL's RAS listens at {address} (pid {shown})")
        return
    text = f"pid {shown} use NCCL, but its RAS does not listen at {address}"
    advice = (
        "NCCL before 2.24 has none, NCCL_RAS_ENABLE=0 disables it, and the program may "
        "have another NCCL_RAS_ADDR; it starts with the first communicator "
        "(docs/nccl.md)"
    )
    yield Check(AREA, "note", text, advice)


def _installed(version: str, *, disabled: bool) -> Check:
    match = re.match(r"\d{1,4}(\.\d{1,4}){0,2}", version)
    numbers = tuple(map(int, match[0].split("."))) if match else ()
    if numbers < _OLDEST:
        text = f"NCCL {version} has no RAS, which says what hangs"
        return Check(AREA, "note", text, "it is in NCCL 2.24 and later")
    if disabled:
        text = "NCCL_RAS_ENABLE=0: which process NCCL waits for remains unknown"
        return Check(AREA, "warning", text, "unset it; RAS is idle until it is read")
    if numbers < _JSON:
        text = f"NCCL {version}: RAS names ranks only if few are behind"
        return Check(AREA, "ok", text)
    return Check(AREA, "ok", f"NCCL {version} with RAS")


def _listens(address: str) -> bool:
    import socket  # noqa: PLC0415 - seldom needed

    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return True
    except (OSError, ValueError, OverflowError):
        return False


_PLUGIN = "NCCL_PROFILER_PLUGIN"
_INTERVAL = "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"
_DIRECTORY = "NCCL_INSPECTOR_DUMP_DIR"
_SECOND = 1_000_000
_RECOMMENDED = f"set {_INTERVAL}=1000000 (docs/nccl.md)"


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether Inspector would record if NCCL loaded it."""
    return bool(_number(environ.get("NCCL_INSPECTOR_ENABLE", "")))


def _inspector(area: str, environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield findings for *area* about the variables of Inspector."""
    if not is_enabled(environ):
        text = "NCCL Inspector is off: time and bandwidth of collectives are unknown"
        yield Check(area, "ok", f"{text} (docs/nccl.md)")
        return
    found = [*_loaded(area, environ), *_written(area, environ)]
    yield from found
    if not found:
        directory = environ[_DIRECTORY]
        text = f"NCCL Inspector writes to {directory}, which the sidecar reads"
        yield Check(area, "ok", f"{text} with --nccl-inspector")


def _loaded(area: str, environ: Mapping[str, str]) -> Iterator[Check]:
    plugin = environ.get(_PLUGIN, "")
    if not plugin:
        text = (
            f"NCCL_INSPECTOR_ENABLE is set, and {_PLUGIN} is not: NCCL may not load it"
        )
        advice = "give it the path of libnccl-profiler-inspector.so (docs/nccl.md)"
        yield Check(area, "warning", text, advice)
    elif "/" in plugin and not Path(plugin).is_file():
        text = (
            f"{_PLUGIN}={plugin}: there is no such file, and NCCL continues without it"
        )
        yield Check(area, "warning", text, "compile Inspector, or correct the path")


def _written(area: str, environ: Mapping[str, str]) -> Iterator[Check]:
    interval = _number(environ.get(_INTERVAL, "-1"))
    if _number(environ.get("NCCL_INSPECTOR_DUMP_THREAD_ENABLE", "1")) == 0:
        text = "NCCL_INSPECTOR_DUMP_THREAD_ENABLE=0: Inspector writes nothing"
        yield Check(area, "warning", text, "unset it")
    elif interval < 0:
        text = f"without {_INTERVAL}, NCCL Inspector writes nothing"
        yield Check(area, "warning", text, _RECOMMENDED)
    elif interval < _SECOND:
        text = (
            "a thread of NCCL Inspector may keep a core busy, as parts of a second are "
            "nanoseconds to it before NCCL 2.29.7"
            if interval
            else "NCCL Inspector writes nothing before NCCL 2.30.3, and keeps a core "
            "busy since"
        )
        text = f"{_INTERVAL}={interval}: {text}"
        yield Check(area, "warning", text, _RECOMMENDED)
    if _number(environ.get("NCCL_INSPECTOR_PROM_DUMP", "")):
        text = "NCCL_INSPECTOR_PROM_DUMP=1: the sidecar does not read that format"
        yield Check(area, "note", text, "unset it; node_exporter reads it")
    if not environ.get(_DIRECTORY):
        text = "NCCL Inspector writes below the directory where the program starts"
        advice = f"set {_DIRECTORY} for the program and for the sidecar"
        yield Check(area, "note", text, advice)


def _number(text: str) -> int:
    """Return the number at the beginning of *text* as C does, 0 if there is none."""
    match = re.match(r"\s*([+-]?[0-9]{1,18})", text)
    return int(match[1]) if match else 0
