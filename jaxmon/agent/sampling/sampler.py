"""Waits for one call of a jitted function that is to be sampled."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

from jaxmon.agent.counted import CountedFunction, arm
from jaxmon.agent.functions import Function
from jaxmon.agent.observers import Sample
from jaxmon.agent.sampling.figures import Figures


Begin: TypeAlias = Callable[
    ["Sampler", CountedFunction, Callable[..., Any], FrameType], None
]


class Sampler:
    """
    Skips *passed* calls of one object and samples the next, or one of a few more.

    Args:
        begin: starts a call that is sampled.
        function: whose call it is.
        figures: of *function*.
        passed: how many calls are skipped.
    """

    __slots__ = (
        "_begin",
        "_passed",
        "attempts",
        "figures",
        "followed",
        "function",
        "shown",
        "timed",
    )

    def __init__(
        self, begin: Begin, function: Function, figures: Figures, passed: int
    ) -> None:
        self._begin = begin
        self._passed = passed
        self.function = function
        self.figures = figures
        self.shown = self.timed = False
        self.attempts = 0
        self.followed: Callable[[Sample], None] | None = None

    def begin(
        self,
        counted: CountedFunction,
        jitted: Callable[..., Any],
        frame: FrameType,
        /,
    ) -> None:
        """Start the call, or wait for the next."""
        if self._passed:
            self._passed -= 1
            arm(counted, self)
            return
        self._begin(self, counted, jitted, frame)
