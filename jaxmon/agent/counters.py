"""
Counters that need no lock: one that is incremented, and one of calls.

`itertools.repeat` counts down in one C call, which is atomic under the GIL, and can be
read. Adding costs 30 ns; ``n += 1`` on an attribute would lose counts between threads.

`functools.lru_cache` of size zero counts each call that its cache cannot answer, which
is every call, and makes it: an increment in C under the GIL, so the count is exact from
any number of threads, and no frame of ours is on the stack.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable
from itertools import islice, repeat
from operator import length_hint
from typing import Any, Protocol, cast


_FULL = 1 << 62


class Tally:
    """Counts up by one, from any thread."""

    __slots__ = ("_ticks", "add")

    def __init__(self) -> None:
        self._ticks = repeat(1, _FULL)
        self.add = self._ticks.__next__

    def add_many(self, number: int) -> None:
        """Count up by *number*."""
        deque(islice(self._ticks, number), maxlen=0)

    @property
    def value(self) -> int:
        """Number of calls of `add`."""
        return _FULL - length_hint(self._ticks)


class Meter(Protocol):
    """A callable whose calls are counted."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Count the call and make it."""
        ...

    def cache_info(self) -> int:
        """Return the number of calls, including those that raised."""
        ...


_CountingWrapper: Any = type(functools.lru_cache(maxsize=0)(max))


def metered(fun: Callable[..., Any]) -> Meter:
    """Return *fun* so that its calls are counted."""
    # Of hits, misses, limit and size all but the misses are 0, and the greatest divisor
    # of a number and zeros is the number. That needs no Python, which could be
    # interrupted as a meter goes, and is quicker than `max`.
    return cast("Meter", _CountingWrapper(fun, 0, False, math.gcd))  # noqa: FBT003 - C
