"""Finds the call being served while JAX traces, lowers or compiles."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Generic, TypeVar

from jaxmon import interrupts
from jaxmon.agent.jaxlink.frames import AHEAD, is_call, jitted_at


_ENTRIES = frozenset(("cache_miss", *AHEAD))


_Miss = TypeVar("_Miss")


class CurrentCall(Generic[_Miss]):
    """
    Finds the call that JAX is serving on this thread.

    The number of frames from a call to where JAX reports a phase is always the same, so
    checking that depth first (a microsecond) avoids a stack walk. Nested calls are
    deeper.

    Args:
        miss_of: returns the call served by the frame with an id, `None` if there is
            none.
    """

    def __init__(self, miss_of: Callable[[int], _Miss | None]) -> None:
        self._miss_of = miss_of
        self._steps: dict[str, int] = {}

    def now(self, phase: str) -> tuple[_Miss, FrameType, FrameType] | None:
        """
        Return the call, the frame that serves it, and the frame called by that; neither
        frame must be kept. `None` if ahead of time or under a transformation.

        Args:
            phase: identifies the caller's place in JAX.
        """
        steps = self._steps.get(phase)
        if steps is None:
            return self._walk(phase)
        try:
            inner = sys._getframe(steps)  # noqa: SLF001
        except ValueError as error:  # a stack less deep
            interrupts.pass_on(error)
            return self._walk(phase)
        frame = inner.f_back
        # By name, too: frame ids are reused.
        if frame is None or frame.f_code.co_name != "cache_miss":
            return self._walk(phase)
        miss = self._miss_of(id(frame))
        return self._walk(phase) if miss is None else (miss, frame, inner)

    def _walk(self, phase: str) -> tuple[_Miss, FrameType, FrameType] | None:
        inner, steps = sys._getframe(1), 0  # noqa: SLF001 - `now`, as it counts
        while (frame := inner.f_back) is not None:
            name = frame.f_code.co_name
            if name not in _ENTRIES:  # as dozens
                pass
            elif is_call(frame):
                miss = self._miss_of(id(frame))
                if miss is None:
                    return None
                self._steps[phase] = steps
                return miss, frame, inner
            elif jitted_at(frame) is not None:
                return None
            inner = frame
            steps += 1
        return None
