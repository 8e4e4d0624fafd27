"""Panels of the training loop, and of what restarts cost."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.run import CHECKPOINT, FEWEST_FAILURES, OUTSIDE, STOPPED
from jaxmon.promql import (
    RATE_INTERVAL,
    Expr,
    Matcher,
    call,
    counter,
    eq,
    gauge,
    histogram,
    ne,
    re,
)
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, heatmap, row, timeseries


@row(4, "Training", lines=(3, 4, 3))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return the signals of a training job."""
    by = ("job", "loop")
    p95 = q.defined(
        overviews.STEP_SECONDS(q.JOB).quantile(0.95, *by).of_unit("seconds")
    )
    spent = overviews.ACTIVITY(q.JOB)
    # The legend has values, which of many processes are many seconds per second.
    activity = (spent.sum("activity") / call("scalar", spent.sum())).of_unit("ratio")
    logged, saved = ("job", "name"), overviews.CHECKPOINT_AGE(q.JOB).min("job")
    yield timeseries(301, "Steps per second")(
        overviews.STEPS(q.JOB).sum(*by).least(q.FEW),
        text="Steps completed per second, of the 20 slowest loops. A drop to 0 with "
        "the process alive is a hang.",
        alerts=("JaxmonTrainingStalled",),
    )
    yield timeseries(302, "Step time")(
        Target(
            overviews.STEP_MEAN(q.JOB).max(*by).worst(q.FEW), "mean {{job}} {{loop}}"
        ),
        Target(p95.worst(q.FEW), "p95 {{job}} {{loop}}"),
        text="From one step to the next, including data wait, of the 20 slowest loops. "
        "p95 far above the mean: recompiles, checkpoints, or one slow host.",
    )
    yield timeseries(303, "Data wait ratio")(
        overviews.DATA_WAIT(q.JOB).max(*by).worst(q.FEW),
        text="Fraction of step time spent waiting for data, of the 20 loops with the "
        "most. Near 0 the devices are the bottleneck, near 1 the input pipeline.",
        alerts=("JaxmonTimeLost",),
    )
    yield timeseries(304, "Age of the last step")(
        overviews.STEP_AGE(q.JOB).max(*by).worst(q.FEW),
        text="Time since the slowest process of a running loop finished a step, of the "
        "20 worst. The line is the alert threshold.",
        thresholds=q.above(slos.limits.stalled_after),
        alerts=(*q.alert_of(slos, "step-freshness"), "JaxmonTrainingStalled"),
    )
    yield timeseries(305, "Time by activity")(
        activity,
        text="Wall time by activity. Anything other than step is lost to training.",
        unbounded=True,
        stacked="percent",
    )
    yield timeseries(310, "Age of the last checkpoint")(
        saved.worst(q.FEW),
        text="Time since the activity `checkpoint` last ended in any process, of the "
        "20 worst services: the work that a failure would cost.",
        thresholds=q.above(slos.limits.checkpoint_age),
        alerts=("JaxmonCheckpointFailed",),
        no_value="No checkpoint",
    )
    yield timeseries(306, "Items per second")(
        overviews.ITEMS(q.JOB).sum(*by, "item").worst(q.FEW),
        text="Tokens, images or sequences processed per second, the 20 largest: the "
        "effective throughput.",
    )
    yield timeseries(307, "Logged values")(
        overviews.VALUE(q.JOB).avg(*logged).worst(q.FEW),
        text="What the program passes to `jaxmon.log_values`, such as its loss: the "
        "mean of all processes, the 20 largest.",
        no_value="Nothing logged",
    )
    yield timeseries(308, "Non-finite values")(
        *(
            Target(series(q.JOB).max(*logged).worst(q.FEW), what)
            for series, what in (
                (overviews.NONFINITE, "outputs"),
                (overviews.NONFINITE_RUN, "logged"),
            )
        ),
        text="Small outputs of a function that were finite and are NaN now, and logged "
        "values since the last finite one. A few that go away are normal with dynamic "
        "loss scaling; otherwise the run is lost from there on.",
        alerts=("JaxmonNonFinite",),
    )
    yield timeseries(309, "Spikes of logged values")(
        overviews.SPIKES(q.JOB).sum(*logged).worst(q.FEW),
        text="Logged values far above those before them, within five minutes. Of a "
        "loss: look at that batch, and clip gradients.",
        no_value="Nothing logged",
    )


@row(15, "Steps", lines=(3,))
def debug() -> Iterator[Panel]:
    """Return how step time is distributed, over time and over processes."""
    steps = histogram(catalog.STEP_SECONDS, *q.PROCESS)
    by = (*q.BY_PROCESS, "loop")
    yield heatmap(1501, "Steps by duration")(
        steps.buckets(),
        text="Distribution of step times. A second band far above the first: steps "
        "that recompile or wait for a checkpoint.",
    )
    yield timeseries(1502, "Mean step time by process")(
        q.defined(steps.mean(*by)).worst(q.FEW),
        text="Of the 20 slowest processes. With collectives, all processes wait for "
        "the slowest; if times differ without collectives, check the slow host.",
        alerts=("JaxmonStraggler",),
    )
    yield timeseries(1503, "Data wait by process")(
        counter(catalog.DATA_WAIT_SECONDS, *q.PROCESS).rate().sum(*by).worst(q.FEW),
        text="Fraction of time that the 20 slowest wait for their next batch.",
    )


