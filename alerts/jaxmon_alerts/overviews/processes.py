"""Processes and hosts: starts, compiles in progress, memory, and monitoring itself."""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, counter, eq, events, gauge, gauge_changes, histogram
from jaxmon_alerts.overviews.model import (
    HOST,
    PROCESS,
    OverviewRule,
    Windows,
    counted,
    gauged,
    of_agents,
    rated,
)


_START = catalog.PROCESS_START_TIME_SECONDS
_DEVICE = (*PROCESS, "device")


def _young(window: Windows) -> Expr:
    # Sidecars have an age, too, and collectors; what they relay has a worker.
    ages = gauge(catalog.UPTIME_SECONDS)
    programs = ages.unless(gauge(catalog.COLLECTOR_SUCCESS), *PROCESS)
    return programs < durations.seconds(window.young)


# A process that starts elsewhere, as in Kubernetes, differs from no earlier one.
STARTS = OverviewRule(
    catalog.UPTIME_SECONDS, "young3m", lambda window: _young(window).count("job")
)
RESTARTS = OverviewRule(
    catalog.PROCESS_START_TIME_SECONDS,
    "changes10m",
    lambda window: of_agents(gauge_changes(_START, window.restarts)).sum(*HOST) > 0,
)
COMPILES_IN_PROGRESS = gauged(catalog.COMPILES_IN_PROGRESS, "sum", *HOST, rare=True)
COMPILE_OLDEST = gauged(catalog.COMPILE_OLDEST_SECONDS, "max", *HOST, rare=True)
DEVICE_MEMORY = OverviewRule(
    catalog.DEVICE_MEMORY_BYTES,
    "max_ratio",
    promql.ratio(
        *(
            gauge(catalog.DEVICE_MEMORY_BYTES, eq("kind", kind)).sum(*_DEVICE)
            for kind in ("in_use", "limit")
        )
    ).max(*HOST),
)
LIVE_BYTES = OverviewRule(
    catalog.LIVE_ARRAY_BYTES,
    "max",
    gauge(catalog.LIVE_ARRAY_BYTES).sum(*_DEVICE).max(*HOST),
)
LIVE_ARRAYS = OverviewRule(
    catalog.LIVE_ARRAYS, "max", gauge(catalog.LIVE_ARRAYS).sum(*_DEVICE).max(*HOST)
)
RESIDENT = OverviewRule(
    catalog.PROCESS_RESIDENT_MEMORY_BYTES,
    "max",
    of_agents(gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES)).max(*HOST),
)
HOST_MEMORY = OverviewRule(
    catalog.HOST_MEMORY_AVAILABLE_BYTES,
    "ratio",
    promql.ratio(
        gauge(catalog.HOST_MEMORY_AVAILABLE_BYTES).sum(*HOST),
        gauge(catalog.HOST_MEMORY_SIZE_BYTES).sum(*HOST),
    ),
)
AGENT_UP = gauged(catalog.AGENT_UP, "min", *HOST)
CRASHES = OverviewRule(
    catalog.AGENT_CRASHES,
    "increase5m",
    lambda window: (
        counter(catalog.AGENT_CRASHES)
        .mishaps(window.recent, memory=window.memory)
        .sum(*PROCESS)
    ),
)
DIED = gauged(catalog.AGENT_DIED, "max", *PROCESS, rare=True)
HOOKS = gauged(catalog.HOOK_ACTIVE, "min", "job", "hook")
# Of those that are active, which are nearly all, nothing is recorded.
INACTIVE_HOOKS = OverviewRule(
    catalog.HOOK_ACTIVE,
    "inactive",
    gauge(catalog.HOOK_ACTIVE).equals(0).min(*PROCESS, "hook"),
)
SCRAPES = OverviewRule(
    catalog.SCRAPE_SECONDS,
    "p95_5m",
    lambda window: histogram(catalog.SCRAPE_SECONDS).quantile(
        0.95, *PROCESS, window=window.recent
    ),
)
INTERNAL_ERRORS = counted(events.INTERNAL_ERRORS, "job", "site")
COLLECTORS = OverviewRule(
    catalog.COLLECTOR_SUCCESS,
    "avg",
    gauge(catalog.COLLECTOR_SUCCESS).avg("job", "collector").of_unit("ratio"),
)
COLLECTOR_AGE = gauged(catalog.COLLECTOR_AGE_SECONDS, "max", "job", "collector")
# Collectors seldom fail: a series only where one does.
COLLECTOR_ERRORS = rated(
    catalog.COLLECTOR_ERRORS, *HOST, "collector", "reason", rare=True
)

OFTEN = (
    *(STARTS, RESTARTS, COMPILES_IN_PROGRESS, COMPILE_OLDEST),
    *(AGENT_UP, CRASHES, DIED, INTERNAL_ERRORS),
)
HOSTS = (
    *(DEVICE_MEMORY, LIVE_BYTES, LIVE_ARRAYS, RESIDENT, HOST_MEMORY),
    *(HOOKS, INACTIVE_HOOKS, SCRAPES, COLLECTORS, COLLECTOR_AGE),
    COLLECTOR_ERRORS,
)
