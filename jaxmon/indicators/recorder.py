"""
What markers write to: the metrics of the agent that runs, and what makes the spans of
requests and steps. Knows no OpenTelemetry. Label values that users choose are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from jaxmon.exposition.families import SpanIds
from jaxmon.indicators.endings import End
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.indicators.figures import Indicators


OTHER = "other"

T = TypeVar("T")


class Labels:
    """Admits the first *limit* values; the rest share ``other``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._admitted: set[str] = set()
        # Reentrant, as all locks of this package: a signal handler or the garbage
        # collector may end a request, a step or an activity while we hold one.
        self._lock = RLock()
        self.overflow = 0

    def admit(self, value: str) -> str:
        """Return *value*, or ``other`` if the limit is reached, which is counted."""
        if value in self._admitted or value == OTHER:
            return value
        with self._lock:
            if value in self._admitted:
                return value
            if len(self._admitted) >= self._limit:
                self.overflow += 1
                return OTHER
            self._admitted.add(value)
            return value


class ByLabel(Generic[T]):
    """
    What is kept for each of *labels*, made by *make* at first use; `on_new` are called
    then, and may raise.
    """

    def __init__(self, labels: Labels, make: Callable[[str], T]) -> None:
        self.labels = labels
        self.on_new: list[Callable[[], object]] = []
        self.kept: dict[str, T] = {}
        self._make = make

    def __iter__(self) -> Iterator[T]:
        return iter(list(self.kept.values()))

    def of(self, name: str) -> T:
        """Return what is kept for *name*, or for ``other``. Thread-safe."""
        found = self.kept.get(name)
        if found is not None:
            return found
        name = self.labels.admit(name)
        if (found := self.kept.get(name)) is None:
            found = self.kept.setdefault(name, self._make(name))
            for notify in list(self.on_new):
                notify()
        return found


class RequestOrigin:
    """
    What a server knows of a request, for its span: *system* is ``"http"``, ``"grpc"``,
    or ``"function"`` for an event that is an HTTP request; *headers* carry the context
    of a trace, names in lower case; of gRPC, the status is a name.
    """

    def __init__(self, system: str, method: str, headers: Mapping[str, str]) -> None:
        self.system = system
        self.method = method
        self.headers = headers
        self.status: int | str | None = None


class RequestTrace(Protocol):
    """The span of one request. No method raises."""

    def enter(self) -> None:
        """Make the span current in this context."""

    def leave(self) -> None:
        """Make current what was current before."""

    def describe(self, outcome: str, start: str) -> None:
        """Say on the span how the request is about to end."""

    def profiled(self, profile: str) -> SpanIds | None:
        """Say on the span that a *profile* has the request; return its ids."""

    def end(
        self, ended: float, outcome: str, start: str, error: BaseException | None
    ) -> SpanIds | None:
        """End the span at *ended*; return its ids if its trace is kept."""


class LoopTrace(Protocol):
    """The spans of the steps of one run of a loop. No method raises."""

    def finish(self, arrived: float, ended: float) -> SpanIds | None:
        """End the step whose data *arrived* then; return its span's ids if kept."""

    def leave(self, left: float, error: BaseException | None) -> None:
        """Note that no data arrived for the step: *error* if its source raised."""


class RequestTracer(Protocol):
    """Makes spans."""

    def request(
        self, route: str, origin: RequestOrigin | None, started: float
    ) -> RequestTrace | None:
        """Return the span of a request, `None` if not recorded. Raises nothing."""

    def loop(self, name: str, began: float, end: End) -> LoopTrace | None:
        """Return the spans of a run that *began* then, until *end*. Raises nothing."""


CARRIED = ("traceparent", "tracestate")
"""Headers of W3C Trace Context; baggage is the application's."""


class FailureGuard(Protocol):
    """Contains failures of our own code."""

    def on(self, site: str) -> bool:
        """Return whether *site* is enabled."""

    def failed(
        self, site: str, *, stays_on: bool = False, theirs: bool = False
    ) -> None:
        """
        Record the exception being handled at *site*, which it may disable unless it
        *stays_on*. Raises the program's; *theirs*: its code was called on purpose.
        """


class _Current:
    recorder: Indicators | None = None


current = _Current()
"""Where markers that run often read it, without a call."""


def recorder() -> Indicators | None:
    """Return the current recorder."""
    return current.recorder


def report(error: BaseException) -> None:
    """Report an exception that propagated from marked code."""
    if current.recorder is not None:
        current.recorder.on_error(error)


def attach(figures: Indicators) -> None:
    """Make *figures* the recorder."""
    before, current.recorder = current.recorder, figures
    if before is not None:
        before.loops.attend()


def detach(figures: Indicators) -> None:
    """Stop recording if *figures* is the recorder."""
    if current.recorder is figures:
        current.recorder = None
        figures.loops.attend()
