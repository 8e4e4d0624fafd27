"""jaxmon itself: whether agents and sidecars work, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import Expr, counter, eq, events, gauge, histogram, up
from jaxmon.promql.expressions import RANGE
from jaxmon_alerts.overviews import hosts
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Mapping,
    Panel,
    Target,
    row,
    stat,
    states,
    table,
    timeseries,
)


_IN_FORCE = (Mapping("0", "failed", "red"), Mapping("1", "current", "green"))
_HOOKS = (Mapping("0", "inactive", "red"), Mapping("1", "active", "green"))


@row(9, "Monitoring health", lines=(3, 2), collapsed=True)
def oncall() -> Iterator[Panel]:
    """Return panels that show whether the other data can be trusted."""
    yield states(801, "Targets that were down")(
        *q.down(),
        text="Agents and sidecars that Prometheus could not scrape, and when.",
        mappings=q.UP,
        alerts=("JaxmonTargetDown", "JaxmonWatchdog"),
        no_value="None",
    )
    yield timeseries(802, "Collectors")(
        hosts.COLLECTORS(q.JOB).least(q.FEW),
        text="Fraction of sidecars on which the last poll of a collector succeeded, of "
        "the 20 worst. nvml is down on hosts without an NVIDIA driver, which is "
        "normal.",
        alerts=("JaxmonMonitoringDegraded",),
    )
    yield timeseries(803, "Age of collected data")(
        hosts.COLLECTOR_AGE(q.JOB).worst(q.FEW),
        text="Age of the oldest data that a sidecar serves, of the 20 worst. Grows "
        "when a driver or an agent hangs.",
        alerts=("JaxmonMonitoringDegraded",),
    )
    yield states(806, "Hosts with silent agents")(
        hosts.AGENT_UP(q.JOB).equals(0).least(q.FEW),
        text="Hosts on which a process does not respond, and when: it was killed or "
        "hangs; the alert says which.",
        mappings=q.UP,
        alerts=("JaxmonAgentSilent",),
        no_value="None",
    )
    yield timeseries(807, "Processes that crashed")(
        hosts.CRASHES(q.JOB).worst(q.FEW),
        Target(hosts.DIED(q.JOB).worst(q.FEW), "not replaced"),
        text="Processes that ended without finishing, within five minutes, and whether "
        "another has taken their place since.",
        alerts=("JaxmonCrashLoop", "JaxmonTrainingDied"),
        no_value="None",
    )


@row(20, "jaxmon and versions", lines=(4, 3, 2), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return what jaxmon itself does and costs, and the versions that it sees."""
    dropped = counter(catalog.DROPPED, *q.PROCESS).rate().sum("what")
    failed = events.INTERNAL_ERRORS.within(RANGE, *q.PROCESS)
    yield states(2001, "Inactive hooks by process")(
        hosts.INACTIVE_HOOKS(q.JOB).least(q.FEW),
        text="A hook that could not attach to this JAX, or disabled itself after "
        "failures. What it measures is missing.",
        no_value="None",
        mappings=_HOOKS,
        alerts=("JaxmonMonitoringDegraded",),
    )
    yield timeseries(2003, "Label overflow")(
        q.per_minute(counter(catalog.LABEL_OVERFLOW, *q.PROCESS).rate().sum("label")),
        text="Lookups per minute that ended in 'other'. Increase max_functions, or "
        "stop creating new functions.",
    )
    yield timeseries(2004, "Dropped items")(
        q.per_minute(dropped), text="Items jaxmon dropped to stay within its limits."
    )
    yield table(2005, "Internal errors by process")(
        Target(failed.sum(*q.BY_PROCESS, "site").topk(q.FEW), "Errors"),
        text="Contained failures of jaxmon's own code in the selected time range, by "
        "process and site.",
        no_value="None",
        sort="Errors",
    )
    unsent = counter(catalog.OTLP_EXPORTS, *q.PROCESS, eq("outcome", "failure"))
    yield timeseries(2013, "Failed exports")(
        q.per_minute(unsent.rate().sum("signal")) > 0,
        text="Failed exports per minute, of all processes. The next one has what a "
        "failed one of metrics had; spans are lost.",
        no_value="None",
        alerts=("JaxmonMonitoringDegraded",),
    )
    errors = hosts.COLLECTOR_ERRORS(*q.HOSTS)
    yield timeseries(2008, "Collector errors by reason")(
        q.per_minute(errors).and_(errors.over_range("max").topk(q.FEW)),
        text="Collector failures, over five minutes. The sidecar's log has the "
        "messages.",
        no_value="None",
        alerts=("JaxmonMonitoringDegraded",),
    )
    yield states(2011, "Web configuration")(
        Target(q.host(catalog.WEB_CONFIG_SUCCESS).least(q.FEW), "{{instance}}"),
        text="Whether a sidecar's current web configuration and certificates are in "
        "effect. After an invalid change, the previous ones stay in effect.",
        mappings=_IN_FORCE,
        alerts=("JaxmonMonitoringDegraded",),
        no_value="Not configured",
    )
    runtime = ("job", "jax", "jaxlib", "python", "platform", "platform_version")
    ours = gauge(catalog.BUILD_INFO, *q.PROCESS).count("job", "version")
    yield table(2009, "Versions of JAX and its platform")(
        Target(gauge(catalog.RUNTIME_INFO, *q.PROCESS).count(*runtime), "Processes"),
        text="Processes by version. Several lines for one service: mixed versions, so "
        "results or speed may differ between hosts.",
        width=16,
        labels=runtime,
    )
    yield table(2010, "Versions of jaxmon")(
        Target(ours, "Processes"), text="Agents and sidecars by version."
    )


