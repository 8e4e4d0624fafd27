"""Marks: the open activities of a thread; `timeline` adds up their time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

from jaxmon import catalog
from jaxmon.exposition.families import Histogram
from jaxmon.indicators.endings import End
from jaxmon.threads import get_ident
from jaxmon.tuples import NamedTuple


COMPILE = "compile"
DATA_WAIT = "data_wait"
STEP = "step"

FEW = 64

MarkT = TypeVar("MarkT", bound="Mark")


class Mark:
    """
    An open activity: a time in `end` closes it; `kept` is alive while it is open. A
    pause is over, at the latest, when the loop around it goes on.
    """

    __slots__ = ("end", "is_pause", "kept", "name", "stack")

    def __init__(self, name: str, stack: Stack, end: End) -> None:
        self.name = name
        self.is_pause = False
        self.stack = stack
        self.end = end
        self.kept: ref[Any] | None = None

    @property
    def current(self) -> str:
        """Its name at this moment; takes no lock."""
        return self.name


class LoopCounts:
    """
    What the runs of a loop have counted; `waited` is for data, `last_step` when one of
    them started or completed a step, by the clock of `now`.
    """

    def __init__(self, name: str) -> None:
        self.steps = 0
        self.waited = 0.0
        self.last_step = 0.0
        self.seconds = Histogram(catalog.STEP_SECONDS, name)


class LoopMark(Mark):
    """
    The open activity of a loop, which waits for data and works on them in turns.

    While it is innermost, its thread may only `note` the times of the `turns`, at which
    data arrived or, negative, a step was finished; `None` if the next is accounted for
    at once. They are accounted for many at once, or before anything else on this
    thread's stack changes or is read, so that all comes in its order. `body` is its
    name while it works on data; of the open step, `began`, `arrived` and `items` are
    known. `spent` are the seconds of steps that are not in the histogram yet.
    """

    def __init__(
        self, stack: Stack, end: End, body: str, counts: LoopCounts, began: float
    ) -> None:
        super().__init__(DATA_WAIT, stack, end)
        self.turns: deque[float] = deque()
        self.spent: list[float] = []
        self.note: Callable[[float], object] | None = None
        self.totals: dict[tuple[str, str], int] | None = None
        self.item = ("", "")
        self.items = 0
        self.body = body
        self.counts = counts
        self.began = self.arrived = began

    @property
    def current(self) -> str:
        """Its name at this moment; takes no lock."""
        turns = self.turns
        # There is no call in here, after which another thread could take the last.
        if not turns:
            return self.name
        return DATA_WAIT if turns[-1] < 0 else self.body


class Marked(NamedTuple):
    """What the tracked thread is marked to be doing; whether it has run *loops*."""

    thread: int
    name: str
    loops: bool


class Stack:
    """The open activities of one thread, innermost last; *life* is released with it."""

    def __init__(self, life: ThreadSentinel) -> None:
        self._life = ref(life)
        self.thread = get_ident()
        self.marks: list[Mark] = []
        # Those that have ended below open ones are dropped when there are so many.
        self.most = FEW
        self.loops = False

    @property
    def is_alive(self) -> bool:
        """Return whether its thread may still use markers."""
        return self._life() is not None


class ThreadSentinel:
    """Held by a thread's own storage alone, which Python clears when it ends."""

    __slots__ = ("__weakref__",)
