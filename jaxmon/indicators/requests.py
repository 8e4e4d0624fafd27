"""Requests: count, latency, outcome, cold starts."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import ref

from jaxmon import catalog
from jaxmon.indicators.decorate import F, decorated
from jaxmon.indicators.endings import End, now
from jaxmon.indicators.recorder import (
    CARRIED,
    RequestOrigin,
    RequestTrace,
    recorder,
    report,
)
from jaxmon.indicators.routes import Outcome, RequestRoute, Start
from jaxmon.indicators.work import RequestEntry, entered_request
from jaxmon.threads import get_ident


if TYPE_CHECKING:
    from jaxmon.indicators.figures import Indicators


SITE = "requests"

_MOST_NOTES = 1000


class Note(Protocol):
    """An item that is in a queue on behalf of requests."""

    def drop(self, request: OpenRequest) -> bool:
        """Note that *request* has ended; return whether it is still there."""


class OpenRequest:
    """
    A request in progress: what ``with jaxmon.request(...)`` returns.

    Attributes:
        outcome: outcome, if the program knows better than the default (error on an
            exception): ``"success"``, ``"client_error"`` or ``"error"``. Set to that
            while an exception is handled, as by a framework that responds with a 500,
            the request fails by the exception.
        error: that exception, `None` if there is none.
        response: how a server responded, such as ``status 503``; set if it failed.
        cold: whether a compile happened on its behalf.
        delayed: whether it waited in a queue for what was compiling.
        home: the thread that it began on.
        left: whether its caller had left before the response began; set if known.
        tenant: whose request it is, if the program says so: counted by tenant as well,
            the first 20 of a process by name, and others as ``"other"``.
        notes: items that are in queues on its behalf.
        started: when it began, on the performance counter.
        trace: its span, if traces are on.
    """

    __slots__ = (
        *("_around", "_compiles", "_ended", "_indicators", "_outcome", "_route"),
        *("cold", "delayed", "error", "home", "left", "notes", "response", "started"),
        "trace",
    )

    error: Exception | None
    left: bool
    response: str

    def __init__(
        self, route: str, indicators: Indicators | None, holder: MarkedRequest
    ) -> None:
        self._outcome: Outcome | None = None
        self.error = None
        # What is handled around the request is not its own.
        self._around = id(sys.exception())
        self.cold = self.delayed = False
        self.home = get_ident()
        self.notes: dict[Note, None] | None = None
        self._compiles: list[End] | None = None
        self._ended = False
        self._indicators = indicators
        self._route: RequestRoute | None = None
        self.trace: RequestTrace | None = None
        self.started = now() - holder.waited
        if indicators is not None and indicators.guard.on(SITE):
            try:
                found = indicators.routes.of(str(route))
                found.serving[self] = ref(holder, partial(found.serving.pop, self))
                self._route = found
                if indicators.tracer is not None:
                    # After the route, whose first request may have enabled it.
                    self.trace = indicators.tracer.request(
                        found.name, holder.origin, self.started
                    )
            except Exception:  # noqa: BLE001 - contained: the request goes on
                indicators.guard.failed(SITE, theirs=True)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, as far as that is known."""
        return self._outcome

    @outcome.setter
    def outcome(self, outcome: Outcome | None) -> None:
        self._outcome = outcome
        if outcome == "error":
            error = sys.exception()
            if isinstance(error, Exception) and id(error) != self._around:
                self.error = error

    def in_progress(self) -> bool:
        """Return whether it is in progress and recorded."""
        # Not an agent that is gone, nor the parent's in a forked child.
        route = self._route
        return (
            route is not None
            and self in route.serving
            and self._indicators is recorder()
        )

    __bool__ = in_progress

    def end(self, error: BaseException | None = None) -> None:
        """Count the request, as leaving the block does. Only the first call counts."""
        ended = now()
        # Not whether it is being served: the garbage collector drops what holds the
        # request of a generator in a cycle before it has that leave its block.
        route = self._route
        if self._ended or route is None or self._indicators is not recorder():
            return
        self._ended = True
        route.serving.pop(self, None)
        try:
            outcome = self.outcome or ("success" if error is None else _outcome(error))
            if outcome == "error" and error is None:
                error = self.error
            self._count(route, outcome, ended, error)
        except Exception:  # noqa: BLE001 - contained: the program goes on
            if self._indicators is not None:
                self._indicators.guard.failed(SITE)
        finally:
            # Their frames refer to this.
            self.error = error = None

    def respond(self, status: int) -> None:
        """Note the *status* of HTTP. A 503 by a probe says only: not ready."""
        self.outcome, route = http_outcome(status), self._route
        if status == _UNAVAILABLE and route and catalog.is_probe(route.name):
            self.outcome = "client_error"
        elif self.outcome == "error":
            self.response = f"status {status}"

    @property
    def tenant(self) -> str:
        """Whose request it is, ``""`` if nothing says so, or nothing records it."""
        return self._route.tenant if self._route is not None else ""

    @tenant.setter
    def tenant(self, name: str) -> None:
        route, indicators = self._route, self._indicators
        if route is None or indicators is None or not indicators.guard.on(SITE):
            return
        try:
            self._route = indicators.routes.of_tenant(route, str(name))
        except Exception:  # noqa: BLE001 - contained: the request goes on
            indicators.guard.failed(SITE, theirs=True)

    def describe(self) -> None:
        """Say on its span, if it has one, how it is about to end."""
        if self.trace is None or self._ended:
            return
        outcome = self.outcome or "success"
        paid = self.cold or (self._compiles and self._awaited(outcome, now()))
        self.trace.describe(
            outcome, "cold" if paid else "delayed" if self.delayed else "warm"
        )

    def await_compile(self, end: End) -> None:
        """Note a compile until *end* that is on its behalf unless it ends before."""
        if self._compiles is None:
            self._compiles = []
        self._compiles.append(end)

    def carry(self, note: Note) -> bool:
        """Keep *note* until the request ends; return whether there is room for it."""
        if self.notes is None:
            self.notes = {}
        if len(self.notes) < _MOST_NOTES:
            self.notes[note] = None
            return not self._ended
        return False

    def _count(
        self,
        route: RequestRoute,
        outcome: Outcome,
        ended: float,
        error: BaseException | None,
    ) -> None:
        seconds, indicators = ended - self.started, self._indicators
        waits = self._drop_notes() if self.notes else False
        start: Start = "warm"
        if self.cold or (self._compiles and self._awaited(outcome, ended)):
            start = "cold"
        elif self.delayed:
            start = "delayed"
        elif indicators is None or indicators.compiles.quiet_since(self.started):
            route.usual.append(seconds)
        elif waits or indicators.compiles.delayed(
            self.home, self.started, ended, list(route.usual)
        ):
            start = "delayed"
        ids = None
        if self.trace is not None:
            ids = self.trace.end(ended, outcome, start, error)
        route.count(seconds, outcome, start, ids)
        if outcome == "client_error" and getattr(self, "left", False):
            route.leave()
        if outcome == "error" and indicators is not None:
            # Not set beforehand, which would cost each request that succeeds.
            response: str = getattr(self, "response", "")
            of = indicators.place_of, indicators.message_of
            route.failures.add(error, response, *of)

    def _drop_notes(self) -> bool:
        notes, self.notes = self.notes, None
        waits = False
        for note in notes or ():
            waits |= note.drop(self)
        return waits

    def _awaited(self, outcome: Outcome, ended: float) -> bool:
        # One that gave up, or failed, may have done so while it waited.
        return outcome != "success" or any(
            end and end[0] <= ended for end in self._compiles or ()
        )

    def drop(self) -> None:
        """Discard the request without counting it."""
        self._ended = True
        self._drop_notes()
        if self._route is not None:
            self._route.serving.pop(self, None)


