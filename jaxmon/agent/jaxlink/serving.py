"""Which call JAX serves while it traces, lowers and compiles."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TypeAlias

from jaxmon import interrupts
from jaxmon.agent.compiles.misses import Miss, Misses
from jaxmon.agent.jaxlink.frames import AHEAD, is_jax, jitted_at


_ENTRIES = frozenset(("cache_miss", *AHEAD))


Served: TypeAlias = tuple[Miss, FrameType, FrameType]
"""
A call that JAX serves: the call, the ``cache_miss`` that serves it, and the frame that
this called. The frames must not be kept.
"""


class Serving:
    """
    Finds the call that JAX serves on this thread.

    From a call to where JAX tells of a phase it is as many frames each time. So a look
    there, which takes a microsecond, comes before a walk. A call within the call is
    deeper.
    """

    def __init__(self, misses: Misses) -> None:
        self._misses = misses
        self._steps: dict[str, int] = {}

    def now(self, phase: str) -> Served | None:
        """
        Return the call, `None` for what is ahead of time or under a transformation.

        Args:
            phase: names the place in JAX from which this is asked.
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
        # By name, too: a frame that is gone may have had the id of any other.
        if frame is None or frame.f_code.co_name != "cache_miss":
            return self._walk(phase)
        miss = self._misses.miss(id(frame))
        return self._walk(phase) if miss is None else (miss, frame, inner)

    def _walk(self, phase: str) -> Served | None:
        inner, steps = sys._getframe(1), 0  # noqa: SLF001 - `now`, as it counts
        while (frame := inner.f_back) is not None:
            name = frame.f_code.co_name
            if name not in _ENTRIES:  # as dozens
                pass
            elif name == "cache_miss" and is_jax(frame):
                miss = self._misses.miss(id(frame))
                if miss is None:
                    return None
                self._steps[phase] = steps
                return miss, frame, inner
            elif jitted_at(frame) is not None:
                return None
            inner = frame
            steps += 1
        return None
