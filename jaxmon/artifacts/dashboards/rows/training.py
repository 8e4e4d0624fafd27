"""Loops: steps, data, time lost."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.model import Panel, Row, Target
from jaxmon.artifacts.promql import counter, histogram
from jaxmon.artifacts.slo import Slos, durations


def oncall(slos: Slos) -> Row:
    """Return the signals of a training job."""
    by = ("job", "loop")
    named = "{{job}} {{loop}}"
    steps = histogram(catalog.STEP_SECONDS, *q.PROCESS)
    waited = counter(catalog.DATA_WAIT_SECONDS, *q.PROCESS).rate().sum(*by)
    stepped = steps.sum.rate().sum(*by)
    activity = counter(catalog.TIME_SECONDS, *q.PROCESS).rate().sum("activity")
    items = counter(catalog.ITEMS, *q.PROCESS).rate().sum(*by, "item")
    return Row(
        4,
        "Training",
        (
            Panel(
                id=301,
                title="Steps per second",
                kind="timeseries",
                text="Steps that the processes of a loop finish. A drop to 0 with the "
                "process alive is a hang.",
                targets=(
                    Target(counter(catalog.STEPS, *q.PROCESS).rate().sum(*by), named),
                ),
                width=8,
                alerts=("JaxmonTrainingStalled",),
            ),
            Panel(
                id=302,
                title="Step time",
                kind="timeseries",
                text="From one step to the next, waiting for data included. p99 far "
                "above p50: recompiles, checkpoints, or one slow host.",
                targets=tuple(
                    Target(q.known(steps.quantile(p, *by)), f"p{p * 100:g} {named}")
                    for p in (0.5, 0.99)
                ),
                width=8,
            ),
            Panel(
                id=303,
                title="Share of step time spent waiting for data",
                kind="timeseries",
                text="How much of a step the input pipeline costs. Near 0 the devices "
                "are the limit, near 1 the data.",
                targets=(Target(q.share(waited, stepped), named),),
                width=8,
                maximum=1,
            ),
            Panel(
                id=304,
                title="Age of the last step",
                kind="timeseries",
                text="Time since a running loop finished a step, of its slowest "
                "process. The line is where the alert fires.",
                targets=(Target(q.step_age().max(*by), named),),
                width=8,
                thresholds=q.above(durations.seconds(slos.thresholds.stalled_after)),
                alerts=(
                    *q.alert_of(slos, "step-freshness"),
                    "JaxmonTrainingStalled",
                ),
            ),
            Panel(
                id=305,
                title="Time by activity",
                kind="timeseries",
                text="What the processes do with their wall time. Everything that is "
                "no step is lost to training.",
                targets=(Target(activity, "{{activity}}"),),
                width=8,
                stacked="percent",
            ),
            Panel(
                id=306,
                title="Items per second",
                kind="timeseries",
                text="Tokens, images or sequences that the loops work through: the "
                "throughput that is paid for.",
                targets=(Target(items, f"{named} {{{{item}}}}"),),
                width=8,
            ),
        ),
    )


def debug() -> Row:
    """Return how step time is distributed, over time and over processes."""
    steps = histogram(catalog.STEP_SECONDS, *q.PROCESS)
    by = (*q.BY_PROCESS, "loop")
    named = f"{q.NAMED_PROCESS} {{{{loop}}}}"
    waited = counter(catalog.DATA_WAIT_SECONDS, *q.PROCESS).rate().sum(*by)
    return Row(
        15,
        "Steps",
        (
            Panel(
                id=1501,
                title="Steps by duration",
                kind="heatmap",
                text="How many steps took how long. A second band far above the first: "
                "steps that recompile, or wait for a checkpoint.",
                targets=(Target(steps.buckets(), "{{le}}"),),
                width=8,
            ),
            Panel(
                id=1502,
                title="Mean step time by process",
                kind="timeseries",
                text="In a collective program all wait for the slowest; where times "
                "differ without one, look at the slow host.",
                targets=(Target(q.known(steps.mean(*by)), named),),
                width=8,
            ),
            Panel(
                id=1503,
                title="Data wait by process",
                kind="timeseries",
                text="Share of the time that each process waits for its next batch.",
                targets=(Target(waited, named),),
                width=8,
                maximum=1,
            ),
        ),
    )
