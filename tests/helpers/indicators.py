"""What marks of a program record, across queues and pools, without agent and JAX."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import thread as pools
from contextlib import contextmanager
from typing import Any

from jaxmon.agent import handoffs as notes
from jaxmon.agent.guard import Guard
from jaxmon.agent.handoffs import Handoffs
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.catalog import REQUESTS
from jaxmon.indicators import recorder
from jaxmon.indicators.endings import End, now
from jaxmon.indicators.figures import Indicators
from jaxmon.indicators.work import compile_begins


@contextmanager
def recording(limit: int = 200) -> Iterator[Recorded]:
    """Record what is marked while the block runs."""
    recorded = Recorded(limit)
    recorder.attach(recorded)
    try:
        yield recorded
    finally:
        recorder.detach(recorded)


class Recorded(Indicators):
    """Indicators that can be inspected, and that keep reported errors."""

    def __init__(self, limit: int) -> None:
        self.errors: list[BaseException] = []
        self.failures = Guard()
        super().__init__(limit, self.failures, on_error=self.errors.append)

    def requests(self) -> dict[tuple[str, ...], float]:
        """
        Return route, outcome and start of the requests that ended, with their number.
        """
        return {
            tuple(part.split('"')[1] for part in one.split(",")): value
            for one, value in self.samples().items()
            if one.startswith(REQUESTS.name) and value
        }

    def samples(self) -> dict[str, float]:
        return {one: value for f in self.collect() for one, value in f.samples}

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the series called *name* whose labels include *labels*."""
        return sum(self.values(name, **labels))

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the series called *name* whose labels include *labels*."""
        wanted = [f'{label}="{text}"' for label, text in labels.items()]
        return [
            value
            for one, value in self.samples().items()
            if one.partition("{")[0] == name and all(want in one for want in wanted)
        ]


QUEUES: list[type[Any]] = [queue.Queue, queue.LifoQueue, queue.PriorityQueue]
ASYNC: list[type[Any]] = [asyncio.Queue, asyncio.LifoQueue, asyncio.PriorityQueue]
PLACES = [
    *((kind, name) for kind in (*QUEUES, *ASYNC) for name in ("_put", "_get")),
    (asyncio.Queue, "get"),
    (pools._WorkItem, "__init__"),
    (pools._WorkItem, "run"),
    (Future, "set_exception"),
]


class Jax:
    """What hooks need of JAX, which is nothing here."""

    __version__ = "0"


@contextmanager
def following() -> Iterator[Any]:
    """Record, and follow requests."""
    with recording() as found:
        hooks = Hooks(Jax(), Guard())
        part = Handoffs(found.routes, found.failures, lambda *_: None)
        part.attach(hooks)
        try:
            yield found
        finally:
            part.stop()
            hooks.detach()
    assert not notes.count()


def compile_(recorded: Any) -> None:
    """Compile for a moment, as a miss does."""
    end: End = []
    compile_begins(recorded.compiles, now(), end)
    end.append(now())


def in_thread(call: Callable[[], object]) -> None:
    """Call *call* on a thread of its own, until it ends."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


class Item:
    """An item that can be ordered and weakly referenced."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def __lt__(self, other: Item) -> bool:
        return self.number < other.number
