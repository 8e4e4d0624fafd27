"""Whether NCCL's RAS can say what hangs, and Inspector what is slow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from jaxmon.doctor import nccl_inspector
from jaxmon.doctor.finding import Finding
from jaxmon.doctor.hangs import are_several
from jaxmon.doctor.versions import Version, installed
from jaxmon.resources.libraries import processes_with


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
) -> Iterator[Finding]:
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
    if several or users or nccl_inspector.is_enabled(environ):
        yield from nccl_inspector.check(AREA, environ)
    if not users:
        return
    address = environ.get("NCCL_RAS_ADDR") or _ADDRESS
    shown = ", ".join(map(str, users[:3])) + (", …" if len(users) > 3 else "")  # noqa: PLR2004
    if (listens or _listens)(address):
        yield Finding(AREA, "ok", f"NCCL's RAS listens at {address} (pid {shown})")
        return
    text = f"pid {shown} use NCCL, but its RAS does not listen at {address}"
    advice = (
        "NCCL before 2.24 has none, NCCL_RAS_ENABLE=0 disables it, and the program may "
        "have another NCCL_RAS_ADDR; it starts with the first communicator "
        "(docs/nccl.md)"
    )
    yield Finding(AREA, "note", text, advice)


def _installed(version: str, *, disabled: bool) -> Finding:
    match = re.match(r"\d{1,4}(\.\d{1,4}){0,2}", version)
    numbers = tuple(map(int, match[0].split("."))) if match else ()
    if numbers < _OLDEST:
        text = f"NCCL {version} has no RAS, which says what hangs"
        return Finding(AREA, "note", text, "it is in NCCL 2.24 and later")
    if disabled:
        text = "NCCL_RAS_ENABLE=0: which process NCCL waits for remains unknown"
        return Finding(AREA, "warning", text, "unset it; RAS is idle until it is read")
    if numbers < _JSON:
        text = f"NCCL {version}: RAS names ranks only if few are behind"
        return Finding(AREA, "ok", text)
    return Finding(AREA, "ok", f"NCCL {version} with RAS")


def _listens(address: str) -> bool:
    import socket  # noqa: PLC0415 - seldom needed

    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return True
    except (OSError, ValueError, OverflowError):
        return False
