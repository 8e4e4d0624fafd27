"""
A program that closes descriptors that it did not open, and opens its own in their
place. JAX keeps none on CPU.

Prints for each way of closing what it found.
"""

import json
import os
import select
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import jax

import jaxmon
from jaxmon.agent import serving as agent_serving
from jaxmon.facts import endings


DATA = b"the program's own bytes " * 400
Opened = dict[int, Path | None]


def closerange(ours: set[int], directory: Path) -> Opened:
    """As programs do that become daemons."""
    del ours
    os.closerange(3, 4096)
    return dict(opened(directory))


def dup2(ours: set[int], directory: Path) -> Opened:
    """As programs do that pass descriptors on by their numbers."""
    found: Opened = {}
    for number, (kept, path) in zip(sorted(ours), opened(directory), strict=False):
        os.dup2(kept, number)
        os.close(kept)
        found[number] = path
    return found


def closed_in_a_child(ours: set[int], directory: Path) -> Opened:
    """As supervisors do; the parent's are its own."""
    child = os.fork()
    if child == 0:
        mine = closerange(ours, directory)
        jaxmon.uninstrument()
        os._exit(bool(damaged(mine)))
    _, status = os.waitpid(child, 0)
    return {-1: None} if status else {}


def closed_before_a_fork(ours: set[int], directory: Path) -> Opened:
    """A child that is forked afterwards has the program's in these places."""
    mine = closerange(ours, directory)
    child = os.fork()
    if child == 0:
        os._exit(bool(damaged(mine)))
    _, status = os.waitpid(child, 0)
    return {**mine, -1: None} if status else mine


WAYS: tuple[Callable[[set[int], Path], Opened], ...] = (
    closerange,
    dup2,
    closed_in_a_child,
    closed_before_a_fork,
)


def opened(directory: Path) -> Iterator[tuple[int, Path | None]]:
    """Open files, sockets, pipes and epoll instances."""
    for _ in range(20):
        number, name = tempfile.mkstemp(dir=directory)
        Path(name).write_bytes(DATA)
        yield number, Path(name)
        # Not of TCP: it might get a port at which others expect an agent.
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{name}.sock")
        listener.listen()
        yield listener.detach(), None
        for kinds in (socket.socketpair(), map(socket.socket, [socket.AF_INET])):
            for one in kinds:
                yield one.detach(), None
        for number in os.pipe():
            yield number, None
        epoll = select.epoll()
        yield os.dup(epoll.fileno()), None
        yield os.eventfd(0), None


def damaged(mine: Opened) -> list[str]:
    """Return what of the program is not as it was opened."""
    found = []
    for number, path in mine.items():
        try:
            status = os.fstat(number)
        except OSError as error:
            found.append(f"{number}: {error}")
            continue
        if path is None:
            poll = select.poll()
            poll.register(number, select.POLLIN)
            if (ready := poll.poll(0)) and ready[0][1] & select.POLLIN:
                found.append(f"{number}: has data")
            if "tfd:" in Path(f"/proc/self/fdinfo/{number}").read_text():
                found.append(f"{number}: watches something")
        elif status.st_ino != path.stat().st_ino or path.read_bytes() != DATA:
            found.append(f"{number}: changed")
    return found


def use(step: Callable[[float], Any], url: str | None) -> list[float]:
    """Do what observed programs do."""
    results = [float(step(one)) for one in jaxmon.steps([1.0, 2.0], loop="other")]
    results.append(float(jax.jit(lambda x: x * len(results))(1.0)))
    # Nothing listens there any more, or something else does.
    with suppress(OSError, HTTPException):
        urlopen(url or "", timeout=5).close()
    return results


def go_through(
    way: Callable[[set[int], Path], Opened], *, wait: bool
) -> dict[str, Any]:
    """Close in one *way*; *wait* until jaxmon has found out."""
    before = numbers()
    agent = jaxmon.instrument(port=0)
    urlopen(agent.url or "", timeout=60).close()
    step = jax.jit(lambda x: x + 1)
    step(1.0)
    ours = numbers() - before
    run_dir = Path(agent.socket or "").parent
    with tempfile.TemporaryDirectory() as directory:
        mine = way(ours, Path(directory))
        results = use(step, agent.url)
        while wait and not (endings.slots(run_dir)["0"].held and answers(agent.socket)):
            time.sleep(0.02)
        alive = endings.slots(run_dir)["0"]
        jaxmon.uninstrument()
        bad = damaged(mine)
        for number in mine:
            with suppress(OSError):  # it is damaged
                os.close(number)
    left = endings.slots(run_dir)["0"].latest
    return {
        "results": results,
        "damaged": bad,
        "held": alive.held,
        "record": [left.starts, left.crashes, left.state],
        "left": sorted(one.name for one in run_dir.iterdir()),
    }


def numbers() -> set[int]:
    """Return what is open."""
    # The listing's own is no longer there.
    return {int(one.name) for one in Path("/proc/self/fd").iterdir() if one.exists()}


def answers(path: str | None) -> bool:
    """Return whether something listens at *path*."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path or "")
        except OSError:
            return False
    return True


def main() -> None:
    warnings.simplefilter("ignore", RuntimeWarning)  # a fork beside threads of JAX
    agent_serving.EVERY = 0.2  # type: ignore[attr-defined]  # where it is read
    for wait in (False, True):
        for way in WAYS:
            found = go_through(way, wait=wait)
            print(json.dumps({"way": way.__name__, "wait": wait, **found}))
            print("NEXT", file=sys.stderr)
