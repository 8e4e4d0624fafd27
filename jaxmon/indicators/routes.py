"""Request statistics, by route."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

from jaxmon import catalog, interrupts
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import (
    Family,
    Histogram,
    SpanIds,
    Tally,
    histograms,
    series,
)
from jaxmon.indicators.endings import now
from jaxmon.indicators.recorder import ByLabel, Labels
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.facts import marked
    from jaxmon.facts.marked import Failure
    from jaxmon.indicators.requests import OpenRequest


_MOST = 20
_LONGEST = 200
_AGAIN = 10.0
_MINUTE, _LATELY, _TEN_MINUTES = 60.0, 120.0, 600.0
_MOST_TURNS, _ENOUGH, _BETWEEN_TURNS = 200, 20, 0.05
# Kernel: struct tcp_info until after tcpi_last_data_recv, milliseconds; its first byte
# is the state: closed, or closed by the peer.
_TCP_INFO, _LEFT = (6, 11, 56), frozenset((7, 8))
LONG_TURN = 1.0
"""Seconds from which a wait before a request is a part of its latency."""

PlaceOf = Callable[[BaseException], str]
"""Returns the line of the program that an exception came from, ``""`` if unknown."""

MessageOf = Callable[[BaseException], str]
"""Returns the first line of an exception's message, as far as it may be shown."""


class Failures:
    """Failed requests of a route by exception and line: the first twenty kinds."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], tuple[int, float, str]] = {}
        self._read: dict[tuple[str, str], float] = {}
        self._lock = RLock()

    def add(
        self,
        error: BaseException | None,
        response: str,
        place_of: PlaceOf,
        message_of: MessageOf,
    ) -> None:
        """Count a request that failed with *error*, or with a *response*."""
        kind = response if error is None else type(error).__name__
        if error is not None and response:
            kind += f" ({response})"
        key = (kind[:_LONGEST], "" if error is None else place_of(error)[:_LONGEST])
        if key not in self._counts and len(self._counts) >= _MOST:
            return
        text, time = None, wall_time()
        if error is not None and not 0 <= time - self._read.get(key, 0.0) < _AGAIN:
            self._read[key] = time
            text = message_of(error)[:_LONGEST]
        with self._lock:
            count, _, before = self._counts.get(key, (0, 0.0, ""))
            self._counts[key] = count + 1, time, before if text is None else text

    def explain(self) -> tuple[Failure, ...]:
        """Return the kinds, the latest first."""
        from jaxmon.facts.marked import Failure  # noqa: PLC0415 - on request

        with self._lock:
            found = list(self._counts.copy().items())
        found.sort(key=lambda item: -item[1][1])
        return tuple(
            [Failure(*key, count, at, text) for key, (count, at, text) in found]
        )


Outcome = Literal["success", "client_error", "error"]
Start = Literal["cold", "delayed", "warm"]

_LATEST = 32


class RequestRoute:
    """
    The metrics of one route. Its counters are exported from its first request on, a
    histogram from the first request that ends that way: there are nine of fifteen
    series each, of which most routes need two or three.

    `serving` has its requests in progress, in the order of their beginning; `counts`
    and `seconds` are by outcome and start; `usual` are those that the latest took while
    nothing compiled; `left` counts callers who did before the response began, and
    `leaves` are when the latest of them did.
    """

    tenant = ""

    def __init__(self, name: str) -> None:
        self.name = name
        # With what ends each of them when it is no longer referenced. Set and removed
        # in single steps, so that no interruption leaves one behind.
        self.serving: dict[OpenRequest, ref[Any]] = {}
        self.counts = dict.fromkeys(
            product(catalog.REQUEST_OUTCOMES, catalog.STARTS), 0
        )
        self.series = {
            kind: series(catalog.REQUESTS, name, *kind) for kind in self.counts
        }
        self.seconds: dict[tuple[str, str], Histogram] = {}
        self.failures, self.left = Failures(), Tally()
        self.usual: deque[float] = deque(maxlen=_LATEST)
        self.leaves: deque[float] = deque(maxlen=_LATEST)
        self._lock = RLock()

    def count(
        self, seconds: float, outcome: Outcome, start: Start, ids: SpanIds | None = None
    ) -> None:
        """Count a finished request, and keep the *ids* of its span as an exemplar."""
        kind = (outcome, start)
        with self._lock:
            self.counts[kind] += 1
        latency = self.seconds.get(kind) or self.seconds.setdefault(
            kind, Histogram(catalog.REQUEST_SECONDS, self.name, *kind)
        )
        latency.observe(seconds, ids)

    def leave(self) -> None:
        """Count a caller who has left before the response began."""
        self.left.add()
        self.leaves.append(now())

    def left_lately(self) -> int:
        """Return how many did in ten minutes, 32 at most; 0 if none in the last two."""
        moment, leaves = now(), list(self.leaves)
        if not leaves or moment - leaves[-1] > _LATELY:
            return 0
        return sum(moment - at <= _TEN_MINUTES for at in leaves)

    @property
    def of_all(self) -> RequestRoute:
        """The route, for requests of all tenants."""
        return self

    def oldest(self) -> float:
        """Return the age of the oldest request in progress, in seconds; 0 if none."""
        # A copy, in one step of C: requests begin and end on other threads meanwhile.
        serving = list(self.serving)
        return max(now() - serving[0].started, 0.0) if serving else 0.0

    def explain(self) -> marked.RouteFacts:
        """Return the requests so far, by outcome and start."""
        from jaxmon.facts import marked  # noqa: PLC0415 - on request

        return marked.RouteFacts(
            name=self.name,
            in_progress=len(self.serving),
            oldest_seconds=self.oldest(),
            queued=sum(bool(request.notes) for request in list(self.serving)),
            left=self.left.value,
            left_lately=self.left_lately(),
            failures=self.failures.explain(),
            finished=tuple(
                marked.Finished(
                    outcome=outcome,
                    start=start,
                    count=count,
                    mean_seconds=latency.mean,
                    p50_seconds=latency.quantile(0.5),
                    p95_seconds=latency.quantile(0.95),
                    p99_seconds=latency.quantile(0.99),
                )
                for (outcome, start), count in self.counts.copy().items()
                if (latency := self.seconds.get((outcome, start))) is not None
            ),
        )


_MOST_TENANTS = 20


class Tenant:
    """The metrics of one tenant: of all routes together, since there may be many."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = dict.fromkeys(catalog.REQUEST_OUTCOMES, 0)
        self.seconds = Histogram(catalog.TENANT_REQUEST_SECONDS, name)
        self._lock = RLock()

    def count(self, seconds: float, outcome: Outcome) -> None:
        """Count a finished request."""
        with self._lock:
            self.counts[outcome] += 1
        if outcome == "success":
            self.seconds.observe(seconds)


