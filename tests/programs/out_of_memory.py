"""
A program that runs out of memory for real, in the way that its first argument names.

The address space is limited, as ``ulimit -v`` does. It runs with jaxmon and without,
on every supported JAX, and prints as JSON what it saw of its own failure.
"""

import json
import resource
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.helpers import inside


MIB = 1 << 20

cases: dict[str, Callable[[], object]] = {}


def case(function):
    cases[function.__name__] = function
    return function


def limit(extra: int) -> None:
    """Allow *extra* bytes of address space beyond what is in use."""
    most = in_use() + extra
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def in_use() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def unlimit() -> None:
    resource.setrlimit(
        resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )


big = np.random.default_rng(0).random(16 * MIB, np.float32)


def closes_over(x):
    return (x + big).sum()


def allocates_on_host(x):
    return x + np.empty(1 << 34, np.float32)[0]


def makes_much(x):
    return jnp.zeros(256 * MIB) + x


def makes_some(x):
    return jnp.zeros(16 * MIB) + x


def needs_much(x):
    # A loop is not a cheap program to XLA, so it runs on a thread of its own.
    start = jnp.arange(32 * MIB) * x
    return jax.lax.fori_loop(0, times(x), lambda _, a: a[::-1] * x + a, start).sum()


def times(x):
    return jnp.int32(x) + 2


@case
def trace():
    jitted = jax.jit(allocates_on_host)
    limit(200 * MIB)
    return jitted(1.0)


@case
def compile():  # noqa: A001 - the name of the stage
    jitted = jax.jit(closes_over)
    limit(100 * MIB)
    return jitted(1.0)


@case
def dispatch():
    jitted = jax.jit(makes_much)
    limit(300 * MIB)
    return jitted(1.0)


@case
def cached():
    jitted = jax.jit(makes_some)
    kept = [jitted(0.0).block_until_ready()]
    limit(400 * MIB)
    while True:
        kept.append(jitted(float(len(kept))))


def _waiting(wait):
    jitted = jax.jit(needs_much)
    before = in_use()
    wait(jitted(0.0))
    # What the program needed is given back a moment after its result is there.
    until(lambda: in_use() < before + 100 * MIB)
    limit(50 * MIB)
    return wait(jitted(1.0))


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.01)


cases.update(
    wait_block=lambda: _waiting(lambda x: x.block_until_ready()),
    wait_tree=lambda: _waiting(lambda x: jax.block_until_ready({"a": [x]})),
    wait_asarray=lambda: _waiting(np.asarray),
    wait_float=lambda: _waiting(float),
)


@case
def put():
    host = np.ones(64 * MIB, np.float32)
    host.flags.writeable = False
    jax.device_put(0.0).block_until_ready()
    limit(100 * MIB)
    # Copied, because the two types differ in size.
    return jnp.array(host, copy=True)


def links(error: BaseException) -> list[Any]:
    """Return type, text, notes and frames of *error* and what it comes from."""
    found = []
    link: BaseException | None = error
    while link is not None:
        frames = [
            (Path(frame.filename).name, frame.name, frame.lineno)
            for frame in traceback.extract_tb(link.__traceback__)
        ]
        name = f"{type(link).__module__}.{type(link).__qualname__}"
        notes = getattr(link, "__notes__", [])
        found.append([name, str(link), list(map(repr, link.args)), notes, frames])
        link = link.__cause__ or link.__context__
    return found


class Notes:
    """What the program saw of its own failure, and what jaxmon says about it."""

    def __init__(self, report_dir: str | None) -> None:
        self.links: list[Any] = []
        self.agent: Any = None
        if report_dir is not None:
            import jaxmon

            self.agent = jaxmon.instrument(port=0, socket=False, report_dir=report_dir)
            # Its threads need address space as well, and all run after a scrape.
            self.page()

    def page(self) -> str:
        with urllib.request.urlopen(self.agent.url, timeout=60) as page:
            return str(page.read(), "utf-8")

    def take(self, error: BaseException | None) -> None:
        unlimit()
        if error is not None:
            self.links = links(error)

    def print(self) -> None:
        noted = {"jax": jax.__version__, "links": self.links}
        if self.agent is not None:
            noted["page"] = self.page()
            noted["snapshot"] = inside.overview(self.agent)["errors"]
            noted["events"] = [
                [event.kind, event.function, event.message, dict(event.details)]
                for event in inside.events(self.agent).since()
                if event.kind in ("error", "oom")
            ]
        print(json.dumps(noted))


def main(how: str, ending: str, report_dir: str | None) -> None:
    # Its threads need address space, too.
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    if ending == "thread":
        # What stands here before jaxmon is called after it.
        threading.excepthook = lambda args: notes.take(args.exc_value)
    notes = Notes(report_dir)
    if ending == "thread":
        thread = threading.Thread(target=cases[how])
        thread.start()
        thread.join()
    else:
        try:
            cases[how]()
        except BaseException as error:
            notes.take(error)
            if ending == "uncaught":
                sys.excepthook(type(error), error, error.__traceback__)
    notes.print()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
