"""Requests that fail, hang, wait for compiles, or are slow."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.facts.marked import Failure, RouteFacts
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import MINUTE, HostFacts
from jaxmon.facts.status import Reason, RequestSummary
from jaxmon.facts.walltime import Hanging, from_place
from jaxmon.host.formats import durations
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import (
    ago,
    clean,
    counted,
    duration,
    estimate,
    share,
    times,
)
from jaxmon.limits import Limits
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import (
    DEPLOY_NOISE,
    PAGE,
    TICKET,
    Alert,
    Severity,
    SiteLimits,
)
from jaxmon.symptoms.reason import (
    doing,
    due,
    findings,
    period,
    processes,
    reason,
    sentence,
    verdicts,
)
from jaxmon.symptoms.recompiles import most_recompiled
from jaxmon.symptoms.starts import cold_requests
from jaxmon.symptoms.symptom import (
    BUDGET,
    FAILURE,
    NO_SCREEN,
    TIME,
    Finding,
    Symptom,
    quoted,
)


REQUESTS = (
    "The program's log has the tracebacks, also if a web framework turned an exception "
    "into a 500. Responses that a program raises, such as HTTPException, have none."
)
FAILED = "JaxmonRequestErrorBudgetBurn"
"""The alert of the objective on requests that fail."""
_MOST_LINES, _MOST_FAILURES = 5, 3
# Of as many that should fail, or wait, one does, but once in twenty times.
_SOME = 3
_COMPUTES = frozenset(("compile", "device", "fetch", "transfer"))
# For how long requests must hang, as a part of the age of the oldest.
_HANGS_FOR = 0.2


def _many_fail(failed: float, every: float, limits: Limits) -> Severity | None:
    """Return how bad it is that *failed* of *every* request did, `None` if not."""
    if failed < limits.failed_requests or failed <= limits.budget_share * every:
        return None
    return PAGE if failed > limits.failed_share * every else TICKET


def _failed_requests(snapshot: Snapshot) -> Iterator[Finding]:
    for route in snapshot.requests:
        every = sum(part.count for part in route.finished)
        failed = sum(part.count for part in route.finished if part.outcome == "error")
        if _many_fail(failed, every, snapshot.limits) != PAGE:
            continue
        finding = (
            f"{counted(failed, 'request')} to {route.name} failed, "
            f"{share(failed, every)} of {every:,}."
        )
        now = snapshot.process.now
        latest = (
            f"JAX's latest error, in {event.function}, {quoted(event, now)}"
            for event in snapshot.of_kind("error")[-1:]
        )
        most = sorted(route.failures, key=lambda failure: -failure.count)
        yield Finding(
            "requests",
            route.name,
            finding,
            (*(_failure(failure, now) for failure in most[:_MOST_FAILURES]), *latest),
            REQUESTS,
            where=most[0].where if most else "",
        )


def _failure(failure: Failure, now: float) -> str:
    what = failure.error or "no exception, and no status"
    what += f', "{failure.message}",' if failure.message else ""
    place = f" at {failure.where}" if failure.where else ""
    return (
        f"{what}{place}: {times(failure.count)}, the latest {ago(now - failure.latest)}"
    )


def routes(facts: HostFacts) -> Iterator[Reason]:
    """Yield of each route the first that is so: it fails, hangs, waits, is slow."""
    running = {agent.worker for agent in facts.agents if agent.up}
    for route in facts.requests:
        # What ended processes counted is not about those that respond now.
        inherited = any(map(facts.now.inherited, route.workers))
        inherited = inherited or not running.issuperset(route.workers)
        lately, limits = facts.requests_lately[route.route], facts.limits
        found = (
            _failing(route, lately, limits)
            or (None if inherited else _failed(route, limits))
            or _lost_callers(route, facts)
            or _left(route, facts)
            or _stuck(route, limits)
            or (_waiting(route, lately, limits) if route.cold_ratio else None)
            or _slow(route, limits)
            or _waiting(route, lately, limits)
        )
        if found is not None:
            yield found


def _failing(
    minute: RequestSummary, lately: RequestSummary, limits: Limits
) -> Reason | None:
    """Judge by the last minute or, as few fail in one, by the last ten."""
    if not minute.recent:
        return None
    for route in (minute, lately):
        failed, finished = route.recent_failed or 0.0, route.recent or 0.0
        severity = _many_fail(failed, finished, limits)
        if severity is None and route is minute and failed == finished:
            severity = TICKET
        # Enough succeed again, of which some would fail otherwise.
        over = not minute.recent_failed and minute.recent * failed >= _SOME * finished
        if severity and not over:
            text = (
                f"{failed:,.0f} of {counted(finished, 'request')} to "
                f"{clean(route.route)} failed in the last "
                f"{period(route.recent_seconds)}."
            )
            return _of_route("requests", severity, text, route)
    return None


def _failed(route: RequestSummary, limits: Limits) -> Reason | None:
    """Judge by all that was counted, where no request came in the last minute."""
    finished = route.recent
    severity = _many_fail(route.failed, route.total, limits)
    # Those in progress have come, however the earlier ones ended.
    if finished or severity is None or (finished is not None and route.in_progress):
        return None
    text = (
        f"{route.failed:,.0f} of {counted(route.total, 'request')} to "
        f"{clean(route.route)} failed"
    )
    if finished is None:
        return _of_route("requests", severity, f"{text} since the start.", route)
    text = f"{text}; none has finished in the last {period(route.recent_seconds)}."
    return _of_route("requests", TICKET, text, route)


def _of_route(
    name: str, severity: Severity, text: str, route: RequestSummary
) -> Reason:
    return reason(name, severity, text, route.workers, route.route)


def _why_failed(facts: HostFacts, about: Reason) -> Iterator[str]:
    """
    Yield that memory ran out on the line of most failures, which JAX's class of
    exception does not say; else what requests failed with, and other errors. If none
    has failed in the last minute, callers left: what kept the event loop is first.
    """
    lately = {route.route: route for route in facts.requests}.get(about.subject)
    if lately is not None and lately.recent_failed == 0:
        yield from verdicts(facts, about, "event_loop")
    for process in processes(facts, about):
        of = {finding.topic: finding for finding in process.findings or ()}
        if "oom" in of and "requests" in of:
            where, first = of["oom"].where, of["requests"].evidence[:1]
            if where and first and f" at {where}:" in first[0]:
                yield sentence(of["oom"])
    failures = (finding.evidence[:1] for finding in findings(facts, about, "requests"))
    yield from (f"{first}." for evidence in failures for first in evidence)
    yield from verdicts(facts, about, "oom", "error")


def _hangs(oldest: float, usual: float, limits: Limits) -> bool:
    late = seconds_in(limits.late_request)
    return oldest >= max(late, limits.late_request_times * usual)


def _hanging(snapshot: Snapshot) -> Iterator[Finding]:
    where = {hangs.name: hangs for hangs in snapshot.time.requests}
    limits = snapshot.limits
    for route in snapshot.requests:
        usual, oldest = _usual(route, limits), route.oldest_seconds
        hangs = where.get(route.name, Hanging())
        if usual is not None and _hangs(oldest, usual, limits):
            compared = f"95 % of warm requests take up to {estimate(usual)}"
        elif not _answered(route) and oldest >= seconds_in(limits.unanswered_after):
            # A first call may compile, or compute, for long.
            if snapshot.compiling.count or hangs.state in _COMPUTES:
                continue
            compared = "none to it has succeeded yet"
        else:
            continue
        place = hangs.place or "".join(hangs.stack[:1]).partition(" in ")[0]
        yield Finding(
            "hanging",
            route.name,
            f"A request to {route.name} has been in progress for {duration(oldest)}"
            + (f", now at {place}" if place else "")
            + f"; {compared}.",
            (*queued(route), *from_place(hangs.stack, place)[:_MOST_LINES]),
            "The stack shows what it waits for: a lock that another thread holds, a "
            "file, a socket, the device. "
            * bool(hangs.stack)
            + "`jaxmon explain --stacks` shows all threads.",
            where=place,
        )


def queued(route: RouteFacts) -> Iterator[str]:
    """Yield how many requests in progress have an item in a queue, if some do."""
    if route.queued:
        number = f"of {counted(route.in_progress, 'request')} in progress"
        yield f"{number}, {route.queued:,} with an item that waits in a queue"


def _why_hanging(facts: HostFacts, about: Reason) -> Iterator[str]:
    """Yield what has failed; where it hangs, as it does is what is to be explained."""
    yield from verdicts(facts, about, "thread_failed")
    places = [of for of in findings(facts, about, "hanging") if of.where]
    yield from map(sentence, places)
    yield from verdicts(facts, about, "stalled")
    yield from doing(facts, about)


def _answered(route: RouteFacts) -> bool:
    """Return whether a request succeeded or failed by the fault of the program."""
    outcomes = {part.outcome for part in route.finished if part.count}
    return bool(outcomes - {recorded.GIVEN_UP})


def _usual(route: RouteFacts, limits: Limits) -> float | None:
    kind, least = ("success", "warm"), limits.requests_judged
    warm = (part for part in route.finished if (part.outcome, part.start) == kind)
    return next((part.p95_seconds for part in warm if part.count >= least), None)


def _stuck(route: RequestSummary, limits: Limits) -> Reason | None:
    oldest, waiting = route.oldest, route.in_progress
    # Of a process that has just started, what it did until they began to hang.
    warm, few = route.warm, limits.requests_judged
    usual = route.usual_p95 if route.usual_count >= few else None
    usual = usual or (warm.p95 if warm is not None and warm.count >= few else None)
    if oldest is None or not waiting:
        return None
    described = f"{counted(waiting, 'request')} in progress, the oldest for"
    late = max(
        seconds_in(limits.unanswered_after), limits.unanswered_times * (usual or 0.0)
    )
    # What the client did wrong is no answer, as for the alert.
    refused = route.recent_client_errors or 0.0
    if (route.recent or 0.0) <= refused and oldest >= late:
        last = period(route.recent_seconds)
        lead = f"no request to {clean(route.route)} has finished in the last {last}"
        lead += f", but for {counted(refused, 'client error')}" * bool(refused)
        text = f"{lead}: {described} {duration(oldest)}"
        after = seconds_in(limits.hang_after) * (1 + _HANGS_FOR)
        severity, text = due(text, oldest, after, PAGE)
        return _of_route("hanging", severity, text, route)
    if usual and _hangs(oldest, usual, limits):
        text = (
            f"requests to {clean(route.route)} hang: {described} {duration(oldest)}; "
            f"95 % of warm requests take up to {estimate(usual)}."
        )
        return _of_route("hanging", TICKET, text, route)
    return None


def _lost_callers(route: RequestSummary, facts: HostFacts) -> Reason | None:
    """Judge callers who waited and left as failed requests, as the objective does."""
    limits, lately = facts.limits, facts.requests_lately[route.route]
    took = facts.took(route.route)
    left = took.get(recorded.GIVEN_UP)
    if left is None or len(took) == 1 or not (waited := left.above(limits.left_after)):
        return None
    finished = (lately.recent or 0.0) - left.observed + waited
    severity = _many_fail((lately.recent_failed or 0.0) + waited, finished, limits)
    if severity is None:
        return None
    text = (
        f"{waited:,.0f} callers of {clean(route.route)} had no response after "
        f"{limits.left_after:g} s, and left, in the last "
        f"{period(lately.recent_seconds)}."
    )
    return _of_route("requests", severity, text, route)


def _left(route: RequestSummary, facts: HostFacts) -> Reason | None:
    """Judge whether callers give up on a route that answers none, as the alert."""
    limits, took = facts.limits, facts.took(route.route)
    found = took.get(recorded.GIVEN_UP)
    if (
        found is None
        or len(took) > 1
        or found.observed < limits.cancelled_requests
        or not (found.mean or 0.0) > seconds_in(limits.cancelled_after)
    ):
        return None
    text = (
        f"no request to {clean(route.route)} is answered: {found.observed:,.0f} "
        f"callers gave up, within {duration(found.mean or 0.0)} on average."
    )
    ever = route.total > route.failed + route.client_errors
    return _of_route("hanging", PAGE if ever else TICKET, text, route)


def _requests_hang(limits: SiteLimits) -> Iterator[Alert]:
    """
    Yield a page for a route that answers no one, and a ticket if it is not known to
    have ever answered: callers end a stream themselves, and may end nothing else.
    """
    after = limits.hang_after
    waiting = recorded.unanswered(after, limits) > seconds_in(after)
    # As many callers as it takes, also where they are few.
    window = durations.text(2 * seconds_in(limits.hang_after))
    number, mean = recorded.given_up(window)
    patient = mean > seconds_in(limits.cancelled_after)
    given_up = patient.and_(number >= limits.cancelled_requests)
    ever = recorded.succeeded() > 0
    # Callers who waited and left may have cost the budget enough before.
    paged = recorded.budget_paged(FAILED, limits)
    for severity, expr in (
        (PAGE, waiting.or_(given_up.and_(ever).unless(paged))),
        (TICKET, given_up.unless(waiting).unless(ever)),
    ):
        yield Alert(
            expr=expr,
            for_=durations.text(seconds_in(after) * _HANGS_FOR),
            severity=severity,
            description=(
                "Requests come in and none is answered, by any process or by several: "
                "they are in progress, or their callers give up."
            ),
            summary=(
                "Route {{ $labels.route }} of job {{ $labels.job }}, or some of its "
                "processes, answers no request; requests stay open for "
                "{{ $value | humanizeDuration }}."
            ),
        )


def _waiting(
    minute: RequestSummary, route: RequestSummary, limits: Limits
) -> Reason | None:
    """Judge by the last ten minutes of *route*, unless that is over in the last one."""
    part, cold = route.cold_ratio, route.cold
    if part is None or cold is None or route.cold_total <= limits.cold_requests:
        return None
    # As many as come in the window of the alert, at this pace.
    pace = part * (route.recent or 0.0) / max(route.recent_seconds or 0.0, MINUTE)
    if pace * seconds_in(limits.cold_window) <= limits.cold_requests:
        return None
    if part <= limits.cold_share or cold.p95 is None:
        return None
    # As many came and waited for none, of which some would have.
    if not minute.cold_ratio and (minute.recent or 0.0) * part >= _SOME:
        return None
    text = (
        f"{share(part, 1)} of the requests to {clean(route.route)} in the last "
        f"{period(route.recent_seconds)} waited for a compile, and took up to "
        f"{estimate(cold.p95)}."
    )
    return _of_route("cold_requests", TICKET, text, route)


def _why_waiting(facts: HostFacts, about: Reason) -> Iterator[str]:
    compiles = ("recompile", "recompiles", "operations", "compiled_together")
    yield from verdicts(facts, about, *compiles, "cold_requests", "compile_share")
    yield from most_recompiled(facts, about.workers)


def _cold_starts(limits: Limits) -> Alert:
    window = limits.cold_window
    cold = recorded.cold_requests(window)
    share = promql.ratio(cold, recorded.requests(window)) > limits.cold_share
    return Alert(
        expr=share.and_(cold > limits.cold_requests),
        summary=(
            "{{ $value | humanizePercentage }} of requests to route "
            "{{ $labels.route }} of job {{ $labels.job }} waited for a compile in the "
            f"last {window}."
        ),
        labels=DEPLOY_NOISE,
    )


def _cold_latency(limits: Limits) -> Alert:
    window = limits.cold_window
    p95, number = recorded.cold_latency(window)
    slow = p95 > seconds_in(limits.cold_latency)
    return Alert(
        expr=slow.and_(number >= limits.cold_requests),
        summary=(
            "5 % of the cold requests to route {{ $labels.route }} of job "
            "{{ $labels.job }} took longer than {{ $value | humanizeDuration }} in the "
            f"last {window}."
        ),
        labels=DEPLOY_NOISE,
    )


def _slow(route: RequestSummary, limits: Limits) -> Reason | None:
    # Quantiles are estimates: by a bound between two buckets, they may seem to double.
    warm = route.warm
    if warm is None or warm.count < limits.requests_judged:
        return None
    # What has been slow for long is a part of the usual p95 before it is of the median.
    for part, now, usual in (
        ("95 % take", warm.p95, route.usual_p95),
        ("half of them take", warm.p50, route.usual_p50),
    ):
        by = limits.slow_requests_by
        if usual and now and now >= max(limits.slow_requests * usual, usual + by):
            text = (
                f"warm requests to {clean(route.route)} are slow: {part} up to "
                f"{estimate(now)}, before {estimate(usual)}."
            )
            return _of_route("requests_slow", TICKET, text, route)
    return None


_COLD, _WARM = "JaxmonColdStartBudgetBurn", "JaxmonWarmLatencyBudgetBurn"
SYMPTOMS = (
    Symptom(
        *("requests", "F4", "Requests of a route fail.", FAILURE),
        *(_failed_requests, catalog.REQUESTS, "On-call: Requests by outcome"),
        reason=routes,
        because=_why_failed,
        rule=(FAILED, None),
    ),
    Symptom(
        *("hanging", "F8", "Requests of a route do not finish.", FAILURE),
        finding=_hanging,
        metric=catalog.REQUEST_OLDEST_SECONDS,
        panel="On-call: Oldest request in progress",
        reason=routes,
        # What is usual may be known to the process only.
        severity=TICKET,
        because=_why_hanging,
        rule=("JaxmonRequestsHang", _requests_hang),
    ),
    Symptom(
        *("cold_requests", "F1", "Many requests are waiting for compiles.", TIME),
        *(cold_requests, catalog.REQUESTS, "On-call: Cold request ratio"),
        rule=(_COLD, _cold_starts),
        reason=routes,
        because=_why_waiting,
    ),
    Symptom(
        *("cold_latency", "F1", "Requests that wait for a compile wait too long."),
        rule=(_COLD, _cold_latency),
        missing=NO_SCREEN,
    ),
    Symptom(
        *("requests_slow", "F7", "Requests are slower than before."),
        metric=catalog.REQUEST_SECONDS,
        panel="On-call: Latency of requests",
        other_runbook=_WARM,
        reason=routes,
        because=doing,
        missing=f"{_WARM} says it if they are too slow",
    ),
    Symptom(
        *("cold_start_budget", "F1", "Too many requests wait for compiles."),
        rule=(_COLD, None),
        missing=BUDGET,
    ),
    Symptom(
        *("warm_latency_budget", "F7", "Requests are too slow."),
        rule=(_WARM, None),
        missing=BUDGET,
    ),
)
