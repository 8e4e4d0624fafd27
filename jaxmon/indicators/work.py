"""
The requests that a thread or task works for.

A request's own context leads to it. With dynamic batching the model runs in another
one. There, the requests are those whose items the thread or task has taken from a
queue, or those that `jaxmon.batch` names.

Which of the items taken earlier are still being worked on is not known. But a request
cannot end before a compile on its behalf does, so it counts as cold only if it was
still in progress then.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from math import inf
from types import CodeType
from typing import TYPE_CHECKING

from jaxmon.indicators.endings import End
from jaxmon.indicators.recorder import recorder
from jaxmon.threads import get_ident
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from weakref import ref

    from jaxmon.indicators.requests import MarkedRequest, OpenRequest


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
    task = sys.modules["asyncio.tasks"].current_task()
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


class RequestEntry:
    """
    An entered block: by which object, for which request, and within which other block
    of that. The object is not referenced: it ends the request when it is not, either.
    """

    # Set from outside: an `__init__` would cost each request a call.
    __slots__ = ("by", "outer", "serving")

    by: ref[MarkedRequest]
    serving: OpenRequest
    outer: RequestEntry | None


entered_request = ContextVar[RequestEntry | None]("jaxmon.request", default=None)


entered = entered_request.get
"""Returns something if this context is that of a request, in progress or not; in C."""


def serving() -> OpenRequest | None:
    """Return the request in progress in this context, if any."""
    entry = entered_request.get()
    return entry.serving if entry is not None and entry.serving.in_progress() else None


def mark_cold() -> None:
    """Mark the request in progress in this context, if any, as cold."""
    if (entry := entered_request.get()) is not None:
        entry.serving.cold = True


_MANY = 64


class Work:
    """
    What one thread or task works for: *requests* taken already, or *named* by the
    program. *root* is its work outside this batch; `compiled` is the end of its latest
    compile.
    """

    __slots__ = ("compiled", "fresh", "named", "owner", "passed_on", "requests", "root")

    def __init__(
        self,
        owner: tuple[int, int],
        requests: Iterable[OpenRequest] = (),
        *,
        named: bool = False,
        root: Work | None = None,
    ) -> None:
        self.owner = owner
        self.requests = list(requests)
        self.named = named
        self.root = self if root is None else root
        self.compiled: End = []
        # Taken since it last passed something on, which that is likely made of.
        self.fresh: list[OpenRequest] = []
        self.passed_on = False

    def __len__(self) -> int:
        return len(self.requests)

    def take(self, requests: Iterable[OpenRequest], since: float) -> None:
        """Work for *requests* as well, whose item has waited *since* then."""
        if self.passed_on:
            self.fresh, self.passed_on = [], False
        if len(self.requests) >= _MANY:
            self.requests = [request for request in self.requests if request]
        for request in requests:
            self.requests.append(request)
            self.fresh.append(request)
            self.delay(request, since)

    def delay(self, request: OpenRequest, since: float) -> None:
        """Mark *request* as delayed if this has finished a compile *since* then."""
        ended = self.root.compiled
        if ended and ended[0] > since:
            request.delayed = True

    def pass_on(self) -> list[OpenRequest]:
        """Return the requests that something put by this thread or task is for."""
        self.passed_on = True
        self.fresh = [request for request in self.fresh if request]
        return self.fresh

    def compile(self, end: End) -> None:
        """Note a compile until *end*."""
        self.root.compiled = end
        for request in self.requests:
            if self.named:
                request.cold = True
            elif request:
                request.await_compile(end)


_work: ContextVar[Work | None] = ContextVar("jaxmon.work", default=None)


current = _work.get
"""Returns the work of this context, its own or inherited, or `None`; in C."""


def of_this_task(*, inherited: bool = False) -> Work:
    """Return the work of this thread or task, *inherited* from what started it."""
    work, owner = _work.get(), here()
    if work is None or (work.owner != owner and not inherited):
        work = Work(owner)
        _work.set(work)
    elif work.named:
        # A batch named by a call, without a block: it lasts until the next is taken.
        work = work.root
        _work.set(work)
    return work


def enter(work: Work | None) -> None:
    """Make *work* that of this context."""
    if _work.get() is not work:
        _work.set(work)


def enter_submitted(
    requests: list[OpenRequest], since: float, submitter: Work | None
) -> None:
    """Work on a pool's thread, as *submitter*, for what has waited *since* then."""
    from_batch = submitter is not None and submitter.requests
    named = not from_batch or (submitter is not None and submitter.named)
    root = None if submitter is None else submitter.root
    _work.set(Work(here(), requests, named=named, root=root))
    figures = recorder()
    if figures is not None and figures.compiles.compiled_here(since):
        for request in requests:
            request.delayed = True


def named(requests: Iterable[OpenRequest]) -> Work:
    """Work for *requests* alone until the next batch; return the work."""
    root = of_this_task()
    work = Work(
        root.owner, [request for request in requests if request], named=True, root=root
    )
    for request in work.requests:
        work.delay(request, request.started)
    _work.set(work)
    return work


def carried() -> list[OpenRequest]:
    """Return the requests that what this context passes on is for."""
    work, mine = _work.get(), serving()
    if work is not None and work.requests:
        found = list(work.requests) if work.named else work.pass_on()
        if found:
            return [request for request in found if request]
    return [] if mine is None else [mine]


def payers() -> list[OpenRequest]:
    """Return the requests on whose behalf this context would compile now, each once."""
    mine, work = serving(), _work.get()
    if mine is None and (work is None or not work.requests):
        return []
    waiting = () if work is None else filter(None, work.requests)
    return list(dict.fromkeys([*([mine] if mine is not None else []), *waiting]))


def compile_begins(compiles: CompileLog, began: float, end: End) -> None:
    """Note that this context compiles since *began*, until *end*."""
    compiles.begin(began, end)
    mark_cold()
    work = _work.get()
    if work is None:
        work = of_this_task()
    work.compile(end)
