"""
One compile, while it runs and until it is counted.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

from jaxmon.agent.compiling.recompiles import Inquiry
from jaxmon.agent.functions import Function
from jaxmon.agent.probe import Ending


class Compile:
    """
    One call of ``compile_or_get_cached``.

    Args:
        function: whose figures it belongs to.
        frame: the function of JAX that makes the call, and reports it.

    Attributes:
        inquiry: why a call had it compiled.
        began: since when that call waits, on the performance counter.
        looked_up: whether it was looked up in the persistent cache.
        hit: whether it was found there.
        built: whether XLA built it.
        deaf: whether some of JAX's events were not heard.
        raised: whether it ended with an exception; `None` where that is not known.
        ended: when, on the performance counter.
    """

    __slots__ = (
        "_call",
        "_references",
        "began",
        "built",
        "deaf",
        "ended",
        "frame",
        "function",
        "hit",
        "inquiry",
        "looked_up",
        "outer_error",
        "paid",
        "raised",
        "started",
        "thread",
    )

    def __init__(self, function: Function, frame: FrameType) -> None:
        self.function = function
        self.frame = id(frame)
        self.thread = threading.get_ident()
        self.inquiry: Inquiry | None = None
        self.began = 0.0
        self.outer_error = sys.exception()
        self.looked_up = False
        self.hit = False
        self.built = False
        self.deaf = False
        self.raised: bool | None = None
        self.paid: Callable[[], None] | None = None
        self.ended: float | None = None
        self.started = time.perf_counter()

    def watched(self, original: Callable[..., Any]) -> Ending:
        """
        Return what is to be called once in place of *original*.
        """
        # The frame of an exception's traceback refers to the function that it runs: of
        # one that is called only once, the references tell how that call ended.
        self._call = _copy(original) if isinstance(original, FunctionType) else None
        running = Ending(self._call or original)
        self._references = sys.getrefcount(self._call)
        return running

    def has_ended(self) -> None:
        """
        Take note that what `watched` returned has been called, as it is dropped.
        """
        self.ended = time.perf_counter()
        if self._call is not None:
            self.raised = sys.getrefcount(self._call) > self._references
            self._call = None


def _copy(function: FunctionType) -> FunctionType:
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
