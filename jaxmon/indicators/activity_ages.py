"""How long activities have been running, and how long ago they finished."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

from jaxmon import catalog
from jaxmon.exposition.families import Family, series
from jaxmon.indicators.endings import End, now
from jaxmon.threads import RLock


FINISHED, FAILED = -1.0, -2.0
"""
Follow the time in the end of an activity that was left: no reading of the clock, such
as the second one that an end gets when its object is no longer referenced.
"""

_FEW = 16


class Open(Protocol):
    """An activity that was opened, with its end."""

    @property
    def end(self) -> End:
        """Its end, empty until then."""
        ...


class _Named:
    """
    The activities of one name: those that are open, and some that have ended, in the
    order of their beginning.

    Attributes:
        finished: when the latest of the others finished.
        count: how many of the others finished, without those that began within one of
            them.
    """

    __slots__ = ("_counted", "count", "finished", "most", "opened")

    def __init__(self) -> None:
        self.opened: list[tuple[float, Open]] = []
        self.finished: float | None = None
        self.count, self._counted = 0, -inf
        # Those that have ended are dropped when there are so many.
        self.most = _FEW

    def settle(self, began: float, one: Open) -> None:
        """Note how *one*, which *began* then and has ended, did so."""
        end = one.end
        if len(end) > 1 and end[1] == FINISHED:
            if began >= self._counted:
                self.count, self._counted = self.count + 1, end[0]
            self.finished = max(end[0], self.finished or 0.0)

    def drop_ended(self) -> None:
        """Drop all that have ended."""
        open_ = []
        for began, one in self.opened:
            if one.end:
                self.settle(began, one)
            else:
                open_.append((began, one))
        self.opened = open_
        self.most = max(2 * len(open_), _FEW)


class ActivityAges:
    """
    Ages of activities by name, on whichever thread they run.

    The caller bounds the number of names.

    Args:
        clock: the clock by which ends are recorded.
    """

    def __init__(self, *, clock: Callable[[], float] = now) -> None:
        self._clock = clock
        self._named: dict[str, _Named] = {}
        self._lock = RLock()

    def begin(self, name: str, one: Open) -> None:
        """
        Follow *one*, which begins now, until its end. Thread-safe; half a microsecond.
        """
        with self._lock:
            named = self._named.get(name)
            if named is None:
                named = self._named[name] = _Named()
            elif len(named.opened) >= named.most:
                named.drop_ended()
            named.opened.append((self._clock(), one))

    def count(self, name: str) -> int:
        """
        Return how many activities called *name* finished without an exception; of two
        that overlap, the program has marked what was recorded anyway.
        """
        with self._lock:
            named = self._named.get(name)
            if named is None:
                return 0
            named.drop_ended()
            return named.count

    def collect(self) -> list[Family]:
        """Return the ages, in seconds."""
        running, age = catalog.ACTIVITY_RUNNING_SECONDS, catalog.ACTIVITY_AGE_SECONDS
        ages, ages_running = [], []
        with self._lock:
            for named in self._named.values():
                named.drop_ended()
            at = self._clock()
            for name, named in self._named.items():
                began = named.opened[0][0] if named.opened else at
                ages_running.append((series(running, name), max(0.0, at - began)))
                if named.finished is not None:
                    ages.append((series(age, name), max(0.0, at - named.finished)))
        return [Family(running, ages_running), Family(age, ages)]
