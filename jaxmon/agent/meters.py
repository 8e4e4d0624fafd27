"""
Calls counted without a frame of ours, and the sum of many such counts.

`functools.lru_cache` of size zero counts each call that its cache cannot answer, which
is every call, and makes it: an increment in C under the GIL, so the count is exact from
any number of threads.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast
from weakref import ref


class Meter(Protocol):
    """
    A callable whose calls are counted.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """
        Count, and make the call.
        """
        ...

    def cache_info(self) -> int:
        """
        Return how many calls there were, those that raised included.
        """
        ...


def _misses(_hits: int, misses: int, _limit: int, _size: int) -> int:
    return misses


_CountingWrapper: Any = type(functools.lru_cache(maxsize=0)(_misses))


def metered(fun: Callable[..., Any]) -> Meter:
    """
    Return *fun* so that its calls are counted.
    """
    return cast("Meter", _CountingWrapper(fun, 0, False, _misses))  # noqa: FBT003 - C


class Meters:
    """
    The sum of what meters count; what one has counted stays when it goes.

    Costs a third of a microsecond for each meter that is there. Without a lock, which
    might be held by a thread that a fork has left behind: a reading may miss what a
    meter brings in at that moment, but counts nothing twice.
    """

    __slots__ = ("_gone", "_there")

    def __init__(self) -> None:
        # By id, and without keeping them alive.
        self._there: dict[int, ref[Meter]] = {}
        self._gone: deque[int] = deque()

    def add(self, meter: Meter) -> Callable[[], None]:
        """
        Sum up *meter*, too; return what is to be called when it counts no more.
        """
        self._there[id(meter)] = ref(meter)
        return functools.partial(self._leave, meter)

    @property
    def value(self) -> int:
        """
        How many calls there were.
        """
        # In this order, lest one that goes meanwhile counts twice.
        total = sum(list(self._gone))
        for reference in list(self._there.values()):
            meter = reference()
            if meter is not None:
                total += meter.cache_info()
        return total

    def _leave(self, meter: Meter) -> None:
        # From `__del__`: on any thread, within itself, and as the interpreter ends,
        # when there may be no globals any more.
        if self._there.pop(id(meter), None) is None:
            return
        total, gone = meter.cache_info(), self._gone
        # Who leaves takes along what others have left, so that it stays one number.
        while gone:
            try:
                total += gone.pop()
            except IndexError:  # another thread was faster
                break
        gone.append(total)
