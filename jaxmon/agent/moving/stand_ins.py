"""
What stands in for a method of JAX's array class, without a frame on the stack.

Its look-up runs an observer, which returns a callable for one call; that call has ended
when the interpreter drops it. For functions of modules see `jaxmon.agent.probe`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from types import FrameType
from typing import Any, TypeAlias
from weakref import ref

from jaxmon.agent.guard import Guard
from jaxmon.agent.moving.origins import Site


SITE = "transfers"

Started: TypeAlias = tuple[Site, int, int, int]
"""Where, how many (a shard after the first adds none), bytes, and since when."""

Record: TypeAlias = tuple[Started, int]
"""The same, and until when; both in nanoseconds of the performance counter."""


_times = iter(perf_counter_ns, None)


def crossing(
    call: Callable[..., Any], started: Started, note: Callable[[Record], None]
) -> Callable[..., Any]:
    """
    Return *call* for one call, at whose end *note*, of C, is given the record.
    """
    # As `ending` does it, without the calls: reads and waits are many.
    once = partial(call)
    record = map(note, zip((started,), _times))  # noqa: B905 - the one is endless
    once.__dict__["end"] = ref(once, partial(next, record))
    return once


class Wait:
    """
    ``array.block_until_ready`` before it is called: a look-up alone is no wait.
    """

    __slots__ = ("_bound", "_start")

    def __init__(
        self,
        bound: Callable[[], Any],
        start: Callable[..., Callable[..., Any] | None],
    ) -> None:
        self._bound = bound
        self._start = start

    @property
    def __call__(self) -> Callable[[], Any]:
        """
        The method, for one call.
        """
        return self._start(sys._getframe(1), self._bound) or self._bound  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bound, name)


class Method:
    """
    Stands in for a method of JAX's array class and shows each use to *observe*.
    """

    def __init__(
        self,
        original: Any,
        observe: Callable[[FrameType, Callable[..., Any], Any], Any],
        guard: Guard,
    ) -> None:
        self._original = original
        self._observe = observe
        self._guard = guard
        self.active = True

    def __get__(self, array: Any, owner: type | None = None) -> Any:
        bound = self._original.__get__(array, owner)
        if array is None or not self.active or not self._guard.on(SITE):
            return bound
        try:
            return self._observe(sys._getframe(1), bound, array) or bound  # noqa: SLF001
        except Exception:  # noqa: BLE001 - contained: the user's call goes on
            self._guard.failed(SITE)
            return bound
