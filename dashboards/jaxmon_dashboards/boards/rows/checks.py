"""Determinism and gradient checks."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter, gauge
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, table, timeseries


@row(22, "Determinism", lines=(4, 1), collapsed=True)
def debug() -> Iterator[Panel]:
    """Return checks and their outcomes."""
    by = ("function", "outcome")
    by_device = (*q.BY_PROCESS, "device")
    deviation = gauge(catalog.OUTPUT_DEVIATION, *q.FUNCTION).max("function")
    checks = counter(catalog.DETERMINISM_CHECKS, *q.FUNCTION).total()
    devices = counter(catalog.DEVICE_DEVIATIONS, *q.FUNCTION).total()
    gradients = counter(catalog.GRADIENT_CHECKS, *q.FUNCTION).total()
    reuse = counter(catalog.KEY_REUSE, *q.FUNCTION).total()
    yield timeseries(2201, "Deviation between two runs")(
        Target(deviation.worst(q.FEW), "{{function}}"),
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
        labels=by,
        alerts=("JaxmonCheckFailed",),
        no_value="No check",
    )
    yield table(2203, "Gradient checks")(
        Target(gradients.sum(*by).topk(50), "Checks"),
        text="Gradients compared with finite differences, by outcome.",
        labels=by,
        alerts=("JaxmonCheckFailed",),
        no_value="No check",
    )
    yield table(2204, "PRNG key reuse")(
        Target((reuse.sum("function") > 0).topk(50), "Uses"),
        text="PRNG key reuse rejected by JAX's key-reuse checker. The same key always "
        "produces the same random numbers.",
        labels=("function",),
        alerts=("JaxmonKeyReuse",),
        no_value="None",
    )
    yield table(2205, "Deviations of one device")(
        Target((devices.sum(*by_device) > 0).topk(50), "Checks"),
        text="Determinism checks in which an output differed on this device, but not "
        "on all: from a second run, or from its replicas on most of the others. A "
        "device that appears here alone is probably failing: take it out of service "
        "and test it.",
        labels=by_device,
        alerts=("JaxmonCheckFailed", "JaxmonSilentCorruption"),
        no_value="None",
    )
