"""When the process compiled, and which requests that delayed, by thread and task."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable
from math import inf
from types import CodeType

from jaxmon.indicators.endings import End
from jaxmon.threads import get_ident
from jaxmon.tuples import NamedTuple


def runs_loop() -> bool:
    """Return whether an event loop runs on this thread."""
    asyncio = sys.modules.get("asyncio.events")
    return asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001 - the public function raises


def here() -> tuple[int, int]:
    """Return what identifies this thread, and the task that runs on it, if any."""
    asyncio = sys.modules.get("asyncio.events")
    if asyncio is None or (loop := asyncio._get_running_loop()) is None:  # noqa: SLF001 - likewise
        return threading.get_ident(), 0
    return threading.get_ident(), id(sys.modules["asyncio.tasks"].current_task(loop))


def task_runs(code: CodeType) -> bool:
    """Return whether the task on this thread was created to run *code* alone."""
    asyncio = sys.modules["asyncio.tasks"]
    task = asyncio.current_task()
    return getattr(task.get_coro(), "cr_code", None) is code


_KEPT = 256
_USUAL = 2.0
"""A request that took this many times the slowest usual one was slowed down."""


class LoggedSpan(NamedTuple):
    """
    A compile: when the call that caused it left JAX's fast path, its end, and whether
    an event loop runs on that thread, which stands still.
    """

    began: float
    end: End
    thread: int
    holds_loop: bool

    def overlap(self, began: float, ended: float) -> float:
        """Return how many of its seconds lie between *began* and *ended*."""
        mine = self.end[0] if self.end else ended
        return max(0.0, min(mine, ended) - max(self.began, began))


class CompileLog:
    """The latest compiles of a process. Thread-safe, without a lock."""

    def __init__(self) -> None:
        self._spans: deque[LoggedSpan] = deque(maxlen=_KEPT)
        self._open: list[LoggedSpan] = []
        self._ended = -inf

    def begin(self, began: float, end: End) -> None:
        """Note a compile of this thread since *began*, which lasts until *end*."""
        span = LoggedSpan(began, end, get_ident(), runs_loop())
        self._spans.append(span)
        self._open = [
            logged for logged in self._open if not self._has_ended(logged)
        ] + [span]

    def quiet_since(self, began: float) -> bool:
        """Return whether the process has not compiled since *began*."""
        if self._open:
            self._open = [span for span in self._open if not self._has_ended(span)]
        return not self._open and self._ended < began

    def compiled_here(self, began: float) -> bool:
        """Return whether this thread has finished a compile since *began*."""
        here = get_ident()
        return any(
            span.thread == here and span.end and span.end[0] > began
            for span in list(self._spans)
        )

    def delayed(
        self, home: int, began: float, ended: float, usual: Iterable[float]
    ) -> bool:
        """
        Return whether compiles delayed a request on behalf of which none ran.

        Either one held the event loop of its *home* thread; or it took much longer than
        those *usual* of its route while nothing compiled, and compiles were in progress
        for most of that excess. If nothing is known of its route yet, it must have
        outlasted compiles that lasted for most of its time: a request cannot end before
        the compile that it waits for.
        """
        spans = [span for span in list(self._spans) if span.overlap(began, ended) > 0]
        if any(span.holds_loop and span.thread == home for span in spans):
            return True
        seconds, slowest = ended - began, max(usual, default=None)
        if slowest is None:
            spans = [span for span in spans if span.end and span.end[0] <= ended]
            return _union(spans, began, ended) >= seconds / 2
        excess = seconds - slowest
        if seconds <= _USUAL * slowest:
            return False
        return _union(spans, began, ended) >= excess / 2

    def _has_ended(self, span: LoggedSpan) -> bool:
        if not span.end:
            return False
        self._ended = max(self._ended, span.end[0])
        return True


def _union(spans: list[LoggedSpan], began: float, ended: float) -> float:
    """Return the seconds between *began* and *ended* with any of *spans*."""
    total, until = 0.0, began
    for span in sorted(spans, key=lambda logged: logged.began):
        first = max(span.began, until)
        last = min(span.end[0] if span.end else ended, ended)
        if last > first:
            total += last - first
            until = last
    return total
