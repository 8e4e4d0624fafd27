"""
Counters that need no lock: of what is added to, and of calls that are made.

`itertools.repeat` counts down in one C call, which is atomic under the GIL, and tells
what is left. Adding costs 30 ns; ``n += 1`` on an attribute would lose counts between
threads.

`functools.lru_cache` of size zero counts each call that its cache cannot answer, which
is every call, and makes it: an increment in C under the GIL, so the count is exact from
any number of threads, and no frame of ours is on the stack.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from itertools import repeat
from operator import length_hint
from typing import Any, Protocol, cast
from weakref import ref


_FULL = 1 << 62

# Entries of meters that may be gone, before they are looked through.
_MANY = 64


class Tally:
    """Counts up by one, from any thread."""

    __slots__ = ("_ticks", "add")

    def __init__(self) -> None:
        self._ticks = repeat(1, _FULL)
        self.add = self._ticks.__next__

    @property
    def value(self) -> int:
        """How often `add` was called."""
        return _FULL - length_hint(self._ticks)


class Meter(Protocol):
    """A callable whose calls are counted."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Count, and make the call."""
        ...

    def cache_info(self) -> int:
        """Return how many calls there were, those that raised included."""
        ...


_CountingWrapper: Any = type(functools.lru_cache(maxsize=0)(max))


def metered(fun: Callable[..., Any]) -> Meter:
    """Return *fun* so that its calls are counted."""
    # Of hits, misses, limit and size all but the misses are 0, and the greatest divisor
    # of a number and zeros is the number. That needs no Python, which could be
    # interrupted as a meter goes, and is quicker than `max`.
    return cast("Meter", _CountingWrapper(fun, 0, False, math.gcd))  # noqa: FBT003 - C


class Meters:
    """
    The sum of what meters count; what one has counted stays when it goes.

    Costs a third of a microsecond for each meter that is there. Without a lock, which
    might be held by a thread that a fork has left behind: what has to be done at once
    is done without a call in between, where neither a thread nor a signal interrupts.
    """

    __slots__ = ("_gone", "_many", "_numbers", "_there")

    def __init__(self) -> None:
        self._gone = 0
        self._numbers = itertools.count()
        # Without keeping them alive; with each, its last count, once it goes.
        self._there: dict[int, tuple[ref[Meter], list[int]]] = {}
        self._many = _MANY

    def add(self, meter: Meter) -> Callable[[], object]:
        """
        Sum up *meter*, too; return what is to be called, as a ``__del__``, when it
        counts no more. That is of C: what a signal handler raised in it would be lost.
        """
        last: list[int] = []
        self._there[next(self._numbers)] = ref(meter), last
        if len(self._there) > self._many:
            self._fold()
            self._many = max(_MANY, 2 * len(self._there))
        return map(last.append, iter(meter.cache_info, None)).__next__

    @property
    def value(self) -> int:
        """How many calls there were."""
        if not self._there:
            return self._gone
        # Together, without a call in between.
        total, there = self._gone, {**self._there}
        have_gone = False
        for reference, last in there.values():
            meter = reference()
            if last:
                total += last[0]
                have_gone = True
            elif meter is not None:
                total += meter.cache_info()
        if have_gone:
            self._fold()
        return total

    def _fold(self) -> None:
        """Add up what those have counted that are gone."""
        there = self._there
        for number, (_, last) in list(there.items()):
            if last and number in there:
                self._gone += last[0]
                del there[number]
