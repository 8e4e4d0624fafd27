"""Sampled calls: what the host spends on them, and what the device does."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, histogram
from jaxmon.catalog import Metric


def debug() -> Row:
    """Return execution and dispatch times, each in panels of its own."""
    nonfinite = counter(catalog.NONFINITE, *q.PROCESS).mishaps().sum("name")
    promotions = counter(catalog.FLOAT64_PROMOTIONS, *q.FUNCTION)
    return Row(
        23,
        "Execution time",
        (
            Panel(
                id=2301,
                title="Execution time by function",
                kind="timeseries",
                text="Device time of sampled calls, from the start of their work to "
                "its end: the median, and what 95 % stay below, of the ten slowest "
                "functions. Longer after an upgrade, with the same program: the "
                "compiler or the hardware.",
                targets=_quantiles(catalog.EXECUTION_SECONDS),
                width=12,
            ),
            Panel(
                id=2302,
                title="Dispatch time by function",
                kind="timeseries",
                text="Host time of sampled calls, from the call to its return, of the "
                "ten slowest functions. Not the time of the work; long where the "
                "queue of the device is full, or arguments are many.",
                targets=_quantiles(catalog.DISPATCH_SECONDS),
                width=12,
            ),
            Panel(
                id=2303,
                title="Non-finite outputs",
                kind="timeseries",
                text="NaN and infinite values in small outputs of sampled calls, "
                "within an interval of the graph, where `nonfinite` is set.",
                targets=(Target(nonfinite.topk(10), "{{name}}"),),
                width=12,
            ),
            Panel(
                id=2304,
                title="Promotions to float64",
                kind="timeseries",
                text="Programs built that compute in float64 although no argument is: "
                "many times slower on most accelerators.",
                targets=(
                    Target(
                        promotions.mishaps().sum("function").topk(10),
                        "{{function}}",
                    ),
                ),
                width=12,
            ),
        ),
        collapsed=True,
    )


def _quantiles(metric: Metric) -> tuple[Target, ...]:
    seconds = histogram(metric, *q.FUNCTION)
    return tuple(
        Target(
            q.known(seconds.quantile(share, "function")).topk(10),
            f"{{{{function}}}} {name}",
        )
        for share, name in ((0.5, "median"), (0.95, "95 %"))
    )
