"""Monitoring itself: what stops reporting, does not arrive, or has not seen enough."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import Reason
from jaxmon.facts.walltime import ENOUGH_LOOKS, SHORT_SECONDS
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration
from jaxmon.limits import Limits
from jaxmon.promql import Expr, alerts, counter, eq, events, gauge, gauge_over
from jaxmon.symptoms import recorded, starts
from jaxmon.symptoms.alert import (
    AN_INSTANCE,
    COUNT,
    INFO,
    MONITORING_ALERT,
    PAGE,
    PROCESS,
    TICKET,
    Alert,
    SiteLimits,
)
from jaxmon.symptoms.reason import listed, period, processes, reason
from jaxmon.symptoms.symptom import (
    HINT,
    NO_SCREEN,
    NOTHING,
    RULES_ONLY,
    Finding,
    Symptom,
)


_REASON = (
    "The program's log has the reason under `opentelemetry.exporter`. Check that a "
    "receiver runs at OTEL_EXPORTER_OTLP_ENDPOINT, and that its port is for "
    "OTEL_EXPORTER_OTLP_PROTOCOL: usually 4317 for gRPC, 4318 for HTTP"
)


def _target_down(limits: SiteLimits) -> Alert:
    # Prometheus may scrape more than jaxmon: only jobs that had its metrics count.
    ours = gauge(catalog.BUILD_INFO).max("job")
    ours = ours.record(
        *("job", catalog.BUILD_INFO, "ours"), "Jobs that have jaxmon's metrics."
    )
    return Alert(
        expr=promql.up().equals(0).and_(ours.latest(limits.duration("1d")), "job"),
        for_=limits.target_down_for,
        summary=(
            "Target {{ $labels.instance }} of job {{ $labels.job }} does not "
            "respond; there are no metrics or alerts for it."
        ),
    )


def _vanished(window: str) -> Expr:
    metric = catalog.REQUESTS_IN_PROGRESS
    served = events.REQUESTS.within(window).sum("job") > 0
    serving = gauge_over(metric, "last", window).max("job") > 0
    silent = served.or_(serving).unless(gauge(metric).max("job"))
    return silent.record(
        *("job", metric, f"gone{window}"),
        f"Services with requests within {window}, of which no process reports any now.",
    )


def _unserved(window: str, traffic: str) -> Expr:
    """
    Return services with requests in their last minutes within *window*, of whose routes
    no service in the same place reports one any more.
    """
    metric = catalog.REQUESTS_IN_PROGRESS
    absent = gauge_over(metric, "last", window).max(*recorded.ROUTE)
    absent = absent.unless(gauge(metric).max(*recorded.ROUTE), promql.PLACE, "route")
    busy = recorded.traffic_of(traffic).latest(window) > 0
    found = absent.max("job").and_(busy, "job")
    return found.record(
        *("job", metric, f"unserved{window}"),
        f"Services with requests in their last {traffic}, of which a route has "
        "none to serve it any more.",
    )


def _service_vanished(limits: SiteLimits) -> Iterator[Alert]:
    """
    Yield a page if a service has disappeared, unless it has no targets left and had no
    requests, or others have its routes: then it was removed on purpose.
    """
    name, hour = "JaxmonServiceVanished", limits.duration("1h")
    # A process that started within the hour may have had no request yet.
    vanished = _vanished(hour).unless(starts.young(hour, limits))
    # Its requests went on until it was gone, and no other service has its routes.
    unserved = _unserved(hour, limits.vanished_for)
    # The processes of a host that died are looked for in vain until they are evicted:
    # that is not a removal, so a page stays a page.
    page = (
        eq("alertname", name),
        eq("alertstate", "firing"),
        eq("severity", limits.page),
    )
    expected = promql.up().max("job").or_(alerts(*page).max("job"))
    expected = expected.record(
        *("job", catalog.REQUESTS_IN_PROGRESS, "expected"),
        "Jobs with targets, and those for which a page already fires.",
    )
    # Alerts on its objectives stop with its metrics.
    yield Alert(
        expr=vanished.and_(expected.or_(unserved)),
        for_=limits.vanished_for,
        severity=PAGE,
        summary=(
            "Job {{ $labels.job }} served requests within the last hour, and now none "
            "of its processes is reporting, so errors and latency are not visible."
        ),
    )


def _traffic_stopped(limits: SiteLimits) -> Alert:
    window, alert = limits.traffic_window, "JaxmonServiceVanished"
    traffic = recorded.traffic_of(window)
    before = traffic.offset(limits.traffic_before) > limits.traffic
    idle = gauge(catalog.REQUESTS_IN_PROGRESS).max("job").equals(0)
    stopped = traffic.equals(0).and_(idle)
    stopped = stopped.record(
        *("job", catalog.REQUESTS, f"none{window}"),
        f"Services without a request within {window}, and none in progress.",
    )
    firing = (
        *(eq("alertname", alert), eq("symptom", "traffic_stopped")),
        eq("alertstate", "firing"),
    )
    return Alert(
        # Until requests come again.
        expr=stopped.and_(before.or_(alerts(*firing).max("job"))),
        for_=limits.vanished_for,
        severity=PAGE,
        summary=(
            "Job {{ $labels.job }} got many requests, and now has got none for more "
            f"than {window}: they no longer reach it, or no one asks."
        ),
    )


def _watchdog(_: Limits) -> Alert:
    return Alert(
        expr=promql.call("vector", promql.number(1)).labelled("job", "prometheus"),
        severity=INFO,
        summary="Rules yield {{ $value }}, and alerts reach Alertmanager.",
    )


def _collector_down(limits: SiteLimits) -> Alert:
    by = ("job", "instance", "collector")
    # A host without a GPU has a collector that never worked: that is no failure. Nor is
    # that a job has ended, and its NCCL with it.
    lasting = promql.ne("collector", "nccl")
    worked = gauge_over(
        catalog.COLLECTOR_SUCCESS, "max", limits.duration("1d"), lasting
    ).max(*by)
    works = gauge(catalog.COLLECTOR_SUCCESS, lasting).max(*by)
    return Alert(
        expr=works.equals(0).and_(worked.equals(1)),
        for_=limits.collector_down_for,
        summary=(
            "Collector {{ $labels.collector }} of {{ $labels.instance }} worked "
            "within the last day but is failing now; its metrics are missing."
        ),
    )


def _web_config_failed(limits: Limits) -> Alert:
    return Alert(
        expr=gauge(catalog.WEB_CONFIG_SUCCESS).max("job", "instance").equals(0),
        for_=limits.web_config_failed_for,
        summary=(
            "The latest web configuration or certificates of "
            "{{ $labels.instance }} are invalid. The previous ones stay in "
            "effect, but the sidecar will fail to restart."
        ),
    )


def silent(facts: HostFacts) -> Iterator[Reason]:
    """Yield processes that do not respond."""
    found = [agent.worker for agent in facts.agents if not agent.up and not agent.died]
    if found:
        does = "do" if len(found) > 1 else "does"
        text = f"{listed('worker', found)} {does} not respond."
        yield reason("silent", TICKET, text, found)


def _why_silent(facts: HostFacts, about: Reason) -> Iterator[str]:
    troubles = (process.trouble for process in processes(facts, about))
    yield from (f"It {trouble}." for trouble in troubles if trouble)


def _agent_silent(limits: Limits) -> Alert:
    # A killed process leaves its socket as well, but no one waits for it.
    timeouts = counter(
        catalog.COLLECTOR_ERRORS,
        eq("collector", "agents"),
        eq("reason", "agent_timeout"),
    )
    window = limits.agent_silent_for
    waiting = timeouts.increase(window).sum("job", "instance") > 0
    waiting = waiting.record(
        *("instance", catalog.COLLECTOR_ERRORS, f"agent_timeouts{window}"),
        f"Agents that did not respond within {window}, if there are some.",
    )
    silent = gauge(catalog.AGENT_UP).max(*PROCESS).equals(0)
    return Alert(
        expr=silent.and_(waiting, "job", "instance"),
        for_=window,
        summary=(
            "Worker {{ $labels.worker }} of job {{ $labels.job }} on "
            "{{ $labels.instance }} accepts connections but does not respond: it "
            "is stopped, or something holds the GIL. Its metrics, and the alerts "
            "based on them, are gone."
        ),
    )


def _agent_hook_inactive(limits: Limits) -> Alert:
    return Alert(
        expr=gauge(catalog.HOOK_ACTIVE).min("job", "hook").equals(0),
        for_=limits.hook_inactive_for,
        summary=(
            "Hook {{ $labels.hook }} is inactive in a process of job "
            "{{ $labels.job }}; its metrics are incomplete."
        ),
    )


def _metrics(snapshot: Snapshot) -> Iterator[Finding]:
    exports, limits = snapshot.exports, snapshot.limits
    if exports.failed_in_a_row < limits.exports_failed:
        return
    if exports.failing_seconds < seconds_in(limits.exports_failed_for):
        return
    # The alert may wait for longer: what has arrived before must leave its window.
    due = exports.failing_seconds > seconds_in(limits.export_failing_for)
    yield Finding(
        "export",
        "metrics",
        f"No export of metrics by OTLP has arrived for "
        f"{duration(exports.failing_seconds)}: the last "
        f"{exports.failed_in_a_row:,} failed.",
        (),
        f"{_REASON}. If nothing is meant to be pushed, set JAXMON_OTLP=false.",
        severity=TICKET if due else None,
    )


def _export_failing(limits: Limits) -> Alert:
    window, by = limits.export_window, (*PROCESS, "signal")
    failed, arrived = (
        counter(catalog.OTLP_EXPORTS, eq("outcome", outcome)).increase(window).sum(*by)
        > 0
        for outcome in ("failure", "success")
    )
    lost = failed.unless(arrived).record(
        *("worker", catalog.OTLP_EXPORTS, f"failed{window}"),
        f"Exports that failed within {window}, if none arrived.",
    )
    return Alert(
        expr=lost > 0,
        for_=limits.export_failing_for,
        summary=(
            "No export of {{ $labels.signal }} from " + AN_INSTANCE + "of job "
            "{{ $labels.job }} by OTLP succeeds; " + COUNT + f" failed within {window}."
        ),
    )


def _spans(snapshot: Snapshot) -> Iterator[Finding]:
    dropped = snapshot.exports.spans_dropped
    limits = snapshot.limits
    windows = snapshot.process.observed_seconds / seconds_in(limits.export_window)
    if dropped < limits.spans_dropped * max(windows, 1.0):
        return
    yield Finding(
        "spans",
        "",
        f"{counted(dropped, 'span')} did not reach a receiver of traces and "
        "were dropped.",
        (),
        f"{_REASON}. Prometheus takes no spans: set OTEL_TRACES_EXPORTER=none. If "
        "there are too many, lower OTEL_TRACES_SAMPLER_ARG.",
    )


def _spans_missing(facts: HostFacts) -> Iterator[Reason]:
    dropped = facts.lately.values(catalog.DROPPED)
    for (worker, what), number in dropped.items():
        if what == "span" and number >= facts.limits.spans_dropped:
            last = period(facts.lately.seconds(worker))
            text = f"{counted(number, 'span')} were dropped in the last {last}."
            yield reason("spans", TICKET, text, [worker], worker)


def _spans_dropped(limits: Limits) -> Alert:
    window = limits.export_window
    dropped = counter(catalog.DROPPED, eq("what", "span")).increase(window)
    return Alert(
        expr=dropped.sum(*PROCESS) >= promql.number(limits.spans_dropped),
        for_=limits.export_failing_for,
        summary=(
            f"{AN_INSTANCE}of job {{{{ $labels.job }}}} dropped {COUNT} spans within "
            f"{window}; their traces are incomplete or missing."
        ),
    )


_BELOW = 0.1  # seconds: what is shorter is not shown as that long


def _short(snapshot: Snapshot) -> Iterator[Finding]:
    period, observed = snapshot.time.period, snapshot.process.observed_seconds
    seconds = period.seconds or observed
    if period.settled or not seconds or (not period.looks and seconds > SHORT_SECONDS):
        return
    observed_for = duration(min(seconds, SHORT_SECONDS - _BELOW))
    few, of, enough = "Too short", f"{observed_for} observed", f"{SHORT_SECONDS:g} s"
    if seconds >= SHORT_SECONDS:
        few, of, enough = "Too few looks", f"{period.looks}", f"{ENOUGH_LOOKS}"
    text = f"{few} to judge where the time goes ({of}; from {enough} on)."
    yield Finding("short", "", text, (), "")


SYMPTOMS = (
    Symptom(
        *("short", "", "Too few samples to judge where the time goes."),
        finding=_short,
        missing=NOTHING,
    ),
    Symptom(
        *("target_down", "", "Prometheus cannot scrape a target."),
        rule=("JaxmonTargetDown", _target_down),
        missing=RULES_ONLY,
    ),
    Symptom(
        *("service_vanished", "", "No process of a service is reporting."),
        rule=("JaxmonServiceVanished", _service_vanished),
        missing=RULES_ONLY,
    ),
    Symptom(
        *("traffic_stopped", "", "A service no longer gets requests."),
        rule=("JaxmonServiceVanished", _traffic_stopped),
        missing=RULES_ONLY,
    ),
    Symptom(
        *("watchdog", "", "Always fires, to show that alerts arrive."),
        rule=("JaxmonWatchdog", _watchdog),
        missing=NOTHING,
    ),
    Symptom(
        *("silent", "", "A process is alive but its agent does not respond."),
        reason=silent,
        because=_why_silent,
        rule=("JaxmonAgentSilent", _agent_silent),
        wait="agent_silent_for",
    ),
    Symptom(
        *("hook_inactive", "", "An agent hook is inactive."),
        rule=(MONITORING_ALERT, _agent_hook_inactive),
        missing="`NOTES` say it",
    ),
    Symptom(
        *("collector_down", "", "A sidecar collector is failing."),
        rule=(MONITORING_ALERT, _collector_down),
        missing="the page lists them",
    ),
    Symptom(
        *("web_config", "", "A sidecar cannot load its web configuration."),
        rule=(MONITORING_ALERT, _web_config_failed),
        missing=NO_SCREEN,
    ),
    Symptom(
        *("export", "", "Nothing that a process pushes by OTLP arrives.", HINT),
        *(_metrics, catalog.OTLP_EXPORTS, "jaxmon itself: Failed exports"),
        rule=(MONITORING_ALERT, _export_failing),
    ),
    Symptom(
        *("spans", "", "A process drops the spans of requests and compiles.", HINT),
        *(_spans, catalog.DROPPED, "jaxmon itself: Dropped items"),
        rule=(MONITORING_ALERT, _spans_dropped),
        reason=_spans_missing,
        wait="export_failing_for",
    ),
)
