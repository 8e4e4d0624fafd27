"""Training loop panels."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.host.formats import durations
from jaxmon.promql import call, counter, histogram
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import (
    Row,
    Target,
    heatmap,
    line,
    row,
    timeseries,
)


def oncall(slos: Slos) -> Row:
    """Return the signals of a training job."""
    by = ("job", "loop")
    named = "{{job}} {{loop}}"
    p95 = q.known(overviews.STEP_SECONDS(q.JOB).quantile(0.95, *by).of_unit("seconds"))
    spent = overviews.ACTIVITY(q.JOB)
    # The legend has values, which of many processes are many seconds per second.
    activity = (spent.sum("activity") / call("scalar", spent.sum())).of_unit("ratio")
    logged, saved = ("job", "name"), overviews.CHECKPOINT_AGE(q.JOB).min("job")
    return row(
        4,
        "Training",
        line(
            timeseries(
                301,
                "Steps per second",
                Target(overviews.STEPS(q.JOB).sum(*by).least(q.FEW), named),
                text=(
                    "Steps completed per second, of the 20 slowest loops. A drop to 0 "
                    "with the process alive is a hang."
                ),
                alerts=("JaxmonTrainingStalled",),
            ),
            timeseries(
                302,
                "Step time",
                Target(
                    overviews.STEP_MEAN(q.JOB).max(*by).worst(q.FEW), f"mean {named}"
                ),
                Target(p95.worst(q.FEW), f"p95 {named}"),
                text=(
                    "From one step to the next, including data wait, of the 20 slowest "
                    "loops. p95 far above the mean: recompiles, checkpoints, or one "
                    "slow host."
                ),
            ),
            timeseries(
                303,
                "Data wait ratio",
                Target(overviews.DATA_WAIT(q.JOB).max(*by).worst(q.FEW), named),
                text=(
                    "Fraction of step time spent waiting for data, of the 20 loops "
                    "with the most. Near 0 the devices are the bottleneck, near 1 the "
                    "input pipeline."
                ),
                maximum=1,
                alerts=("JaxmonDataStarvation",),
            ),
        ),
        line(
            timeseries(
                304,
                "Age of the last step",
                Target(overviews.STEP_AGE(q.JOB).max(*by).worst(q.FEW), named),
                text=(
                    "Time since the slowest process of a running loop finished a "
                    "step, of the 20 worst. The line is the alert threshold."
                ),
                thresholds=q.above(durations.seconds(slos.limits.stalled_after)),
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
                Target(saved.worst(q.FEW), "{{job}}"),
                text=(
                    "Time since the activity `checkpoint` last ended in any process, "
                    "of the 20 worst services: the work that a failure would cost."
                ),
                thresholds=q.above(durations.seconds(slos.limits.checkpoint_age)),
                alerts=("JaxmonCheckpointAge",),
                no_value="No checkpoint",
            ),
            timeseries(
                306,
                "Items per second",
                Target(
                    overviews.ITEMS(q.JOB).sum(*by, "item").worst(q.FEW),
                    f"{named} {{{{item}}}}",
                ),
                text=(
                    "Tokens, images or sequences processed per second, the 20 "
                    "largest: the effective throughput."
                ),
            ),
        ),
        line(
            timeseries(
                307,
                "Logged values",
                Target(
                    overviews.VALUE(q.JOB).avg(*logged).worst(q.FEW), "{{job}} {{name}}"
                ),
                text=(
                    "What the program passes to `jaxmon.log_values`, such as its loss: "
                    "the mean of all processes, the 20 largest."
                ),
                no_value="Nothing logged",
            ),
            timeseries(
                308,
                "Non-finite values",
                *(
                    Target(
                        series(q.JOB).max(*logged).worst(q.FEW),
                        f"{{{{job}}}} {{{{name}}}} {what}",
                    )
                    for series, what in (
                        (overviews.NONFINITE, "outputs"),
                        (overviews.NONFINITE_RUN, "logged"),
                    )
                ),
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
                Target(
                    overviews.SPIKES(q.JOB).sum(*logged).worst(q.FEW),
                    "{{job}} {{name}}",
                ),
                text=(
                    "Logged values far above those before them, within five minutes. "
                    "Of a loss: look at that batch, and clip gradients."
                ),
                no_value="Nothing logged",
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
                Target(q.known(steps.mean(*by)).worst(q.FEW), named),
                text=(
                    "Of the 20 slowest processes. With collectives, all processes wait "
                    "for the slowest; if times differ without collectives, check the "
                    "slow host."
                ),
                alerts=("JaxmonStraggler",),
            ),
            timeseries(
                1503,
                "Data wait by process",
                Target(waited.worst(q.FEW), named),
                text="Fraction of time that the 20 slowest wait for their next batch.",
                maximum=1,
            ),
        ),
    )
