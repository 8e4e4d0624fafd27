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

from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.transfer_sites import TransferSite


if TYPE_CHECKING:
    from jaxmon.otel.traces.children import Place

SITE = "transfers"

Started: TypeAlias = tuple[TransferSite, int, int, int, "Place | None"]
"""
Transfer site, count (0 for shards after the first), bytes, start, and where a span of
it belongs.
"""

Record: TypeAlias = tuple[Started, int]
"""The same with the end; both in nanoseconds of the performance counter."""


class SyncCall:
    """
    ``array.block_until_ready`` before it is called: a lookup alone is not a sync.

    Attributes:
        bound: the method.
        start: takes the calling frame and the method; returns what to call instead.
    """

    # Set from outside: an `__init__` would cost each sync a call.
    __slots__ = ("bound", "start")

    bound: Callable[[], Any]
    start: Callable[..., Callable[..., Any] | None]

    @property
    def __call__(self) -> Callable[[], Any]:
        """The method, for one call."""
        return self.start(sys._getframe(1), self.bound) or self.bound  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bound, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.bound.__reduce_ex__(protocol)


class MethodPatch:
    """Replaces a method of JAX's array class and passes each use to *observe*."""

    def __init__(
        self,
        original: Any,
        observe: Callable[[FrameType, Callable[..., Any], Any], Any],
        guard: Guard,
    ) -> None:
        self._original = original
        self._observe = observe
        self._guard = guard
        self._off = guard.off
        self.active = True

    def __get__(self, array: Any, owner: type | None = None) -> Any:
        bound = self._original.__get__(array, owner)
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
