"""
Replaces methods of JAX's array class without adding a stack frame.

Looking the method up runs an observer, which returns a callable for one call; the call
has finished when the interpreter drops that. `jaxmon.agent.jaxlink.probe` does the same
for functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxmon.agent.guard import Allowance, Guard
from jaxmon.agent.jaxlink.transfer_sites import TransferSite


if TYPE_CHECKING:
    from jaxmon.otel.traces.spans import Place

SITE = "transfers"

Started: TypeAlias = tuple[TransferSite, int, int, int, int, "Place | None"]
"""
Transfer site, how many transfers it stands for, count (0 for shards after the first),
bytes, start, and where a span of it belongs.
"""

Record: TypeAlias = tuple[Started, int]
"""The same with the end; both in nanoseconds of the performance counter."""


class SyncCall:
    """
    ``array.block_until_ready`` before it is called: a lookup alone is not a sync.

    Attributes:
        bound: the method.
        start: takes the calling frame, the method and the weight; returns what to call
            instead.
        weight: how many syncs it stands for.
    """

    # Set from outside: an `__init__` would cost each sync a call.
    __slots__ = ("bound", "start", "weight")

    bound: Callable[[], Any]
    start: Callable[..., Callable[..., Any] | None]
    weight: int

    @property
    def __call__(self) -> Callable[[], Any]:
        """The method, for one call."""
        frame, bound = sys._getframe(1), self.bound  # noqa: SLF001
        return self.start(frame, bound, self.weight) or bound

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bound, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.bound.__reduce_ex__(protocol)


class MethodPatch:
    """Replaces a method of JAX's array class and passes each use to *observe*."""

    __slots__ = ("_allowance", "_bind", "_guard", "_observe", "_off", "active")

    def __init__(
        self,
        original: Any,
        observe: Callable[[FrameType, Callable[..., Any], Any], Any],
        allowance: Allowance,
        guard: Guard,
    ) -> None:
        self._allowance = allowance
        self._bind = original.__get__
        self._observe = observe
        self._guard = guard
        self._off = guard.off
        self.active = True

    def __get__(self, array: Any, owner: type | None = None) -> Any:
        # First, since most pass where they are frequent.
        allowance = self._allowance
        if allowance.passing:
            allowance.passing -= 1
            return self._bind(array, owner)
        bound = self._bind(array, owner)
        if array is None or not self.active or SITE in self._off:
            return bound
        try:
            return self._observe(sys._getframe(1), bound, array) or bound  # noqa: SLF001
        except Exception:  # noqa: BLE001 - contained: the user's call goes on
            self._guard.failed(SITE)
            return bound


def variable(frame: FrameType, name: str) -> Any:
    """Return the variable *name* of the method, in *frame*, that looks another up."""
    return frame.f_locals[name]