def _outcome(error: BaseException) -> Outcome:
    return "error" if isinstance(error, Exception) else "client_error"


class MarkedRequest:
    """A context manager, also with ``async with``, and a decorator. See `request`."""

    __slots__ = ("__weakref__", "_last", "_route")

    origin: RequestOrigin | None = None
    waited = 0.0
    """Seconds that it had waited before it began, if they are known and many."""

    def __init__(self, route: str) -> None:
        self._route = route
        self._last: RequestEntry | None = None

    def __enter__(self) -> OpenRequest:
        outer = entered_request.get()
        if outer is not None and outer.serving.in_progress() and not _replaced(outer):
            ours = outer.serving
        else:
            # One that has ended is forgotten: this runs in a task that it started,
            # which may start a task in its turn, and so on.
            ours, outer = OpenRequest(self._route, recorder(), self), None
        try:
            entry = RequestEntry()
            entry.by, entry.serving, entry.outer = ref(self), ours, outer
            self._last = entry
            entered_request.set(entry)
            if ours.trace is not None and outer is None:
                ours.trace.enter()
        except BaseException:  # the program's: the block is not entered
            if outer is None:
                ours.drop()
            raise
        return ours

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        entry: RequestEntry | None = self._last
        try:
            inner = entered_request.get()
            if inner is not None and inner.by() is self:
                entry = inner
                entered_request.set(entry.outer)
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

    async def __aexit__(self, *raised: Any) -> None:  # noqa: PYI036 - passed on
        self.__exit__(*raised)

    def __call__(self, function: F) -> F:
        """Return *function*, each call of which is a request."""
        return decorated(function, partial(MarkedRequest, self._route), step=_Step)


