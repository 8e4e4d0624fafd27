"""Errors of calls, restarts of processes, and checks of results."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter, events, gauge
from jaxmon.promql.expressions import RANGE, RATE_INTERVAL
from jaxmon_alerts.overviews import hosts, services
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, table, timeseries


@row(6, "Errors and restarts", lines=(2,))
def oncall() -> Iterator[Panel]:
    """Return error and restart panels."""
    errors = services.ERRORS(q.JOB)
    yield timeseries(502, "JAX errors by function")(
        errors.worst(10),
        text="The ten functions with the most errors within five minutes, by kind.",
        no_value="No errors",
    )
    yield timeseries(503, "Process restarts")(
        hosts.RESTARTS(q.JOB).worst(q.FEW),
        text="Process restarts per slot within ten minutes, on the 20 hosts with the "
        "most. Several mean a crash loop; see the log.",
        alerts=("JaxmonCrashLoop",),
        no_value="None",
    )


@row(17, "Errors", lines=(3,))
def debug() -> Iterator[Panel]:
    """Return which function fails how."""
    listed, now = (
        events.ERRORS.within(window, *q.FUNCTION) for window in (RANGE, RATE_INTERVAL)
    )
    yield table(1701, "JAX errors by function and kind")(
        Target(listed.sum("function", "kind").topk(50), "Errors"),
        text="Exceptions in the selected time range. The process log has their "
        "messages.",
        no_value="No errors",
        sort="Errors",
    )
    yield timeseries(1702, "JAX errors over time")(
        now.sum("kind"),
        text="Exceptions by kind, per graph interval. Failures that start together are "
        "often related: compare with process restarts and other functions.",
        alerts=("JaxmonOutOfMemory",),
    )
    yield timeseries(1703, "Warnings of JAX")(
        events.WARNINGS.within(RATE_INTERVAL, *q.PROCESS).sum("kind"),
        text="What JAX warns of, per graph interval, whether or not the program "
        "displays it. donation: memory is held twice; backend: an accelerator is not "
        "used. `jaxmon explain` has the lines.",
    )


@row(22, "Determinism", lines=(4, 1), collapsed=True)
def checks() -> Iterator[Panel]:
    """Return checks and their outcomes."""
    by = ("function", "outcome")
    checks = counter(catalog.DETERMINISM_CHECKS, *q.FUNCTION).total()
    devices = counter(catalog.DEVICE_DEVIATIONS, *q.FUNCTION).total()
    gradients = counter(catalog.GRADIENT_CHECKS, *q.FUNCTION).total()
    reuse = counter(catalog.KEY_REUSE, *q.FUNCTION).total()
    yield timeseries(2201, "Deviation between two runs")(
        gauge(catalog.OUTPUT_DEVIATION, *q.FUNCTION).max("function"),
        text="Largest relative deviation in each function's last check; 0 if both runs "
        "were bit-identical. Checks are run by the program, or on sampled calls with "
        "`shadow_interval`.",
        width=8,
        no_value="No check",
    )
    yield table(2202, "Determinism checks")(
        Target(checks.sum(*by).topk(50), "Checks"),
        text="Checks since each process started, by outcome.",
        width=8,
        alerts=("JaxmonCheckFailed",),
        no_value="No check",
    )
    yield table(2203, "Gradient checks")(
        Target(gradients.sum(*by).topk(50), "Checks"),
        text="Gradients compared with finite differences, by outcome.",
        alerts=("JaxmonCheckFailed",),
        no_value="No check",
    )
    yield table(2204, "PRNG key reuse")(
        Target((reuse.sum("function") > 0).topk(50), "Uses"),
        text="PRNG key reuse rejected by JAX's key-reuse checker. The same key always "
        "produces the same random numbers.",
        alerts=("JaxmonCheckFailed",),
        no_value="None",
    )
    yield table(2205, "Deviations of one device")(
        Target((devices.sum(*((*q.BY_PROCESS, "device"))) > 0).topk(50), "Checks"),
        text="Determinism checks in which an output differed on this device, but not "
        "on all: from a second run, or from its replicas on most of the others. A "
        "device that appears here alone is probably failing: take it out of service "
        "and test it.",
        alerts=("JaxmonCheckFailed", "JaxmonSilentCorruption"),
        no_value="None",
    )