class TenantRoute(RequestRoute):
    """A route, for a request of a tenant, which counts for both."""

    def __init__(self, route: RequestRoute, tenant: Tenant) -> None:
        self._route, self._tenant, self.tenant = route.of_all, tenant, tenant.name
        self.name, self.serving, self.usual = route.name, route.serving, route.usual
        self.failures, self.left = route.failures, route.left
        self.leaves = route.leaves

    @property
    def of_all(self) -> RequestRoute:
        """The route itself."""
        return self._route

    def count(
        self, seconds: float, outcome: Outcome, start: Start, ids: SpanIds | None = None
    ) -> None:
        """Count a finished request of the route, and of the tenant."""
        self._route.count(seconds, outcome, start, ids)
        self._tenant.count(seconds, outcome)


def arrival(receive: object) -> tuple[float, bool] | None:
    """
    Return how many seconds ago the kernel got the last data of a request, and whether
    its caller has left: uvicorn's *receive* knows the connection. `None` if that is
    unknown. Linux only; takes a microsecond or two.
    """
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if transport is None or sys.platform != "linux":
        return None
    with interrupts.expected(OSError, AttributeError):  # no TCP, or closed
        info = transport.get_extra_info("socket").getsockopt(*_TCP_INFO)
        return int.from_bytes(info[-4:], sys.byteorder) / 1e3, info[0] in _LEFT
    return None


class RequestTurns:
    """How long requests that had come waited before they began: some of the latest."""

    def __init__(self) -> None:
        self._due = 0.0
        self._latest: deque[tuple[float, float]] = deque(maxlen=_MOST_TURNS)

    def note(self, receive: object) -> float:
        """
        Note how long a request that begins has waited, and return that if it is long,
        else 0: 20 times a second at most, but of each one after a long wait.
        """
        began = now()
        if began < self._due:
            return 0.0
        self._due = began + _BETWEEN_TURNS
        waited, _ = arrival(receive) or (None, False)
        if waited is None:
            return 0.0
        self._latest.append((began, waited))
        if waited < LONG_TURN:
            return 0.0
        self._due = began
        return waited

    def lately(self) -> tuple[int, float]:
        """
        Return of how many it is known in the last minute, and the mean; of the latest
        twenty in ten minutes, if those are fewer.
        """
        since, latest = now() - _MINUTE, list(self._latest)
        waits = [waited for began, waited in latest if began >= since]
        if len(waits) < _ENOUGH:
            since += _MINUTE - _TEN_MINUTES
            waits = [waited for at, waited in latest[-_ENOUGH:] if at >= since]
        return len(waits), sum(waits) / max(len(waits), 1)


class Routes(ByLabel[RequestRoute]):
    """Routes by label, at most *limit*."""

    def __init__(self, limit: int) -> None:
        super().__init__(Labels(limit), RequestRoute)
        self.turns = RequestTurns()
        self._tenants = ByLabel(Labels(_MOST_TENANTS), Tenant)

    def of_tenant(self, route: RequestRoute, name: str) -> RequestRoute:
        """Return *route* as it counts a request of the tenant called *name*."""
        return TenantRoute(route, self._tenants.of(name))

    def in_progress(self) -> list[tuple[str, OpenRequest]]:
        """Return the requests in progress, each with its route."""
        return [(route.name, entry) for route in self for entry in [*route.serving]]

    def oldest(self) -> dict[str, OpenRequest]:
        """Return the oldest request in progress of each route that has one."""
        return {of.name: serving[0] for of in self if (serving := list(of.serving))}

    def any(self) -> bool:
        """Return whether there has been a request."""
        return bool(self.kept)

    def collect(self) -> list[Family]:
        """Return the families of requests."""
        routes, tenants = list(self), list(self._tenants)
        running, oldest = catalog.REQUESTS_IN_PROGRESS, catalog.REQUEST_OLDEST_SECONDS
        counted: list[tuple[str, float]] = [
            (series(catalog.TENANT_REQUESTS, tenant.name, outcome), count)
            for tenant in tenants
            for outcome, count in tenant.counts.items()
        ]
        return [
            histograms(catalog.TENANT_REQUEST_SECONDS, [t.seconds for t in tenants]),
            Family(catalog.TENANT_REQUESTS, counted),
            histograms(
                catalog.REQUEST_SECONDS,
                [seconds for route in routes for seconds in [*route.seconds.values()]],
            ),
            Family(
                catalog.REQUESTS,
                [
                    (route.series[kind], value)
                    for route in routes
                    for kind, value in route.counts.items()
                ],
            ),
            Family(
                running, [(series(running, r.name), len(r.serving)) for r in routes]
            ),
            Family(oldest, [(series(oldest, r.name), r.oldest()) for r in routes]),
        ]
