"""A request in progress, until it ends and is counted."""

from __future__ import annotations

from functools import partial
from typing import Protocol
from weakref import ref

from jaxmon.indicators.endings import End, now
from jaxmon.indicators.recorder import Recorder, recorder
from jaxmon.indicators.routes import Outcome, Route, Start
from jaxmon.indicators.tracing import Origin, RequestTrace
from jaxmon.threads import get_ident


SITE = "requests"

_MOST_NOTES = 1000


class Note(Protocol):
    """An item that is in a queue on behalf of requests."""

    def drop(self, request: OpenRequest) -> bool:
        """Note that *request* has ended; return whether it is still there."""
        ...


class Holder(Protocol):
    """What ends a request when it is no longer referenced."""

    origin: Origin | None


class OpenRequest:
    """
    A request in progress: what ``with jaxmon.request(...)`` returns.

    Attributes:
        outcome: outcome, if the program knows better than the default (error on an
            exception): ``"success"``, ``"client_error"`` or ``"error"``.
        said: how a server responded, such as ``status 503``; set if it failed.
        cold: whether a compile happened on its behalf.
        delayed: whether it waited in a queue for what was compiling.
        home: the thread that it began on.
        notes: items that are in queues on its behalf.
        started: when it began, on the performance counter.
        trace: its span, if traces are on.
    """

    __slots__ = (
        "_compiles",
        "_ended",
        "_indicators",
        "_route",
        "cold",
        "delayed",
        "home",
        "notes",
        "outcome",
        "said",
        "started",
        "trace",
    )

    said: str

    def __init__(self, route: str, indicators: Recorder | None, holder: Holder) -> None:
        self.outcome: Outcome | None = None
        self.cold = self.delayed = False
        self.home = get_ident()
        self.notes: dict[Note, None] | None = None
        self._compiles: list[End] | None = None
        self._ended = False
        self._indicators = indicators
        self._route: Route | None = None
        self.trace: RequestTrace | None = None
        self.started = now()
        if indicators is not None and indicators.guard.on(SITE):
            try:
                found = indicators.routes.of(str(route))
                drop = partial(found.serving.pop, self)
                found.serving[self] = ref(holder, drop)
                self._route = found
                if indicators.tracer is not None:
                    # After the route, whose first request may have enabled it.
                    self.trace = indicators.tracer.request(
                        found.name, holder.origin, self.started
                    )
            except Exception:  # noqa: BLE001 - contained: the request goes on
                indicators.guard.failed(SITE, theirs=True)

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
        """
        Finish and count the request, as leaving the block does. Only the first call
        counts.
        """
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
            self._count(route, outcome, ended, error)
        except Exception:  # noqa: BLE001 - contained: the program goes on
            if self._indicators is not None:
                self._indicators.guard.failed(SITE)

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
        """
        Note a compile until *end* that may be on its behalf: it is, unless the request
        ends before.
        """
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
        self, route: Route, outcome: Outcome, ended: float, error: BaseException | None
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
        if outcome == "error" and indicators is not None:
            # Not set beforehand, which would cost each request that succeeds.
            said: str = getattr(self, "said", "")
            route.failures.add(error, said, indicators.place_of)

    def _drop_notes(self) -> bool:
        """Drop the items that are in queues; return whether there was any."""
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
