"""
Frame-free end-of-life notifications.

If a signal handler raises during a Python ``__del__`` or weak reference callback,
Python prints and drops the exception, although the program expects it. So objects
record their end through C callables only, and the next reader processes those records.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeAlias
from weakref import ref

from jaxmon.clocks import perf_counter


End: TypeAlias = list[float]
"""The time of an end is its first item; empty until then."""

now = perf_counter
"""The clock by which ends are recorded."""

# Shared, since it has no state.
_times = iter(now, None)


def noting(end: End) -> Iterator[None]:
    """Return an iterator that records the time in *end* when it is advanced."""
    return map(end.append, _times)


def noting_python(found: list[bool], thread: int) -> Iterator[None]:
    """
    Return an iterator that records in *found* whether *thread* runs Python when an item
    is taken from it; between the end of the program and its exit, it does not.
    """
    frames = iter(sys._current_frames, None)  # noqa: SLF001 - public, but for its name
    return map(found.append, map(operator.contains, frames, repeat(thread)))


def on_finalize(watched: object, note: Iterator[object]) -> ref[Any]:
    """Return what takes an item of *note*, in C, once *watched* is not referenced."""
    return ref(watched, functools.partial(next, note))


class SingleUse:
    """
    A callable for one call that runs its ``__del__``, which must be in C, as soon as it
    is not referenced. Half the cost of a partial with a weak reference to it.
    """

    __slots__ = ("__call__", "__del__")

    __call__: Callable[..., Any]
    __del__: Callable[[], object]
