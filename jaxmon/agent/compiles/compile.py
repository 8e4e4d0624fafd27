"""
One compile, from start until it is counted, and its event: if a request waited for it,
or if it took long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import repeat
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.jit import copied
from jaxmon.agent.jaxlink.other_threads import held
from jaxmon.agent.jaxlink.probe import ending
from jaxmon.indicators import work
from jaxmon.indicators.endings import End, noting, now
from jaxmon.threads import get_ident


if TYPE_CHECKING:
    from jaxmon.agent.recompiles.finder import PendingCause
    from jaxmon.otel.traces.spans import CompileSpan

SLOW_SECONDS = 1.0
"""What a compile that no request waits for must take to be an event."""


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


def add_event(events: EventLog, compile_: Compile, *, looked_up: bool) -> None:
    """
    Add an event of *compile_*, which has succeeded and is no recompile, if it took long
    or a request waited for it. *looked_up*: whether a persistent cache was checked.
    """
    ended, hit = compile_.end[0], compile_.hit
    seconds = ended - compile_.began
    # One that JAX did not report is noticed late, perhaps within another request.
    waiting = work.payers()
    requests = sum([request.started < ended for request in waiting]) if waiting else 0
    if not requests and seconds < SLOW_SECONDS:
        return
    how = "loaded from the persistent cache" if hit else "compiled"
    waited = "a request" if requests == 1 else f"{requests} requests"
    events.add(
        "compile",
        compile_.function.name,
        f"{how} in {seconds:.3g} s{f' while {waited} waited' if requests else ''}",
        cache="hit" if hit else "miss" if looked_up else "off",
        seconds=seconds,
        requests=requests,
    )
