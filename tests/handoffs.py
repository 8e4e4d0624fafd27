"""Following requests across queues and thread pools, without JAX."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import thread as pools
from contextlib import contextmanager
from typing import Any

from jaxmon.agent import handoffs as notes
from jaxmon.agent.guard import Guard
from jaxmon.agent.handoffs import Handoffs
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.indicators.endings import End, now
from jaxmon.indicators.work import compile_begins
from tests.indicators import recording


QUEUES: list[type[Any]] = [queue.Queue, queue.LifoQueue, queue.PriorityQueue]
ASYNC: list[type[Any]] = [asyncio.Queue, asyncio.LifoQueue, asyncio.PriorityQueue]
PLACES = [
    *((kind, name) for kind in (*QUEUES, *ASYNC) for name in ("_put", "_get")),
    (asyncio.Queue, "get"),
    (pools._WorkItem, "__init__"),
    (pools._WorkItem, "run"),
]


class Jax:
    """What hooks need of JAX, which is nothing here."""

    __version__ = "0"


@contextmanager
def following() -> Iterator[Any]:
    """Record, and follow requests."""
    with recording() as found:
        hooks = Hooks(Jax(), Guard())
        part = Handoffs(found.routes, found.failures)
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
