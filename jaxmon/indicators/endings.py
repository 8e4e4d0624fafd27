"""
Frame-free end-of-life notifications.

If a signal handler raises during a Python ``__del__`` or weak reference callback,
Python prints and drops the exception, although the program expects it. So objects
record their end through C callables only, and the next reader processes those records.
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


def on_finalize(one: object, note: Iterator[object]) -> ref[Any]:
    """
    Return an object to keep, so that an item of *note*, a C iterator, is taken as soon
    as *one* is no longer referenced.
    """
    return ref(one, functools.partial(next, note))


class SingleUse:
    """
    A callable for one call that runs its ``__del__``, which must be in C, as soon as it
    is no longer referenced. Half the cost of a partial with a weak reference to it.
    """

    __slots__ = ("__call__", "__del__")

    __call__: Callable[..., Any]
    __del__: Callable[[], object]
