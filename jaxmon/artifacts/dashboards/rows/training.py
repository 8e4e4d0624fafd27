"""Training loop panels."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import heatmap, line, row, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.promql import counter, eq, gauge, histogram
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
    logged, value = ("job", "name"), gauge(catalog.VALUE, *q.PROCESS)
    outputs = gauge(catalog.NONFINITE_OUTPUTS, *q.PROCESS).max(*logged)
    run = gauge(catalog.VALUE_NONFINITE_RUN, *q.PROCESS).max(*logged)
    saved = gauge(
        catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint"), *q.PROCESS
    )
    spikes = counter(catalog.VALUE_SPIKES, *q.PROCESS).mishaps().sum(*logged)
    return row(
        4,
        "Training",
        line(
            timeseries(
                301,
                "Steps per second",
                Target(counter(catalog.STEPS, *q.PROCESS).rate().sum(*by), named),
                text=(
                    "Steps completed per second. A drop to 0 with the process alive "
                    "is a hang."
                ),
                alerts=("JaxmonTrainingStalled",),
            ),
            timeseries(
                302,
                "Step time",
                *tuple(
                    Target(q.known(steps.quantile(p, *by)), f"p{p * 100:g} {named}")
                    for p in (0.5, 0.99)
                ),
                text=(
                    "From one step to the next, including data wait. p99 far above "
                    "p50: recompiles, checkpoints, or one slow host."
                ),
            ),
            timeseries(
                303,
                "Data wait ratio",
                Target(q.share(waited, stepped), named),
                text=(
                    "Fraction of step time spent waiting for data. Near 0 the devices "
                    "are the bottleneck, near 1 the input pipeline."
                ),
                maximum=1,
                alerts=("JaxmonDataStarvation",),
            ),
        ),
        line(
            timeseries(
                304,
                "Age of the last step",
                Target(q.step_age().max(*by), named),
                text=(
                    "Time since the slowest process of a running loop finished a "
                    "step. The line is the alert threshold."
                ),
                thresholds=q.above(durations.seconds(slos.thresholds.stalled_after)),
                alerts=(*q.alert_of(slos, "step-freshness"), "JaxmonTrainingStalled"),
            ),
            timeseries(
                305,
                "Time by activity",
                Target(activity, "{{activity}}"),
                text=(
                    "Wall time by activity. Anything other than step is lost to "
                    "training."
                ),
                stacked="percent",
            ),
            timeseries(
                310,
                "Age of the last checkpoint",
                Target(saved.min("job"), "{{job}}"),
                text=(
                    "Time since the activity `checkpoint` last ended in any process: "
                    "the work that a failure would cost."
                ),
                thresholds=q.above(durations.seconds(slos.thresholds.checkpoint_age)),
                alerts=("JaxmonCheckpointAge",),
                no_value="no checkpoint",
            ),
            timeseries(
                306,
                "Items per second",
                Target(items, f"{named} {{{{item}}}}"),
                text=(
                    "Tokens, images or sequences processed per second: the effective "
                    "throughput."
                ),
            ),
        ),
        line(
            timeseries(
                307,
                "Logged values",
                Target(value.avg(*logged), "{{job}} {{name}}"),
                text=(
                    "What the program passes to `jaxmon.log_values`, such as its loss: "
                    "the mean of all processes."
                ),
                no_value="nothing logged",
            ),
            timeseries(
                308,
                "Non-finite values",
                Target(outputs, "{{job}} {{name}} outputs"),
                Target(run, "{{job}} {{name}} logged"),
                text=(
                    "Small outputs of a function that were finite and are NaN now, and "
                    "logged values since the last finite one. A few that go away are "
                    "normal with dynamic loss scaling; otherwise the run is lost from "
                    "there on."
                ),
                alerts=("JaxmonNonFinite",),
            ),
            timeseries(
                309,
                "Spikes of logged values",
                Target(spikes, "{{job}} {{name}}"),
                text=(
                    "Logged values far above those before them, per graph interval. "
                    "Of a loss: look at that batch, and clip gradients."
                ),
                no_value="nothing logged",
            ),
        ),
    )


def debug() -> Row:
    """Return how step time is distributed, over time and over processes."""
    steps = histogram(catalog.STEP_SECONDS, *q.PROCESS)
    by = (*q.BY_PROCESS, "loop")
    named = f"{q.NAMED_PROCESS} {{{{loop}}}}"
    waited = counter(catalog.DATA_WAIT_SECONDS, *q.PROCESS).rate().sum(*by)
    return row(
        15,
        "Steps",
        line(
            heatmap(
                1501,
                "Steps by duration",
                Target(steps.buckets(), "{{le}}"),
                text=(
                    "Distribution of step times. A second band far above the first: "
                    "steps that recompile or wait for a checkpoint."
                ),
            ),
            timeseries(
                1502,
                "Mean step time by process",
                Target(q.known(steps.mean(*by)), named),
                text=(
                    "With collectives, all processes wait for the slowest; if times "
                    "differ without collectives, check the slow host."
                ),
                alerts=("JaxmonStraggler",),
            ),
            timeseries(
                1503,
                "Data wait by process",
                Target(waited, named),
                text="Fraction of time each process waits for its next batch.",
                maximum=1,
            ),
        ),
    )
