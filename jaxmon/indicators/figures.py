"""The metrics recorded by application markers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jaxmon.exposition.families import Family
from jaxmon.indicators.loops import Loops
from jaxmon.indicators.recorder import FailureGuard, RequestTracer
from jaxmon.indicators.routes import Routes
from jaxmon.indicators.timeline import Timeline
from jaxmon.indicators.work import CompileLog


if TYPE_CHECKING:
    from jaxmon.facts import marked
    from jaxmon.indicators.batches import BatchFill
    from jaxmon.indicators.invocations import Invocations
    from jaxmon.indicators.queues import QueueDepths
    from jaxmon.indicators.values import Values

T = TypeVar("T")

_QUEUES = "jaxmon.indicators.queues"


class FirstUse(Generic[T]):
    """
    An attribute that is made when it is first read, of which all threads get the same:
    statistics of a marker, whose module the program has loaded by using it.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> T:
        made: T = vars(instance).setdefault(self._name, self._make(instance))
        return made


class Indicators:
    """
    The application metrics of one agent, at most *limit* values of each label that the
    program chooses; *on_error* is called for each exception that leaves a request, an
    activity or the source of a loop, and must not raise.

    `on_logged` is called when the program logs values and no part reads them yet;
    `checks` returns the part that records checks of determinism, `place_of` the line
    that an exception came from, `message_of` its message; `flush` pushes within so many
    seconds. A `serverless` process is frozen between requests; `tracer` makes their
    spans.
    """

    def __init__(
        self,
        limit: int,
        guard: FailureGuard,
        *,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.routes = Routes(limit)
        self.loops = Loops(limit)
        self.timeline = Timeline(limit)
        self.compiles = CompileLog()
        self.tracer: RequestTracer | None = None
        self._limit = limit
        self.on_logged: Callable[[], object] = bool
        self.checks: Callable[[], Any] = lambda: None
        self.flush: Callable[[float], bool] = bool
        self.serverless = False
        self.guard = guard
        self.on_error = on_error
        self.place_of: Callable[[BaseException], str] = lambda _: ""
        self.message_of: Callable[[BaseException], str] = lambda _: ""

    @FirstUse
    def batches(self) -> BatchFill:
        """How full batches are."""
        from jaxmon.indicators.batches import BatchFill  # noqa: PLC0415 - see `FirstUse`

        return BatchFill(self.routes.labels)

    @FirstUse
    def queues(self) -> QueueDepths:
        """How many items wait in queues."""
        from jaxmon.indicators.queues import QueueDepths  # noqa: PLC0415 - likewise

        return QueueDepths(self._limit, self.guard)

    @FirstUse
    def logged(self) -> Values:
        """What the program logs."""
        from jaxmon.indicators.values import Values  # noqa: PLC0415 - likewise

        return Values(self._limit, self.on_logged)

    @FirstUse
    def invocations(self) -> Invocations:
        """Invocations of serverless functions."""
        from jaxmon.indicators.invocations import Invocations  # noqa: PLC0415 - likewise

        return Invocations()

    def _used(self, name: str) -> Any:
        if name == "queues" and _QUEUES in sys.modules:
            return self.queues  # of functions, too, which are only read
        return vars(self).get(name)

    def collect(self) -> list[Family]:
        """Return all application metrics. Thread-safe."""
        return [
            *self.routes.collect(),
            *self.loops.collect(),
            *self.timeline.collect(),
            *(
                family
                for name in ("batches", "queues", "logged", "invocations")
                if (used := self._used(name)) is not None
                for family in used.collect()
            ),
        ]

    def explain_queues(self) -> tuple[marked.QueueFacts, ...]:
        """Return the queues."""
        used: QueueDepths | None = self._used("queues")
        return () if used is None else used.explain()

    def explain_requests(self) -> tuple[marked.RouteFacts, ...]:
        """Return requests and batches, by route."""
        from jaxmon.facts import marked  # noqa: PLC0415 - on request

        used: BatchFill | None = self._used("batches")
        fills = {} if used is None else used.explain()
        found = [
            route.explain().replace(batches=fills.pop(route.name, marked.Batches()))
            for route in self.routes
        ]
        rest = [
            marked.RouteFacts(name=name, batches=fill) for name, fill in fills.items()
        ]
        return (*found, *rest)

    def overflow(self) -> dict[str, int]:
        """Return how often a value exceeded the limit, by label."""
        labels = {
            "route": self.routes.labels,
            "loop": self.loops.labels,
            "item": self.loops.item_labels,
            "activity": self.timeline.labels,
        }
        used = {"queue": self._used("queues"), "name": self._used("logged")}
        return {
            **{name: admitted.overflow for name, admitted in labels.items()},
            **{n: 0 if of is None else of.labels.overflow for n, of in used.items()},
        }
