"""One compile, from start until it is counted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import repeat
from types import FrameType, FunctionType
from typing import Any

from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.jit import copied
from jaxmon.agent.jaxlink.probe import ending
from jaxmon.agent.recompiles.part import Inquiry
from jaxmon.indicators.endings import End, noting, now


class Compile:
    """
    One call of ``compile_or_get_cached``.

    Args:
        function: whose figures it belongs to.
        frame: the function of JAX that makes the call, and reports it.
        outer: the compile that is under way on this thread already.

    Attributes:
        inquiry: why a call had it compiled.
        began: since when that call waits, on the performance counter.
        looked_up: whether it was looked up in the persistent cache.
        hit: whether it was found there.
        built: whether XLA built it.
        deaf: whether some of JAX's events were missed.
        end: when it ended; empty until then.
    """

    __slots__ = (
        "_references",
        "began",
        "built",
        "deaf",
        "end",
        "frame",
        "function",
        "hit",
        "inquiry",
        "looked_up",
        "outer",
        "outer_error",
        "started",
        "thread",
    )

    def __init__(
        self, function: Function, frame: FrameType, outer: Compile | None
    ) -> None:
        self.function = function
        self.outer = outer
        self.frame = id(frame)
        self.thread = threading.get_ident()
        self.inquiry: Inquiry | None = None
        self.began = 0.0
        self.outer_error = sys.exception()
        self.looked_up = False
        self.hit = False
        self.built = False
        self.deaf = False
        self.end: End = []
        # To the function that is called, before and after.
        self._references: list[int] = []
        self.started = now()

    def watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is to be called once in place of *original*."""
        if not isinstance(original, FunctionType):
            return ending(original, noting(self.end))
        # The frame of an exception's traceback refers to the function that it runs: of
        # one that is called only once, the references tell how that call ended.
        copies = repeat(copied(original))
        counts = map(sys.getrefcount, copies)
        note = map(self._references.append, counts)
        self._references.append(next(counts) + 1)  # that of what is returned
        return ending(next(copies), zip(noting(self.end), note, strict=False))

    @property
    def raised(self) -> bool | None:
        """Whether it ended with an exception; `None` where that is not known."""
        if len(self._references) < len(("before", "after")):
            return None
        before, after = self._references
        return after > before
