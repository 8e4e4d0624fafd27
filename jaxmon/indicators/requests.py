"""Requests: count, latency, outcome, cold starts."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from types import TracebackType
from weakref import ref

from jaxmon.indicators.decorate import F, decorated
from jaxmon.indicators.open_request import OpenRequest
from jaxmon.indicators.recorder import recorder, report
from jaxmon.indicators.tracing import Origin


class _Entry:
    """
    An entered block: by which object, for which request, and within which other block
    of that request. The object ends the request when it is no longer referenced, so it
    is not referenced here.
    """

    # Set from outside: an `__init__` would cost each request a call.
    __slots__ = ("by", "outer", "serving")

    by: ref[Request]
    serving: OpenRequest
    outer: _Entry | None


_entered: ContextVar[_Entry | None] = ContextVar("jaxmon.request", default=None)


class Request:
    """A context manager, also with ``async with``, and a decorator. See `request`."""

    __slots__ = ("__weakref__", "_last", "_route")

    origin: Origin | None = None

    def __init__(self, route: str) -> None:
        self._route = route
        self._last: _Entry | None = None

    def __enter__(self) -> OpenRequest:
        outer = _entered.get()
        if outer is not None and outer.serving.in_progress():
            ours = outer.serving
        else:
            # One that has ended is forgotten: this runs in a task that it started,
            # which may start a task in its turn, and so on.
            ours, outer = OpenRequest(self._route, recorder(), self), None
        try:
            entry = _Entry()
            entry.by, entry.serving, entry.outer = ref(self), ours, outer
            self._last = entry
            _entered.set(entry)
            if ours.trace is not None and outer is None:
                ours.trace.enter()
        except BaseException:  # the program's: the block is not entered
            if outer is None:
                ours.drop()
            raise
        return ours

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entry: _Entry | None = self._last
        try:
            inner = _entered.get()
            if inner is not None and inner.by() is self:
                entry = inner
                _entered.set(entry.outer)
                if entry.serving.trace is not None and entry.outer is None:
                    entry.serving.trace.leave()
            # Otherwise a generator that is closed late, in a different context.
            self._last = None
            if entry is None or entry.outer is not None:
                return
            entry.serving.end(error)
        except BaseException:  # the program's: the block is left all the same
            if entry is not None and entry.outer is None:
                entry.serving.drop()
            raise
        if error is not None:
            report(error)

    async def __aenter__(self) -> OpenRequest:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: F) -> F:
        """Return *function*, each call of which is a request."""
        return decorated(function, partial(Request, self._route), step=_Step)


class ServedRequest(Request):
    """
    A request of a server.

    Args:
        route: as for `request`.
        origin: what the server knows of it; `None` without traces.
    """

    __slots__ = ("origin",)

    def __init__(self, route: str, origin: Origin | None) -> None:
        super().__init__(route)
        self.origin = origin

    def __call__(self, function: F) -> F:
        """Return *function*, one call of which is this request."""
        make = partial(ServedRequest, self._route, self.origin)
        return decorated(function, make, step=_Step)


class _Step:
    """
    Entered for each step of a generator: the blocks entered in the generator, which
    are not those of its consumer.

    Frameworks advance a generator from varying threads, each time in a copy of some
    context, which has nothing that an earlier step entered.
    """

    __slots__ = ("_asking", "_inside", "_set")

    _set: _Entry | None

    def __init__(self) -> None:
        self._inside: _Entry | None = None

    def enter(self) -> None:
        """Enter what an earlier step has left open."""
        asking = self._asking = _entered.get()
        # Of a request that has ended a step can be no part: it is of the one around it.
        inside = self._inside
        if inside is not None and inside.serving.in_progress():
            self._set = inside
            _entered.set(inside)
            if inside.serving.trace is not None:
                inside.serving.trace.enter()
        else:
            self._set = asking

    def leave(self) -> None:
        """Take note of what is open, and give back what was there before."""
        entry = _entered.get()
        if entry is not self._set:
            self._inside = entry
        if entry is not self._asking:
            _entered.set(self._asking)
            if entry is not None and entry.serving.trace is not None:
                entry.serving.trace.leave()


def request(route: str) -> Request:
    """
    Mark a request: ``with``, ``async with``, or a decorator.

    A request is *cold* when a compile happened on its behalf: in its block, and in
    threads and tasks to which its context was copied, in what it submitted to a thread
    pool, and in a batch that has its item: one that it put into an `asyncio.Queue` or
    `queue.Queue`, or one that names it (`jaxmon.batch`). Loading from the persistent
    cache counts as well. A request is *delayed* when it waited for a compile that was
    not on its behalf: in the queue of what compiled, in the event loop that it held, or
    for a program that another request compiled. An exception makes it an ``error``;
    cancellation (not an `Exception`) a ``client_error``. Nested requests are not
    counted separately. For a decorated generator function, a request lasts until the
    generator is exhausted; what happens in its steps is on its behalf, whichever thread
    or task runs them; what happens between them is not.

    Costs a few microseconds, next to nothing without an agent. Never raises.

    Args:
        route: the kind of request: a template such as ``"/predict/{model}"``, never a
            path with its parameters. At most ``max_functions`` are distinguished.

    Example:
        >>> import jaxmon
        >>> with jaxmon.request("predict"):
        ...     answer = 6 * 7
        >>> @jaxmon.request("predict")
        ... async def predict(x):
        ...     return x
    """
    return Request(route)


entered = _entered.get
"""Returns something if this context is that of a request, in progress or not; in C."""


def serving() -> OpenRequest | None:
    """Return the request in progress in this context, if any."""
    entry = _entered.get()
    if entry is not None and entry.serving.in_progress():
        return entry.serving
    return None


def mark_cold() -> None:
    """Mark the request in progress in this context, if any, as cold."""
    if (entry := _entered.get()) is not None:
        entry.serving.cold = True
