"""Loop metrics: steps, items, data wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, TypeAlias
from weakref import ref

from jaxmon import catalog
from jaxmon.exposition.exemplars import SpanIds
from jaxmon.exposition.families import Family, Histogram, histograms, series
from jaxmon.facts import marked
from jaxmon.indicators.endings import End, noting, now, on_finalize
from jaxmon.indicators.labels import Labels
from jaxmon.threads import RLock


Items: TypeAlias = tuple[str, str]
"""A loop, and what of it is counted."""

# Between two readings; of more, the latest count.
_MOST_NUMBERED = 64


class Loop:
    """
    The metrics of loops with one name; several may run at once.

    Attributes:
        last_step: when one of them started or completed a step, by the clock of `now`.
        numbered: where steps were given a number: the count of `steps` before, and
            how many of the whole run were done until then.
    """

    __slots__ = (
        "_lock",
        "_running",
        "last_step",
        "name",
        "numbered",
        "seconds",
        "steps",
        "waited",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._running: list[tuple[End, ref[Any]]] = []
        self.steps = 0
        self.waited = 0.0
        self.last_step = 0.0
        self.numbered: deque[tuple[int, int]] = deque(maxlen=_MOST_NUMBERED)
        self.seconds = Histogram(catalog.STEP_SECONDS, name)
        self._lock = RLock()

    def begin(self, end: End, run: object) -> None:
        """
        Count a loop as running until *end*, which is recorded when *run* is no longer
        referenced. Its start counts as a step, so that a first step that never ends is
        noticed.
        """
        with self._lock:
            self._running = [one for one in self._running if not one[0]]
            self._running.append((end, on_finalize(run, noting(end))))
            self.last_step = now()

    @property
    def running(self) -> int:
        """Number of running loops of this name."""
        return sum(not end for end, _ in list(self._running))

    def number(self, start: int) -> None:
        """Note that *start* steps of the whole run were done before the next one."""
        with self._lock:
            self.numbered.append((self.steps, max(start, 0)))

    def position(self) -> tuple[int, list[tuple[int, int]]]:
        """Return its steps, and what was `numbered` since the last call."""
        with self._lock:
            found = list(self.numbered)
            self.numbered.clear()
            return self.steps, found

    def wait(self, seconds: float) -> None:
        """Add time spent waiting for data."""
        if 0 < seconds < inf:  # by a clock that the program may have replaced
            with self._lock:
                self.waited += seconds

    @property
    def age(self) -> float:
        """Seconds since one of them started or completed a step."""
        return max(now() - self.last_step, 0.0)

    def step(self, seconds: float, at: float, ids: SpanIds | None = None) -> None:
        """
        Count a step that finished at the time *at*, and keep the *ids* of its span as
        an exemplar.
        """
        with self._lock:
            self.steps += 1
            self.last_step = at
        self.seconds.observe(seconds, ids)

    def explain(self) -> marked.Loop:
        """Return the steps so far; the wait for data is part of a step."""
        spent = self.seconds.sum
        return marked.Loop(
            name=self.name,
            steps=self.steps,
            running=self.running,
            mean_seconds=self.seconds.mean,
            p50_seconds=self.seconds.quantile(0.5),
            p95_seconds=self.seconds.quantile(0.95),
            p99_seconds=self.seconds.quantile(0.99),
            data_wait_seconds=self.waited,
            data_wait_ratio=min(self.waited / spent, 1.0) if spent else None,
            last_step_seconds=self.age,
        )


class Loops:
    """
    Loops by label, at most *limit* of them, and as many names of items.

    Attributes:
        on_new: each is called when a loop of a new name begins; may raise.
        on_change: called when a loop has begun or ended, unless it was left without a
            call, as by ``break``; may raise.
        on_step: called with the loop when one of its steps is finished; raises nothing.
    """

    def __init__(self, limit: int) -> None:
        self.on_new: list[Callable[[], object]] = []
        self.on_change: Callable[[], object] | None = None
        self.on_step: Callable[[Loop], object] | None = None
        self.labels = Labels(limit)
        self.item_labels = Labels(limit)
        self._loops: dict[str, Loop] = {}
        self._items: dict[Items, int] = {}
        self._lock = RLock()

    def __iter__(self) -> Iterator[Loop]:
        return iter(list(self._loops.values()))

    def of(self, name: str) -> Loop:
        """Return the metrics of the loops called *name*. Thread-safe."""
        found = self._loops.get(name)
        if found is None:
            name = self.labels.admit(name)
            found = self._loops.setdefault(name, Loop(name))
            for one in list(self.on_new):
                one()
        return found

    def changed(self) -> None:
        """Note that a loop has begun or ended."""
        if self.on_change is not None:
            self.on_change()

    def running(self) -> str:
        """Return the name of the outermost loop that runs, ``""`` if none does."""
        return next(iter([one.name for one in self if one.running]), "")

    def items(self, loop: Loop, item: str) -> Items:
        """Return where the items of *loop* are counted: from 0, so they appear."""
        key = (loop.name, self.item_labels.admit(item))
        with self._lock:
            self._items.setdefault(key, 0)
        return key

    def count(self, items: Items, number: int) -> None:
        """Add *number* items."""
        with self._lock:
            self._items[items] += number

    def explain(self) -> tuple[marked.Loop, ...]:
        """Return the steps so far, by loop."""
        return tuple([loop.explain() for loop in self])

    def collect(self) -> list[Family]:
        """Return the families of loops."""
        loops = list(self._loops.values())
        steps, items = catalog.STEPS, catalog.ITEMS
        waited, age = catalog.DATA_WAIT_SECONDS, catalog.STEP_AGE_SECONDS
        running = [(loop.name, loop.age) for loop in loops if loop.running]
        return [
            histograms(catalog.STEP_SECONDS, [loop.seconds for loop in loops]),
            Family(steps, [(series(steps, loop.name), loop.steps) for loop in loops]),
            Family(
                items,
                [(series(items, *key), n) for key, n in self._items.copy().items()],
            ),
            Family(
                waited, [(series(waited, loop.name), loop.waited) for loop in loops]
            ),
            Family(age, [(series(age, name), ago) for name, ago in running]),
        ]
