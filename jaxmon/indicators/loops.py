"""Loop metrics: steps, items, data wait."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from threading import RLock
from typing import Any
from weakref import ref

from jaxmon import catalog
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family, Histogram, series
from jaxmon.indicators.endings import End, noting, on_finalize
from jaxmon.indicators.labels import Labels


class Loop:
    """The metrics of loops with one name; several may run at once."""

    __slots__ = ("_lock", "_running", "last_step", "name", "seconds", "steps", "waited")

    def __init__(self, name: str) -> None:
        self.name = name
        self._running: list[tuple[End, ref[Any]]] = []
        self.steps = 0
        self.waited = 0.0
        self.last_step = 0.0
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
            self.last_step = wall_time()

    @property
    def running(self) -> int:
        """Number of running loops of this name."""
        return sum(not end for end, _ in list(self._running))

    def wait(self, seconds: float) -> None:
        """Add time spent waiting for data."""
        if 0 < seconds < inf:  # by a clock that the program may have replaced
            with self._lock:
                self.waited += seconds

    def step(self, seconds: float) -> None:
        """Count a finished step."""
        with self._lock:
            self.steps += 1
            self.last_step = wall_time()
        self.seconds.observe(seconds)

    def explain(self) -> dict[str, float | None]:
        """Return the steps so far; the wait for data is part of a step."""
        spent = self.seconds.sum
        return {
            "steps": self.steps,
            "running": self.running,
            "mean_seconds": self.seconds.mean,
            "p50_seconds": self.seconds.quantile(0.5),
            "p95_seconds": self.seconds.quantile(0.95),
            "p99_seconds": self.seconds.quantile(0.99),
            "data_wait_seconds": self.waited,
            "data_wait_ratio": min(self.waited / spent, 1.0) if spent else None,
            "last_step_seconds": max(wall_time() - self.last_step, 0.0),
        }


class Loops:
    """Loops by label, at most *limit* of them, and as many names of items."""

    def __init__(self, limit: int) -> None:
        self.labels = Labels(limit)
        self.item_labels = Labels(limit)
        self._loops: dict[str, Loop] = {}
        self._items: dict[tuple[str, str], int] = {}
        self._lock = RLock()

    def __iter__(self) -> Iterator[Loop]:
        return iter(list(self._loops.values()))

    def of(self, name: str) -> Loop:
        """Return the metrics of the loops called *name*. Thread-safe."""
        found = self._loops.get(name)
        if found is None:
            name = self.labels.admit(name)
            found = self._loops.setdefault(name, Loop(name))
        return found

    def count(self, loop: Loop, item: str, number: int) -> None:
        """Add *number* items, 0 to make the series appear."""
        key = (loop.name, self.item_labels.admit(item))
        with self._lock:
            self._items[key] = self._items.get(key, 0) + number

    def explain(self) -> dict[str, dict[str, float | None]]:
        """Return the steps so far, by loop."""
        return {loop.name: loop.explain() for loop in list(self._loops.values())}

    def collect(self) -> list[Family]:
        """Return the families of loops."""
        loops = list(self._loops.values())
        steps, items = catalog.STEPS, catalog.ITEMS
        waited, last = catalog.DATA_WAIT_SECONDS, catalog.LAST_STEP_TIMESTAMP_SECONDS
        running = [loop for loop in loops if loop.running]
        return [
            Family(
                catalog.STEP_SECONDS,
                [sample for loop in loops for sample in loop.seconds.samples()],
            ),
            Family(steps, [(series(steps, loop.name), loop.steps) for loop in loops]),
            Family(
                items,
                [(series(items, *key), n) for key, n in list(self._items.items())],
            ),
            Family(
                waited, [(series(waited, loop.name), loop.waited) for loop in loops]
            ),
            Family(
                last, [(series(last, loop.name), loop.last_step) for loop in running]
            ),
        ]
