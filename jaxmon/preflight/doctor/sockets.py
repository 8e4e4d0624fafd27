"""Run directory, agent sockets and ports."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from jaxmon.host import rundir
from jaxmon.host.files.bounded import kind
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.host.rundir import RunDirError
from jaxmon.preflight.doctor import Area, Check


AREA = Area("sockets")

_TIMEOUT = 3.0
_MAX_BYTES = 64 << 10


def check(directory: Path, port: int | None) -> Iterator[Check]:
    """Yield findings about the run *directory* and the agents' *port*."""
    usable = _directory(directory)
    yield usable
    if usable.status == "ok":
        yield from _agents(directory)
    if port:
        yield _port(port)


def _directory(directory: Path) -> Check:
    existed = os.path.lexists(directory)  # also where its parent cannot be entered
    # Under a name that no agent has, and no longer than theirs: a slot that is taken,
    # for however short, is one that the next agent does not get.
    trial = directory / f"d-{os.getpid()}"
    try:
        rundir.prepare(directory)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.bind(str(trial))
    except RunDirError as error:
        return AREA.failure(str(error), "agents will serve TCP only")
    except OSError as error:
        text = f"cannot create sockets in run directory {directory}: {error.strerror}"
        return AREA.failure(text, "set JAXMON_RUN_DIR to a local directory")
    finally:
        with contextlib.suppress(OSError):
            trial.unlink()
        if not existed:
            with contextlib.suppress(OSError):
                directory.rmdir()
    return AREA.ok(f"run directory {directory}")


def _agents(directory: Path) -> Iterator[Check]:
    sockets = rundir.sockets(directory)
    for worker, path in list(sockets.items()):
        if (found := _no_socket(path)) is not None:
            del sockets[worker]
            yield found
    answers = fetch_all(sockets, "/-/healthy", timeout=_TIMEOUT, max_bytes=_MAX_BYTES)
    up, dead = [], []
    for worker, answer in answers.items():
        if not isinstance(answer, FetchError):
            up.append(worker)
        elif answer.reason == fetch.GONE:
            dead.append(worker)
        elif answer.reason in (fetch.BROKEN, fetch.TOO_LARGE):
            text = f"{sockets[worker]} is not an agent: {answer}"
            advice = (
                "find out what owns it, for example with lsof, or use another "
                "JAXMON_RUN_DIR"
            )
            yield AREA.warning(text, advice)
        elif answer.reason != fetch.LEFT:
            text = f"agent {worker} does not respond: {answer}"
            advice = "its process may be stopped, or holding the GIL in native code"
            yield AREA.warning(text, advice)
    if up:
        yield AREA.ok(f"agents running here: {', '.join(up)}")
    if dead:
        text = f"sockets of killed processes: {', '.join(dead)}"
        yield AREA.note(f"{text}; the next agents replace them")


def _no_socket(path: Path) -> Check | None:
    """
    Say what lies at *path* in the place of an agent's socket, `None` for a socket.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:  # removed meanwhile, or not readable
        return None
    if stat.S_ISSOCK(mode):
        return None
    what = "a file" if stat.S_ISREG(mode) else kind(mode)
    advice = (
        f"no agent can use that slot: move {path} away"
        if stat.S_ISDIR(mode)
        else f"the next agent replaces it; if it is yours, move {path} away"
    )
    return AREA.warning(f"{path} is {what}, not a socket", advice)


def _port(port: int) -> Check:
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                text = f"port {port} is unusable: {os.strerror(error.errno or 0)}"
                return AREA.warning(text, "set a different JAXMON_PORT")
            text = f"port {port} is in use: the next agent will use the next free one"
            advice = "scrape the sidecar, which discovers agents through their sockets"
            return AREA.note(text, advice)
    return AREA.ok(f"port {port} is free")
