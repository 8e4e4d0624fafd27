"""The live jitted objects of a function, and how often all of them were called."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from weakref import ref

from jaxmon.agent.counted import CountedFunction, on_end, taken


# Records of objects that may have ended, before they are looked through.
_MANY = 64


class LiveObjects:
    """
    Counted objects, none of which this keeps alive, and the sum of their calls; what
    one has counted stays when it ends.

    The sum costs a third of a microsecond for each object. Without a lock, which might
    be held by a thread that a fork has left behind: what has to be done at once is done
    without a call in between, where neither a thread nor a signal interrupts.
    """

    __slots__ = ("_ended", "_many", "_numbers", "_records")

    def __init__(self) -> None:
        self._ended = 0
        self._numbers = itertools.count()
        # With each, its last count, once it ends.
        self._records: dict[int, tuple[ref[CountedFunction], list[int]]] = {}
        self._many = _MANY

    def add(self, counted: CountedFunction) -> None:
        """Sum up the calls of *counted*, too."""
        last: list[int] = []
        on_end(counted, last.append)
        self._records[next(self._numbers)] = ref(counted), last
        if len(self._records) > self._many:
            self._fold()
            self._many = max(_MANY, 2 * len(self._records))

    @property
    def calls(self) -> int:
        """How many calls there were, those of objects that ended included."""
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
                total += taken(counted)
        if some_ended:
            self._fold()
        return total

    def newest_first(self) -> Iterator[tuple[int, CountedFunction]]:
        """Yield the objects that are live, each with a number that stays its own."""
        for number, (reference, _) in reversed({**self._records}.items()):
            counted = reference()
            if counted is not None:
                yield number, counted

    def _fold(self) -> None:
        """Add up what those have counted that ended."""
        records = self._records
        for number, (_, last) in {**records}.items():
            if last and number in records:
                self._ended += last[0]
                del records[number]
