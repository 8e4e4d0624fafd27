"""Panels of the training loop, and of what restarts cost."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import RATE_INTERVAL, call, counter, histogram
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, heatmap, row, timeseries


@row(4, "Training", lines=(3, 3, 3))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return the signals of a training job."""
    spent = overviews.ACTIVITY(q.JOB)
    # The legend has values, which of many processes are many seconds per second.
    activity = (spent.sum("activity") / call("scalar", spent.sum())).of_unit("ratio")
    yield timeseries(302, "Step time")(
        overviews.STEP_MEAN(q.JOB).worst(q.FEW),
        text="Mean time from one step to the next, including data wait, of the 20 "
        "slowest loops. Loops, on Training, has p95: far above the mean are "
        "recompiles, checkpoints, or one slow host.",
    )
    yield timeseries(303, "Data wait ratio")(
        overviews.DATA_WAIT(q.JOB).worst(q.FEW),
        text="Fraction of step time spent waiting for data, of the 20 loops with the "
        "most. Near 0 the devices are the bottleneck, near 1 the input pipeline.",
        alerts=("JaxmonTimeLost",),
    )
    yield timeseries(304, "Age of the last step")(
        overviews.STEP_AGE(q.JOB).worst(q.FEW),
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
        q.worst_of(overviews.CHECKPOINT_AGE()),
        text="Time since the activity `checkpoint` last ended in any process, of the "
        "20 worst services: the work that a failure would cost.",
        thresholds=q.above(slos.limits.checkpoint_age),
        alerts=("JaxmonCheckpointFailed",),
        no_value="No checkpoint",
    )
    yield timeseries(306, "Items per second")(
        overviews.ITEMS(q.JOB).worst(q.FEW),
        text="Tokens, images or sequences processed per second, the 20 largest: the "
        "effective throughput.",
    )
    yield timeseries(307, "Logged values")(
        overviews.VALUE(q.JOB).worst(q.FEW),
        text="What the program passes to `jaxmon.log_values`, such as its loss: the "
        "mean of all processes, the 20 largest.",
        no_value="Nothing logged",
    )
    yield timeseries(309, "Spikes of logged values")(
        overviews.SPIKES(q.JOB).worst(q.FEW),
        text="Logged values far above those before them, within five minutes. Of a "
        "loss: look at that batch, and clip gradients.",
        no_value="No spikes",
    )
    yield timeseries(308, "Non-finite values")(
        *(
            Target(series(q.JOB).worst(q.FEW), what)
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


@row(15, "Steps", lines=(2,))
def debug() -> Iterator[Panel]:
    """Return how steps are distributed over time and processes."""
    steps = histogram(catalog.STEP_SECONDS, *q.PROCESS)
    pace = counter(catalog.STEPS, *q.PROCESS).rate()
    yield heatmap(1501, "Steps by duration")(
        steps.buckets(),
        text="Distribution of step times. A second band far above the first: steps "
        "that recompile or wait for a checkpoint.",
    )
    yield timeseries(1502, "Steps per second by process")(
        Target(pace.median(), "median"),
        Target(pace.min(), "lowest"),
        text="Of all selected processes: select one service. With collectives they are "
        "alike; without, the lowest is held up by its host or its input.",
        alerts=("JaxmonStraggler",),
    )


_BY = ("job", "run")
_NONE = "No run with a record"


@row(39, "Goodput across restarts; empty without a run", lines=(4, 3), collapsed=True)
def across_restarts(slos: Slos) -> Iterator[Panel]:
    """Return what the wall time of runs went into, and how often they restarted."""
    limit = slos.limits
    seconds = counter(catalog.RUN_SECONDS, *q.PROCESS).latest(RATE_INTERVAL)
    yield timeseries(3901, "Goodput since the first attempt")(
        overviews.RUN_GOODPUT(q.JOB).least(10),
        text="Fraction of the wall time since a run first began that went into steps "
        "that last, of the 10 lowest: not into restarts, steps done again, compiles, "
        "data, checkpoints. `jaxmon job goodput` prints the same of a run that is not "
        "there now.",
        thresholds=q.below(limit.goodput),
        alerts=("JaxmonGoodputLow",),
        no_value=_NONE,
    )
    yield timeseries(3902, "What the wall time of runs went into")(
        seconds.max(*_BY, "activity").sum("activity"),
        text="Of all runs together, since their first attempts: lost_progress are "
        "steps done again, waiting is between attempts, recovery from a restart to its "
        "first step.",
        stacked="percent",
        no_value=_NONE,
    )
    yield timeseries(3903, "Interruptions")(
        overviews.RUN_INTERRUPTIONS(q.JOB).worst(10),
        text="Attempts that ended before the current one: crashed by an error, ended "
        "without a record, stopped in order, or unseen by jaxmon and counted by the "
        "scheduler; the 10 largest. `jaxmon job post-mortem` says what failed first.",
        no_value=_NONE,
    )
    yield timeseries(3908, "Time between saves")(
        overviews.RUN_SAVE_SECONDS(q.JOB).worst(10),
        text="Time in the loop for each checkpoint, of the 10 longest. `jaxmon job "
        "goodput` says what would lose least to saves and failures.",
        no_value="No run is known to save",
    )
    yield timeseries(3906, "Steps done again")(
        overviews.RUN_LOST_STEPS(q.JOB).worst(10),
        text="Steps that were lost because the last checkpoint did not have them, of "
        "the 10 runs with most. Save more often, or on a notice of preemption.",
        no_value=_NONE,
    )
    yield timeseries(3905, "Time to resume")(
        overviews.RUN_RESUME_SECONDS(q.JOB).worst(10),
        text="Mean time from an interruption to the end of the next step, of the 10 "
        "longest: detection, scheduling, startup, restore, compile.",
        no_value="No interruption",
    )
    yield timeseries(3907, "Attempts without progress")(
        overviews.RUN_FRUITLESS(q.JOB).worst(10),
        text="Attempts in a row, with the current one, that have done no new step; 0 "
        "with progress.",
        thresholds=q.above(limit.fruitless_attempts),
        alerts=("JaxmonRunNoProgress",),
        no_value=_NONE,
    )