_BY = ("job", "run")
_NONE = "No run with a record"
_IN_LOOP = [activity for activity in catalog.RUN_ACTIVITIES if activity not in OUTSIDE]


@row(39, "Goodput across restarts", lines=(3, 3, 2))
def across_restarts(slos: Slos) -> Iterator[Panel]:
    """Return what the wall time of runs went into, and how often they restarted."""
    limit = slos.limits
    interrupted = _latest(catalog.RUN_INTERRUPTIONS, *_BY, "ending")
    up = _latest(catalog.RUN_SECONDS, *_BY, "activity", only=ne("activity", "waiting"))
    resumed = _latest(catalog.RUN_RESUME_SECONDS, *_BY)
    every, best = _between_saves(up.sum(*_BY))
    after = resumed / (_latest(catalog.RUN_RESUMES, *_BY) > 0)
    yield timeseries(3901, "Goodput since the first attempt")(
        _goodput().least(10),
        text="Fraction of the wall time since a run first began that went into steps "
        "that last, of the 10 lowest: not into restarts, steps done again, compiles, "
        "data, checkpoints. `jaxmon job goodput` prints the same of a run that is not "
        "there now.",
        thresholds=q.below(limit.goodput),
        alerts=("JaxmonGoodputLow",),
        no_value=_NONE,
    )
    yield timeseries(3902, "What the wall time of runs went into")(
        _latest(catalog.RUN_SECONDS, *_BY, "activity").sum("activity"),
        text="Of all runs together, since their first attempts: lost_progress are "
        "steps done again, waiting is between attempts, recovery from a restart to its "
        "first step.",
        stacked="percent",
        no_value=_NONE,
    )
    yield timeseries(3903, "Interruptions")(
        interrupted.worst(10),
        text="Attempts that ended before the current one: crashed by an error, killed "
        "without a word, stopped in order, or unseen by jaxmon and counted by the "
        "scheduler; the 10 largest. `jaxmon job post-mortem` says what failed first.",
        no_value=_NONE,
    )
    yield timeseries(3904, "Time between interruptions")(
        (up.sum(*_BY) / (interrupted.sum(*_BY) > 0)).of_unit("seconds").least(10),
        text="Wall time of a run by interruption, without waiting, of the 10 shortest.",
        no_value="No interruption",
    )
    yield timeseries(3908, "Time between saves")(
        Target(every.of_unit("seconds").worst(10), "now"),
        Target(best.of_unit("seconds").worst(10), "loses least"),
        text="Time in the loop for each checkpoint, of the 10 longest, and what would "
        "lose least to saves and failures: the root of twice the time of a save times "
        "the time between failures (Young's formula), known after two failures that "
        "were no orderly exit.",
        no_value="No run is known to save",
    )
    yield timeseries(3906, "Steps done again")(
        _latest(catalog.RUN_LOST_STEPS, *_BY).worst(10),
        text="Steps that were lost because the last checkpoint did not have them, of "
        "the 10 runs with most. Save more often, or on a notice of preemption.",
        no_value=_NONE,
    )
    yield timeseries(3905, "Time to resume")(
        after.of_unit("seconds").worst(10),
        text="Mean time from an interruption to the end of the next step, of the 10 "
        "longest: detection, scheduling, startup, restore, compile.",
        no_value="No interruption",
    )
    yield timeseries(3907, "Attempts without progress")(
        gauge(catalog.RUN_FRUITLESS_ATTEMPTS, *q.PROCESS).max(*_BY).worst(10),
        text="Attempts in a row, with the current one, that have done no new step; 0 "
        "with progress.",
        thresholds=q.above(limit.fruitless_attempts),
        alerts=("JaxmonRunNoProgress",),
        no_value=_NONE,
    )


def _between_saves(up: Expr) -> tuple[Expr, Expr]:
    """Return the time between the saves of each run, and what would lose least."""
    saving = _latest(catalog.RUN_SECONDS, *_BY, only=eq("activity", CHECKPOINT))
    failed = _latest(
        catalog.RUN_INTERRUPTIONS, *_BY, "ending", only=ne("ending", STOPPED)
    )
    saves = _latest(catalog.RUN_SAVES, *_BY) > 0
    between = up / (failed.sum(*_BY) >= FEWEST_FAILURES)
    # Saves that take longer than that are not what the formula is about.
    return _latest(
        catalog.RUN_SECONDS, *_BY, "activity", only=re("activity", "|".join(_IN_LOOP))
    ).sum(*_BY) / saves, call("sqrt", (saving / saves > 0) * 2 * between) < between


def _goodput() -> Expr:
    step = _latest(catalog.RUN_SECONDS, *_BY, only=eq("activity", "step"))
    return step / _latest(catalog.RUN_SECONDS, *_BY, "activity").sum(*_BY)


def _latest(metric: catalog.Metric, *by: str, only: Matcher | None = None) -> Expr:
    """Return the count of the latest attempt, which continues those before."""
    matchers = (*(() if only is None else (only,)), *q.PROCESS)
    return counter(metric, *matchers).latest(RATE_INTERVAL).max(*by)
