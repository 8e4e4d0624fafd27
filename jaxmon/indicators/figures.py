"""The metrics recorded by application markers."""

from __future__ import annotations

from collections.abc import Callable

from jaxmon.exposition.families import Family
from jaxmon.facts import marked
from jaxmon.indicators.batches import BatchFill
from jaxmon.indicators.compile_log import CompileLog
from jaxmon.indicators.invocations import Invocations
from jaxmon.indicators.loops import Loops
from jaxmon.indicators.queues import QueueDepths
from jaxmon.indicators.recorder import FailureGuard
from jaxmon.indicators.routes import Routes
from jaxmon.indicators.timeline import Timeline
from jaxmon.indicators.tracing import RequestTracer
from jaxmon.indicators.values import Values


class Indicators:
    """
    The application metrics of one agent.

    Args:
        limit: maximum number of values of each label that the program chooses.
        guard: contains our failures.
        on_error: called for each exception that leaves a request, an activity or the
            source of a loop; must not raise.

    Attributes:
        flush: pushes what is measured, within so many seconds.
        place_of: returns the line of the program that an exception came from.
        serverless: whether the process is frozen between requests.
        tracer: makes the spans of requests, if traces are on.
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
        self.batches = BatchFill(self.routes.labels)
        self.queues = QueueDepths(limit, guard)
        self.logged = Values(limit)
        self.invocations = Invocations()
        self.flush: Callable[[float], bool] = bool
        self.serverless = False
        self.guard = guard
        self.on_error = on_error
        self.place_of: Callable[[BaseException], str] = _unknown

    def collect(self) -> list[Family]:
        """Return all application metrics. Thread-safe."""
        return [
            *self.routes.collect(),
            *self.loops.collect(),
            *self.timeline.collect(),
            *self.batches.collect(),
            *self.queues.collect(),
            *self.logged.collect(),
            *self.invocations.collect(),
        ]

    def explain_requests(self) -> tuple[marked.RouteFacts, ...]:
        """Return requests and batches, by route."""
        fills = self.batches.explain()
        found = [
            route.explain().replace(batches=fills.pop(route.name, marked.Batches()))
            for route in self.routes
        ]
        rest = [
            marked.RouteFacts(name=name, batches=one) for name, one in fills.items()
        ]
        return (*found, *rest)

    def overflow(self) -> dict[str, int]:
        """Return how often a value exceeded the limit, by label."""
        labels = {
            "route": self.routes.labels,
            "loop": self.loops.labels,
            "item": self.loops.item_labels,
            "activity": self.timeline.labels,
            "queue": self.queues.labels,
            "name": self.logged.labels,
        }
        return {name: one.overflow for name, one in labels.items()}


def _unknown(error: BaseException) -> str:
    del error
    return ""
