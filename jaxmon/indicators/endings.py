"""
When something ended, noted without a frame of ours.

A ``__del__`` in Python, or a weak reference with a callback in Python, is where Python
prints and drops what a signal handler raises meanwhile, although the program waits for
it. So what the interpreter drops notes its end through callables of C alone, and what
follows from that is worked out by whoever looks next.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from weakref import ref


End: TypeAlias = list[float]
"""By the performance counter, the first item; empty until then."""

now = time.perf_counter
"""The clock of all ends."""

# Shared, since it has no state.
_times = iter(now, None)


def noting(end: End) -> Iterator[None]:
    """Return what notes in *end* the time at which an item of it is taken."""
    return map(end.append, _times)


def when_dropped(one: object, note: Iterator[object]) -> ref[Any]:
    """
    Return what has to be kept for an item of *note*, which must be of C, to be taken as
    soon as nobody holds *one* any more.
    """
    return ref(one, functools.partial(next, note))


class Once:
    """
    A callable for one call, which runs its ``__del__``, that must be of C, as soon as
    nobody holds it any more. Half as dear as a partial with a weak reference to it.
    """

    __slots__ = ("__call__", "__del__")

    __call__: Callable[..., Any]
    __del__: Callable[[], object]