# What sidecars relay has a worker.
_SIDECAR = eq("worker", "")


@row(44, "Can the data be trusted?", lines=(8,))
def glance() -> Iterator[Panel]:
    """Return whether the data on all boards can be trusted."""
    agents, ruled = gauge(catalog.AGENT_UP, *q.PROCESS), hosts.HOOKS(q.JOB)
    failures = events.INTERNAL_ERRORS.within(RANGE, q.JOB)
    yield stat(108, "Targets down")(
        q.or_zero(up(q.JOB).equals(0).count(), up(q.JOB)),
        text="Agents or sidecars that Prometheus cannot scrape; no other panel "
        "includes them.",
        thresholds=q.above(1),
        no_value="No targets",
    )
    yield stat(4401, "Agents silent")(
        agents.below(1).sum(),
        text="Slots whose process does not respond to its sidecar.",
        thresholds=q.above(1),
    )
    yield stat(4402, "Hooks inactive")(
        q.or_zero(hosts.INACTIVE_HOOKS(*q.PROCESS).count(), ruled),
        text="Hooks that could not attach or disabled themselves, in all processes. "
        "Their metrics are missing.",
        thresholds=q.above(1),
    )
    yield stat(4403, "Oldest data")(
        q.host(catalog.COLLECTOR_AGE_SECONDS).max(),
        text="Age of the oldest data that a sidecar serves.",
        thresholds=q.above(60, 300),
        no_value="No sidecar",
    )
    yield stat(4404, "Own failures")(
        q.or_zero(failures.sum(), ruled),
        text="Contained failures of jaxmon's own code in the selected time range. "
        "Please report them.",
        thresholds=q.above(1),
    )
    yield stat(4405, "Dropped")(
        q.per_minute(counter(catalog.DROPPED, *q.PROCESS).rate().sum()),
        text="Items that jaxmon dropped per minute to stay within its limits.",
    )
    yield stat(4406, "Scrape p99")(
        q.defined(histogram(catalog.SCRAPE_SECONDS, *q.PROCESS).quantile(0.99)),
        text="Time to collect and encode a response, of the slowest scrapes.",
    )
    yield stat(4407, "Sidecar CPU")(
        _cpu().max(),
        text="CPU of the busiest sidecar; 100 % is one core.",
        thresholds=q.above(0.2, 1),
    )


@row(45, "What jaxmon costs", lines=(2,))
def cost() -> Iterator[Panel]:
    """Return what agents and sidecars take from the machines they run on."""
    memory = q.host(catalog.PROCESS_RESIDENT_MEMORY_BYTES, _SIDECAR)
    yield timeseries(4501, "CPU of sidecars")(
        *q.among_processes(_cpu()),
        text="CPU of the busiest sidecar and of the median one; 100 % is one core. It "
        "grows with the agents and devices of the host, and with the scrapes.",
        unbounded=True,
    )
    yield timeseries(4502, "Memory of sidecars")(
        Target(memory.worst(10), "{{instance}}"),
        text="Resident memory of the largest sidecars.",
    )


def _cpu() -> Expr:
    return q.host_rate(catalog.PROCESS_CPU_SECONDS, _SIDECAR)
