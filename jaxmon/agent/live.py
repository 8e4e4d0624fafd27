"""The live jitted objects of a function, and the number of their calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from weakref import ref

from jaxmon.agent.counted import CountedFunction, call_count, on_end


# Number of records after which those of dead objects are folded.
_MANY = 64


class LiveObjects:
    """
    Weak references to counted objects, and the sum of their calls, including those of
    dead objects.

    The sum costs a third of a microsecond for each object. There is no lock, because
    after a fork it might be held by a thread that no longer exists: what must be atomic
    contains no call, so that neither a thread nor a signal interrupts it.
    """

    __slots__ = ("_ended", "_many", "_numbers", "_records")

    def __init__(self) -> None:
        self._ended = 0
        self._numbers = itertools.count()
        # With each, its last count, once it ends.
        self._records: dict[int, tuple[ref[CountedFunction], list[int]]] = {}
        self._many = _MANY

    def add(self, counted: CountedFunction) -> None:
        """Include the calls of *counted*."""
        last: list[int] = []
        on_end(counted, last.append)
        self._records[next(self._numbers)] = ref(counted), last
        if len(self._records) > self._many:
            self._fold()
            self._many = max(_MANY, 2 * len(self._records))

    @property
    def calls(self) -> int:
        """Number of calls, including those of dead objects."""
        if not self._records:
            return self._ended
        # Together, without a call in between.
        total, records = self._ended, {**self._records}
        some_ended = False
        for reference, last in records.values():
            counted = reference()
            if last:
                total += last[0]
                some_ended = True
            elif counted is not None:
                total += call_count(counted)
        if some_ended:
            self._fold()
        return total

    def newest_first(self) -> Iterator[tuple[int, CountedFunction]]:
        """Yield the live objects, each with its unique number."""
        for number, (reference, _) in reversed({**self._records}.items()):
            counted = reference()
            if counted is not None:
                yield number, counted

    def _fold(self) -> None:
        """Fold the counts of dead objects."""
        records = self._records
        for number, (_, last) in {**records}.items():
            if last and number in records:
                self._ended += last[0]
                del records[number]
