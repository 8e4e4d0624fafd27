"""
Observe calls of a function without a stack frame.

A Python wrapper around a function of JAX would show in every traceback and in the
source metadata of every program. A `Probe` does not: the interpreter asks it for
``__call__``, a property; the observer runs inside that lookup and has returned before
the original, which the property returns, is called. The price: an observer sees the
caller's frame, not the arguments or the outcome.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from types import FrameType
from typing import Any, Protocol

from jaxmon.agent.guard import Guard
from jaxmon.indicators.endings import Once


class Observer(Protocol):
    """
    Sees the frame that makes the call, which it must not keep, and the original.

    It may return a callable to be called in place of the original.
    """

    def __call__(
        self, frame: FrameType, original: Callable[..., Any], /
    ) -> Callable[..., Any] | None:
        """Observe one call."""
        ...


def ending(call: Callable[..., Any], note: Iterator[object]) -> Callable[..., Any]:
    """
    Return *call* for one call, which an observer hands out to learn of its end.

    The interpreter drops it as soon as the call ends, however it ends, and an item of
    *note* is taken. No frame of ours stands on the stack meanwhile, nor at the end.
    """
    once = Once()
    once.__call__ = call
    once.__del__ = note.__next__
    return once


class Probe:
    """
    Stands in for *original* and shows each call to *observe*.

    Costs a third of a microsecond a call. An observer that raises is contained by
    *guard* under the name *site*. Switched off (`active` false), the probe is an
    inert pass-through.
    """

    def __init__(
        self,
        original: Callable[..., Any],
        observe: Observer,
        *,
        guard: Guard,
        site: str,
    ) -> None:
        functools.update_wrapper(self, original)
        self._observe = observe
        # Together, since each look at an attribute costs: there is a `__getattr__`.
        self._parts = original, guard, site, guard.off
        self.active = True

    @property
    def __call__(self) -> Callable[..., Any]:
        """The original, or what the observer puts in its place."""
        original, guard, site, off = self._parts
        if self.active and site not in off:
            try:
                caller = sys._getframe(1)  # noqa: SLF001 - what a probe is for
                return self._observe(caller, original) or original
            except Exception:  # noqa: BLE001 - contained: the user's call goes on
                guard.failed(site)
        return original

    def __getattr__(self, name: str) -> Any:
        if name == "_parts":
            raise AttributeError(name)
        return getattr(self._parts[0], name)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # Cloudpickle, and so Ray, joblib and Dask, sends functions that JAX makes with
        # the globals that they use. As the original's name, to be looked up there.
        return resolve_name, (f"{self.__module__}:{self.__qualname__}",)
