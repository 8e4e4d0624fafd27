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

from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from jaxmon.indicators.compile_log import CompileLog, here
from jaxmon.indicators.endings import End
from jaxmon.indicators.recorder import recorder


if TYPE_CHECKING:
    from weakref import ref

    from jaxmon.indicators.requests import MarkedRequest, OpenRequest


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
    if entry is not None and entry.serving.in_progress():
        return entry.serving
    return None


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

    __slots__ = (
        "compiled",
        "fresh",
        "named",
        "owner",
        "passed_on",
        "requests",
        "root",
    )

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
    """
    Return the work of this thread or task; *inherited* if it takes something for the
    task that started it.
    """
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
    waiting = [] if work is None else [request for request in work.requests if request]
    return list(dict.fromkeys([*([mine] if mine is not None else []), *waiting]))


def compile_begins(compiles: CompileLog, began: float, end: End) -> None:
    """Note that this context compiles since *began*, until *end*."""
    compiles.begin(began, end)
    mark_cold()
    work = _work.get()
    if work is None:
        work = of_this_task()
    work.compile(end)
