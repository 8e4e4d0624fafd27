"""Training loop panels."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts.alerts.training import FOR_OTHERS, waits_less
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import heatmap, line, row, timeseries
from jaxmon.artifacts.dashboards.model import Line, Row, Target
from jaxmon.artifacts.overviews import training as overviews
from jaxmon.artifacts.promql import Expr, call, counter, gauge, histogram, ratio, re
from jaxmon.artifacts.slo import Slos, durations


_NO_INSPECTOR = "No NCCL Inspector"


def oncall(slos: Slos) -> Row:
    """Return the signals of a training job."""
    by = ("job", "loop")
    named = "{{job}} {{loop}}"
    seconds = tuple(
        (q.known(quantile.of_unit("seconds")).worst(q.FEW), f"p{p * 100:g} {named}")
        for p in (0.5, 0.99)
        for quantile in (overviews.STEP_SECONDS(q.JOB).quantile(p, *by),)
    )
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
                *(Target(quantile, legend) for quantile, legend in seconds),
                text=(
                    "From one step to the next, including data wait, of the 20 slowest "
                    "loops. p99 far above p50: recompiles, checkpoints, or one slow "
                    "host."
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
                Target(saved.worst(q.FEW), "{{job}}"),
                text=(
                    "Time since the activity `checkpoint` last ended in any process, "
                    "of the 20 worst services: the work that a failure would cost."
                ),
                thresholds=q.above(durations.seconds(slos.thresholds.checkpoint_age)),
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
    lagging = gauge(catalog.NCCL_LAGGING_RANKS, *q.HOST)
    gone = gauge(catalog.NCCL_PROCESSES, *q.HOST, re("state", "unresponsive|dead"))
    waiting = counter(catalog.WALL_SECONDS, *q.PROCESS, re("state", FOR_OTHERS))
    waits = waiting.rate().sum(*q.BY_PROCESS).of_unit("ratio")
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
        line(
            timeseries(
                1504,
                "Stuck ranks",
                Target(
                    gauge(catalog.CALL_AGE_SECONDS, *q.PROCESS)
                    .max(*q.BY_PROCESS, "state")
                    .worst(q.FEW),
                    f"{q.NAMED_PROCESS} {{{{state}}}}",
                ),
                text=(
                    "Time since the last call of processes of a job that do not get "
                    "on; empty otherwise. In a hang most of them wait for the device: "
                    "those in another state are whom they wait for. `jaxmon job why` "
                    "says on which line."
                ),
                alerts=("JaxmonRankStuck",),
                no_value="None is stuck",
            ),
            timeseries(
                1505,
                "Ranks behind or missing, by NCCL",
                Target(lagging.max("job").worst(q.FEW), "{{job}} lagging"),
                Target(gone.max("job", "state").worst(q.FEW), "{{job}} {{state}}"),
                text=(
                    "Ranks that are behind in a communicator in which nothing moves, "
                    "and processes that NCCL cannot reach, of the 20 jobs with the "
                    "most; 0 if all is well. The runbook asks for their hosts."
                ),
                alerts=("JaxmonNcclStuck",),
                no_value="No job with NCCL 2.24",
            ),
            timeseries(
                1506,
                "Stragglers",
                Target(waits_less(waits).worst(q.FEW), q.NAMED_PROCESS),
                text=(
                    "How much less of its time a process waits for its device than the "
                    "median one of its job, of the 20 with the least: the others wait "
                    "for it in collectives, if it hardly waits at all. Near 0 for all "
                    "in a healthy job. `jaxmon job why` says what it does meanwhile."
                ),
                alerts=("JaxmonRankSlow",),
            ),
        ),
        _collectives(),
    )


def _collectives() -> Line:
    """Return what NCCL Inspector records."""

    def rate(metric: catalog.Metric, *by: str) -> Expr:
        return counter(metric, *q.PROCESS).rate().sum(*by)

    kind, process = ("job", "collective"), (*q.BY_PROCESS, "collective")
    named, sized = "{{job}} {{collective}}", (*kind, "size")
    bandwidth = ratio(
        rate(catalog.NCCL_BUS_BYTES, *sized),
        rate(catalog.NCCL_COLLECTIVE_SECONDS, *sized),
    ).of_unit("bytes per second")
    mean = ratio(
        rate(catalog.NCCL_COLLECTIVE_SECONDS, *process),
        rate(catalog.NCCL_COLLECTIVES_RECORDED, *process),
    ).of_unit("seconds")
    return line(
        timeseries(
            1507,
            "Bus bandwidth of collectives",
            Target(bandwidth.least(q.FEW), f"{named} {{{{size}}}}"),
            text=(
                "Mean by time, of the 20 lowest, by NCCL Inspector. The bus idles "
                "while ranks wait for the last one: it falls if the network is slower, "
                "and if ranks come at different times."
            ),
            no_value=_NO_INSPECTOR,
        ),
        timeseries(
            1508,
            "Time of collectives by process",
            Target(mean.least(q.FEW), f"{q.NAMED_PROCESS} {{{{collective}}}}"),
            text=(
                "Mean time of the kernels, of the 20 shortest. A kernel waits for the "
                "last rank to arrive, so the process with the shortest kernels is the "
                "one that arrives last. `jaxmon job why` compares the ranks of each "
                "communicator."
            ),
            no_value=_NO_INSPECTOR,
        ),
        timeseries(
            1509,
            "Collectives",
            *(
                Target(
                    rate(metric, *kind).worst(q.FEW),
                    f"{{{{job}}}} {{{{collective}}}}{what}",
                )
                for metric, what in (
                    (catalog.NCCL_COLLECTIVES_RECORDED, ""),
                    (catalog.NCCL_UNRECORDED_COLLECTIVES, " unrecorded"),
                )
            ),
            text=(
                "Collectives per second that NCCL Inspector recorded, and others that "
                "were launched: small ones, and with NCCL before 2.30.3 all but the "
                "last of each interval."
            ),
            no_value=_NO_INSPECTOR,
        ),
    )