class ServedRequest(MarkedRequest):
    """A request of a server, which knows its *origin*, `None` without traces."""

    __slots__ = ("origin", "waited")

    def __init__(
        self, route: str, origin: RequestOrigin | None, waited: float = 0.0
    ) -> None:
        super().__init__(route)
        self.origin, self.waited = origin, waited

    def __call__(self, function: F) -> F:
        """Return *function*, one call of which is this request."""
        make = partial(ServedRequest, self._route, self.origin)
        return decorated(function, make, step=_Step)


class RecognisedRequest(ServedRequest):
    """
    A request that jaxmon recognised, not marked by the program; one that is marked
    within it takes its place, after which `replaced` is set.
    """

    __slots__ = ()

    replaced: ClassVar[bool] = False


def _replaced(outer: RequestEntry) -> bool:
    if not isinstance(outer.by(), RecognisedRequest):
        return False
    RecognisedRequest.replaced = True
    outer.serving.drop()
    return True


class _Step:
    """
    Entered for each step of a generator: the blocks entered in the generator, which are
    not those of its consumer. Frameworks advance it from varying threads, each time in
    a copy of some context, without what an earlier step entered.
    """

    __slots__ = ("_asking", "_inside", "_set")

    _set: RequestEntry | None

    def __init__(self) -> None:
        self._inside: RequestEntry | None = None

    def enter(self) -> None:
        """Enter what an earlier step has left open."""
        asking = self._asking = entered_request.get()
        # Of a request that has ended a step can be no part: it is of the one around it.
        inside = self._inside
        if inside is not None and inside.serving.in_progress():
            self._set = inside
            entered_request.set(inside)
            if inside.serving.trace is not None:
                inside.serving.trace.enter()
        else:
            self._set = asking

    def leave(self) -> None:
        """Take note of what is open, and give back what was there before."""
        entry = entered_request.get()
        if entry is not self._set:
            self._inside = entry
        if entry is not self._asking:
            entered_request.set(self._asking)
            if entry is not None and entry.serving.trace is not None:
                entry.serving.trace.leave()


def request(route: str) -> MarkedRequest:
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
    return MarkedRequest(route)


SERVER_ERROR = 500
"""The lowest status of HTTP that is the server's fault."""

_CLIENT_ERROR, _UNAVAILABLE = 400, 503


def origin_of(
    route: str, system: str, method: str, headers: Iterable[tuple[str, str]]
) -> RequestOrigin | None:
    """
    Return the origin of a request to *route*, whose first may turn traces on; `None`
    without traces. Of *headers*, with names in lower case, none is read then.
    """
    indicators = recorder()
    if indicators is None:
        return None
    if indicators.tracer is None:
        if indicators.routes.any():
            return None
        indicators.routes.of(route)
        if indicators.tracer is None:
            return None
    carried = {name: value for name, value in headers if name in CARRIED}
    return RequestOrigin(system, method, carried)


def http_status(status: object) -> int:
    """Return the number in *status*, as applications give it; 0 without one."""
    if isinstance(status, bytes):
        status = status.decode("latin-1")
    if isinstance(status, str):
        status = status[:3]
        return int(status) if status.isascii() and status.isdigit() else 0
    return int(status) if isinstance(status, int) else 0


def http_outcome(status: int) -> Outcome:
    """Return the outcome of a request that is responded to with *status*."""
    if status >= SERVER_ERROR:
        return "error"
    return "client_error" if status >= _CLIENT_ERROR else "success"
