"""Request alerts: requests that hang, wait for compiles, or are slow when they do."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.artifacts import events
from jaxmon.artifacts.alerts.model import DEPLOY_NOISE, Alert
from jaxmon.artifacts.slo.severity import PAGE, TICKET
from jaxmon.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, counter, eq, gauge, histogram, ne


_ROUTE = ("job", "route")
# Fewer are chance.
_CALLERS = 5


def requests_hang(limits: Limits) -> Iterator[Alert]:
    """
    Yield a page for a route that answers no one, and a ticket if it is not known to
    have ever answered: callers end a stream themselves, and may end nothing else.
    """
    after = limits.hang_after
    answered = events.REQUESTS.within(after, ne("outcome", "client_error"))
    silent_for = gauge(catalog.REQUEST_OLDEST_SECONDS).max(*_ROUTE)
    waiting = (silent_for > durations.seconds(after)).unless(_some(answered))
    given_up = _given_up(limits).unless(waiting)
    ever = _some(counter(catalog.REQUESTS, eq("outcome", "success")).total())
    for severity, expr in (
        (PAGE, waiting.or_(given_up.and_(ever))),
        (TICKET, given_up.unless(ever)),
    ):
        yield Alert(
            name="JaxmonRequestsHang",
            expr=expr,
            for_=durations.text(durations.seconds(after) / 5),
            severity=severity,
            description=(
                "Requests come in and none is answered: they are in progress, or their "
                "callers give up."
            ),
            summary=(
                "Route {{ $labels.route }} of job {{ $labels.job }} answers no "
                "request; callers have waited for {{ $value | humanizeDuration }}."
            ),
        )


def _given_up(limits: Limits) -> Expr:
    """Return the mean time after which callers gave up, where no one was answered."""
    # As many callers as it takes, also where they are few.
    window = durations.text(2 * durations.seconds(limits.hang_after))
    gone = eq("outcome", "client_error")
    answered = events.REQUESTS.within(window, ne("outcome", "client_error"))
    number, seconds = (
        one.within(window, gone).sum(*_ROUTE)
        for one in (events.REQUESTS, events.REQUEST_SECONDS)
    )
    mean = (seconds / (number > 0)).of_unit("seconds")
    patient = mean > durations.seconds(limits.cancelled_after)
    return patient.and_(number >= _CALLERS).unless(_some(answered))


def _some(requests: Expr) -> Expr:
    return requests.sum(*_ROUTE) > 0


def cold_starts(limits: Limits) -> Alert:
    """Alert on requests that wait for compiles."""
    window, by = limits.cold_window, ("job", "route")
    cold = events.REQUESTS.within(window, ne("start", "warm")).sum(*by)
    every = events.REQUESTS.within(window).sum(*by)
    share = promql.ratio(cold, every) > limits.cold_share
    return Alert(
        name="JaxmonColdStarts",
        expr=share.and_(cold > limits.cold_requests),
        severity=TICKET,
        description="Many requests are waiting for compiles.",
        summary=(
            "{{ $value | humanizePercentage }} of requests to route "
            "{{ $labels.route }} of job {{ $labels.job }} waited for a compile in the "
            f"last {window}."
        ),
        labels=DEPLOY_NOISE,
    )


def cold_latency(limits: Limits) -> Alert:
    """Alert on requests that wait long for a compile."""
    window = limits.cold_window
    cold = histogram(
        catalog.REQUEST_SECONDS,
        eq("start", "cold"),
        eq("outcome", "success"),
        rare=True,
    )
    slow = cold.quantile(0.95, *_ROUTE, window=window)
    enough = cold.observed(window, *_ROUTE) >= limits.cold_requests
    return Alert(
        name="JaxmonColdLatency",
        expr=(slow > durations.seconds(limits.cold_latency)).and_(enough),
        severity=TICKET,
        description="Requests that wait for a compile wait too long.",
        summary=(
            "5 % of the cold requests to route {{ $labels.route }} of job "
            "{{ $labels.job }} took longer than {{ $value | humanizeDuration }} in the "
            f"last {window}."
        ),
        labels=DEPLOY_NOISE,
    )
