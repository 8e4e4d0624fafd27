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

from jaxmon.agent.guard import Allowance, Guard
from jaxmon.indicators.endings import SingleUse


_frame = sys._getframe  # noqa: SLF001 - what a probe is for


class Observer(Protocol):
    """
    Called with the frame that makes the call, which it must not keep, and the original.

    It may return a callable to be called in place of the original.
    """

    def __call__(
        self, frame: FrameType, original: Callable[..., Any], /
    ) -> Callable[..., Any] | None:
        """Observe one call."""
        ...


def ending(call: Callable[..., Any], note: Iterator[object]) -> Callable[..., Any]:
    """
    Wrap *call* for one call, so that an observer learns of its end.

    The interpreter drops the wrapper as soon as the call ends, however it ends, which
    consumes an item of *note*. No frame of ours is on the stack meanwhile, or at the
    end.
    """
    once = SingleUse()
    once.__call__ = call
    once.__del__ = note.__next__
    return once


class Probe:
    """
    Replaces *original* and passes each call to *observe*.

    Costs a third of a microsecond per call, a seventh if the observer's *allowance* has
    let the next calls pass. Exceptions of the observer are contained by *guard* under
    the name *site*. If disabled (`active` false), the probe only passes calls through.
    If *caller* is given, so it does with calls by functions of other names.
    """

    def __init__(  # noqa: PLR0913 - what each call depends on
        self,
        original: Callable[..., Any],
        observe: Observer,
        *,
        guard: Guard,
        site: str,
        allowance: Allowance | None = None,
        caller: str | None = None,
    ) -> None:
        functools.update_wrapper(self, original)
        self._observe = observe
        # In one attribute, because each attribute access is slow: there is a
        # `__getattr__`.
        self._parts = original, guard, site, guard.off, allowance, caller
        self.active = True

    @property
    def __call__(self) -> Callable[..., Any]:
        """The original, or the observer's replacement."""
        original, guard, site, off, allowance, caller = self._parts
        if caller is not None and _frame(1).f_code.co_name != caller:
            return original
        if allowance is not None and allowance.passing:
            allowance.passing -= 1
            return original
        if self.active and site not in off:
            try:
                return self._observe(_frame(1), original) or original
            except Exception:  # noqa: BLE001 - contained: the user's call goes on
                guard.failed(site)
        return original

    def __getattr__(self, name: str) -> Any:
        if name == "_parts":
            raise AttributeError(name)
        return getattr(self._parts[0], name)

    def __reduce_ex__(self, protocol: object) -> str | tuple[Any, ...]:
        # Cloudpickle, and so Ray, joblib and Dask, pickles functions created by JAX
        # with the globals that they use. Pickled as the original's name, to be looked
        # up there: like any function, unless it is not found there itself.
        name: str = self.__qualname__
        if getattr(sys.modules.get(self.__module__), name, None) is self:
            return name
        return resolve_name, (f"{self.__module__}:{name}",)
