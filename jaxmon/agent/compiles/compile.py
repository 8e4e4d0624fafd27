"""One compile, from start until it is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import repeat
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.jit import copied
from jaxmon.agent.jaxlink.other_threads import held
from jaxmon.agent.jaxlink.probe import ending
from jaxmon.indicators import work
from jaxmon.indicators.compile_log import CompileLog
from jaxmon.indicators.endings import End, noting, now
from jaxmon.indicators.timeline import Timeline
from jaxmon.otel.traces.spans import CompileSpan
from jaxmon.threads import get_ident


if TYPE_CHECKING:
    from jaxmon.agent.recompiles.comparison import PendingCause


class Compile:
    """
    One call of ``compile_or_get_cached``.

    Args:
        function: the function it is counted for.
        frame: JAX's function that makes the call and reports it.
        outer: the compile already in progress on this thread.

    Attributes:
        pending: why a call caused it.
        began: when that call started, or it did, on the performance counter.
        looked_up: whether the persistent cache was checked.
        hit: whether the persistent cache had it.
        built: whether XLA compiled it.
        deaf: whether some of JAX's events were missed.
        span: its span, if traces are on.
        end: when it finished; empty until then.
    """

    __slots__ = (
        "_looks",
        "_references",
        "began",
        "built",
        "deaf",
        "end",
        "frame",
        "function",
        "hit",
        "looked_up",
        "outer",
        "outer_error",
        "pending",
        "span",
        "started",
        "thread",
    )

    def __init__(
        self, function: Function, frame: FrameType, outer: Compile | None
    ) -> None:
        self.function = function
        self.outer = outer
        self.frame = id(frame)
        self.thread = get_ident()
        self.pending: PendingCause | None = None
        self.outer_error = sys.exception()
        self.looked_up = False
        self.hit = False
        self.built = False
        self.deaf = False
        self.span: CompileSpan | None = None
        self.end: End = []
        # References to the function that is called, before and after.
        self._references: list[int] = []
        # Number of looks at the stacks in progress at its end.
        self._looks: list[int] = []
        self.started = self.began = now()

    def watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a callable to be called once in place of *original*."""
        if not isinstance(original, FunctionType):
            return ending(original, noting(self.end))
        # A frame in an exception's traceback refers to the function it runs, so if that
        # is called only once, its reference count shows how the call ended.
        copies = repeat(copied(original))
        counts = map(sys.getrefcount, copies)
        note = map(self._references.append, counts)
        self._references.append(next(counts) + 1)  # that of what is returned
        looks = map(self._looks.append, map(len, repeat(held)))
        return ending(next(copies), zip(noting(self.end), note, looks, strict=False))

    @property
    def raised(self) -> bool | None:
        """Whether it raised an exception; `None` if unknown."""
        if len(self._references) < len(("before", "after")):
            return None
        before, after = self._references
        # A look at the stacks refers to the function for a moment, too. An exception
        # just then is far less likely.
        return after > before and not any(self._looks)


class CompileAttribution:
    """
    Attributes tracing, lowering and compiling to the waiting request and activity.

    Each method is called on the compiling thread.
    """

    def __init__(self, timeline: Timeline, compiles: CompileLog) -> None:
        self._timeline = timeline
        self._compiles = compiles

    def tracing_begins(self, end: End) -> bool:
        """
        Start attributing a trace that lasts until *end*; return whether there is a
        request or activity to attribute it to.
        """
        return self._timeline.open_compile(end) is not None

    def compile_begins(self, began: float, end: End) -> None:
        """
        Start attributing a compile that lasts until *end*, for a call that *began* then
        and has traced and lowered since.

        Loading from the persistent cache counts as a compile.
        """
        work.compile_begins(self._compiles, began, end)
        self.tracing_begins(end)

    def lowered(self, seconds: float) -> None:
        """Attribute lowering, of which JAX reports only the end."""
        self._timeline.compiled(seconds)
