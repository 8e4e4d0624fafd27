"""
Monitoring alerts: targets, services, collectors and agents that stop reporting, and
what does not arrive by OTLP.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.artifacts import events
from jaxmon.artifacts.alerts import starts
from jaxmon.artifacts.alerts.model import COUNT, PROCESS, Alert
from jaxmon.artifacts.slo.severity import PAGE, TICKET
from jaxmon.limits import Limits
from jaxmon.promql import alerts, counter, eq, gauge, gauge_over


def target_down(limits: Limits, day: str) -> Alert:
    """Alert on an agent or sidecar that Prometheus cannot scrape."""
    # Prometheus may scrape more than jaxmon: only jobs that had its metrics count.
    ours = gauge_over(catalog.BUILD_INFO, "last", day).max("job")
    return Alert(
        name="JaxmonTargetDown",
        expr=promql.up().equals(0).and_(ours, "job"),
        for_=limits.target_down_for,
        severity=TICKET,
        description="Prometheus cannot scrape a target.",
        summary=(
            "Target {{ $labels.instance }} of job {{ $labels.job }} does not "
            "respond; there are no metrics or alerts for it."
        ),
    )


def service_vanished(limits: Limits, hour: str, *, page: str) -> Iterator[Alert]:
    """
    Yield a page if a service has disappeared, and a ticket if it has no targets left,
    which usually means it was removed or finished on purpose. *page* is what the site
    calls the severity.
    """
    name = "JaxmonServiceVanished"
    served = events.REQUESTS.within(hour).sum("job") > 0
    serving = gauge_over(catalog.REQUESTS_IN_PROGRESS, "last", hour).max("job") > 0
    # A process that started within the hour may have had no request yet.
    started = starts.young(hour, restarts=limits.deploy_restarts, hour=hour)
    now = gauge(catalog.REQUESTS_IN_PROGRESS).max("job").or_(started)
    gone = served.or_(serving).unless(now)
    # The processes of a host that died are looked for in vain until they are evicted:
    # that is not a removal, so a page stays a page.
    own = (eq("alertname", name), eq("alertstate", "firing"), eq("severity", page))
    expected = promql.up().max("job").or_(alerts(*own).max("job"))
    # Alerts on its objectives stop with its metrics.
    no_answer = (
        "none of its processes is reporting, so errors and latency are not visible."
    )
    removed = "it has no targets: it was removed, or service discovery lost it."
    for severity, expr, so in (
        (PAGE, gone.and_(expected), no_answer),
        (TICKET, gone.unless(expected), removed),
    ):
        yield Alert(
            name=name,
            expr=expr,
            for_=limits.vanished_for,
            severity=severity,
            description="No process of a service is reporting.",
            summary=(
                "Job {{ $labels.job }} served requests within the last hour, and now "
                f"{so}"
            ),
        )


def collector_down(limits: Limits, day: str) -> Alert:
    """Alert on a collector that used to work and is failing."""
    by = ("job", "instance", "collector")
    # A host without a GPU has a collector that never worked: that is no failure. Nor is
    # that a job has ended, and its NCCL with it.
    lasting = promql.ne("collector", "nccl")
    worked = gauge_over(catalog.COLLECTOR_SUCCESS, "max", day, lasting).max(*by)
    works = gauge(catalog.COLLECTOR_SUCCESS, lasting).max(*by)
    return Alert(
        name="JaxmonCollectorDown",
        expr=works.equals(0).and_(worked.equals(1)),
        for_=limits.collector_down_for,
        severity=TICKET,
        description="A sidecar collector is failing.",
        summary=(
            "Collector {{ $labels.collector }} of {{ $labels.instance }} worked "
            "within the last day but is failing now; its metrics are missing."
        ),
    )


def web_config_failed(limits: Limits) -> Alert:
    """Alert on a web configuration or certificates that cannot be loaded."""
    return Alert(
        name="JaxmonWebConfigFailed",
        expr=gauge(catalog.WEB_CONFIG_SUCCESS).max("job", "instance").equals(0),
        for_=limits.web_config_failed_for,
        severity=TICKET,
        description="A sidecar cannot load its web configuration.",
        summary=(
            "The latest web configuration or certificates of "
            "{{ $labels.instance }} are invalid. The previous ones stay in "
            "effect, but the sidecar will fail to restart."
        ),
    )


def agent_silent(limits: Limits) -> Alert:
    """Alert on a process that is alive but does not respond."""
    # A killed process leaves its socket as well, but no one waits for it.
    timeouts = counter(
        catalog.COLLECTOR_ERRORS,
        eq("collector", "agents"),
        eq("reason", "agent_timeout"),
    )
    waiting = timeouts.increase(limits.agent_silent_for).sum("job", "instance") > 0
    silent = gauge(catalog.AGENT_UP).max(*PROCESS).equals(0)
    return Alert(
        name="JaxmonAgentSilent",
        expr=silent.and_(waiting, "job", "instance"),
        for_=limits.agent_silent_for,
        severity=TICKET,
        description="A process is alive but its agent does not respond.",
        summary=(
            "Worker {{ $labels.worker }} of job {{ $labels.job }} on "
            "{{ $labels.instance }} accepts connections but does not respond: it "
            "is stopped, or something holds the GIL. Its metrics, and the alerts "
            "based on them, are gone."
        ),
    )


def agent_hook_inactive(limits: Limits) -> Alert:
    """Alert on an inactive hook."""
    return Alert(
        name="JaxmonAgentHookInactive",
        expr=gauge(catalog.HOOK_ACTIVE).min("job", "hook").equals(0),
        for_=limits.hook_inactive_for,
        severity=TICKET,
        description="An agent hook is inactive.",
        summary=(
            "Hook {{ $labels.hook }} is inactive in a process of job "
            "{{ $labels.job }}; its metrics are incomplete."
        ),
    )


def export_failing(limits: Limits) -> Alert:
    """Alert on a process none of whose exports by OTLP succeed."""
    window, by = limits.export_window, (*PROCESS, "signal")
    failed, arrived = (
        counter(catalog.OTLP_EXPORTS, eq("outcome", outcome)).increase(window).sum(*by)
        > 0
        for outcome in ("failure", "success")
    )
    return Alert(
        name="JaxmonExportFailing",
        expr=failed.unless(arrived, *by),
        for_=limits.export_failing_for,
        severity=TICKET,
        description="Nothing that a process pushes by OTLP arrives.",
        summary=(
            "No export of {{ $labels.signal }} from {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}of job "
            "{{ $labels.job }} by OTLP succeeds; " + COUNT + f" failed within {window}."
        ),
    )


def spans_dropped(limits: Limits) -> Alert:
    """Alert on a process that drops spans because a receiver does not take them."""
    window = limits.export_window
    dropped = counter(catalog.DROPPED, eq("what", "span")).increase(window)
    return Alert(
        name="JaxmonSpansDropped",
        expr=dropped.sum(*PROCESS) >= promql.number(limits.spans_dropped),
        for_=limits.export_failing_for,
        severity=TICKET,
        description="A process drops the spans of requests and compiles.",
        summary=(
            "{{ $labels.instance }} {{ with $labels.worker }}(worker {{ . }}) "
            "{{ end }}of job {{ $labels.job }} dropped " + COUNT + " spans within "
            f"{window}; their traces are incomplete or missing."
        ),
    )
