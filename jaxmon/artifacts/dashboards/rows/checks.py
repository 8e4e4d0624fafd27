"""Whether functions give the same output twice, and right gradients."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, gauge


def debug() -> Row:
    """Return the checks that were made, and their outcome."""
    by = ("function", "outcome")
    deviation = gauge(catalog.OUTPUT_DEVIATION, *q.FUNCTION).max("function")
    checks = counter(catalog.DETERMINISM_CHECKS, *q.FUNCTION).total()
    gradients = counter(catalog.GRADIENT_CHECKS, *q.FUNCTION).total()
    reuse = counter(catalog.KEY_REUSE, *q.FUNCTION).total()
    return Row(
        22,
        "Determinism",
        (
            Panel(
                id=2201,
                title="Deviation between two runs",
                kind="timeseries",
                text="Largest relative deviation of the last check of each function: "
                "0 if both runs gave the same bits. A check is made by the program, or "
                "of sampled calls with `shadow_interval`.",
                targets=(Target(deviation, "{{function}}"),),
                width=8,
                no_value="no check",
            ),
            Panel(
                id=2202,
                title="Determinism checks",
                kind="table",
                text="Checks since each process started, by outcome.",
                targets=(Target(checks.sum(*by), "Checks"),),
                width=8,
                labels=by,
                no_value="no check",
            ),
            Panel(
                id=2203,
                title="Gradient checks",
                kind="table",
                text="Gradients compared with finite differences, by outcome.",
                targets=(Target(gradients.sum(*by), "Checks"),),
                width=4,
                labels=by,
                no_value="no check",
            ),
            Panel(
                id=2204,
                title="Keys used twice",
                kind="table",
                text="PRNG keys whose second use JAX's key-reuse checking refused. "
                "Random numbers made from one key are the same numbers.",
                targets=(Target(reuse.sum("function") > 0, "Uses"),),
                width=4,
                labels=("function",),
                no_value="none",
            ),
        ),
        collapsed=True,
    )
