"""Training: loops, runs and their ranks, and what restarts cost."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import (
    RATE_INTERVAL,
    Expr,
    call,
    counter,
    eq,
    events,
    gauge,
    histogram,
    re,
)
from jaxmon.symptoms.job import slower, waits
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import model
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.rows import functions, monitoring, services


@model.row(4, "Training", lines=(3, 3, 3))
def oncall(slos: Slos) -> Iterator[model.Panel]:
    """Return the signals of a training job."""
    spent = overviews.ACTIVITY(q.JOB)
    # The legend has values, which of many processes are many seconds per second.
    activity = (spent.sum("activity") / call("scalar", spent.sum())).of_unit("ratio")
    yield model.timeseries(302, "Step time")(
        overviews.STEP_MEAN(q.JOB).worst(q.FEW),
        text="Mean time from one step to the next, including data wait, of the 20 "
        "slowest loops. Loops, on Training, has p95: far above the mean are "
        "recompiles, checkpoints, or one slow host.",
    )
    yield model.timeseries(303, "Data wait ratio")(
        overviews.DATA_WAIT(q.JOB).worst(q.FEW),
        text="Fraction of step time spent waiting for data, of the 20 loops with the "
        "most. Near 0 the devices are the bottleneck, near 1 the input pipeline.",
        alerts=("JaxmonTimeLost",),
    )
    yield model.timeseries(304, "Age of the last step")(
        overviews.STEP_AGE(q.JOB).worst(q.FEW),
        text="Time since the slowest process of a running loop finished a step, of the "
        "20 worst. The line is the alert threshold.",
        thresholds=q.above(slos.limits.stalled_after),
        alerts=(*q.alert_of(slos, "step-freshness"), "JaxmonTrainingStalled"),
    )
    yield model.timeseries(305, "Time by activity")(
        activity,
        text="Wall time by activity. Anything other than step is lost to training.",
        unbounded=True,
        stacked="percent",
    )
    yield model.timeseries(310, "Age of the last checkpoint")(
        q.worst_of(overviews.CHECKPOINT_AGE()),
        text="Time since the activity `checkpoint` last ended in any process, of the "
        "20 worst services: the work that a failure would cost.",
        thresholds=q.above(slos.limits.checkpoint_age),
        alerts=("JaxmonCheckpointFailed",),
        no_value="No checkpoint",
    )
    yield model.timeseries(306, "Items per second")(
        overviews.ITEMS(q.JOB).worst(q.FEW),
        text="Tokens, images or sequences processed per second, the 20 largest: the "
        "effective throughput.",
    )
    yield model.timeseries(307, "Logged values")(
        overviews.VALUE(q.JOB).worst(q.FEW),
        text="What the program passes to `jaxmon.log_values`, such as its loss: the "
        "mean of all processes, the 20 largest.",
        no_value="Nothing logged",
    )
    yield model.timeseries(309, "Spikes of logged values")(
        overviews.SPIKES(q.JOB).worst(q.FEW),
        text="Logged values far above those before them, within five minutes. Of a "
        "loss: look at that batch, and clip gradients.",
        no_value="No spikes",
    )
    yield model.timeseries(308, "Non-finite values")(
        model.Target(overviews.NONFINITE(q.JOB).worst(q.FEW), "outputs"),
        model.Target(overviews.NONFINITE_RUN(q.JOB).worst(q.FEW), "logged"),
        text="Small outputs of a function that were finite and are NaN now, and logged "
        "values since the last finite one. A few that go away are normal with dynamic "
        "loss scaling; otherwise the run is lost from there on.",
        alerts=("JaxmonNonFinite",),
    )


@model.row(15, "Steps", lines=(2,))
def debug() -> Iterator[model.Panel]:
    """Return how steps are distributed over time and processes."""
    steps = histogram(catalog.STEP_SECONDS, *q.PROCESS)
    pace = counter(catalog.STEPS, *q.PROCESS).rate()
    yield model.heatmap(1501, "Steps by duration")(
        steps.buckets(),
        text="Distribution of step times. A second band far above the first: steps "
        "that recompile or wait for a checkpoint.",
    )
    yield model.timeseries(1502, "Steps per second by process")(
        model.Target(pace.median(), "median"),
        model.Target(pace.min(), "lowest"),
        text="Of all selected processes: select one service. With collectives they are "
        "alike; without, the lowest is held up by its host or its input.",
        alerts=("JaxmonStraggler",),
    )


_RUN = ("job", "run")


@model.row(
    39,
    "Goodput across restarts; empty without a run",
    lines=(4, 3),
    collapsed=True,
    no_value="No run with a record",
)
def across_restarts(slos: Slos) -> Iterator[model.Panel]:
    """Return what the wall time of runs went into, and how often they restarted."""
    limit = slos.limits
    seconds = counter(catalog.RUN_SECONDS, *q.PROCESS).latest(RATE_INTERVAL)
    yield model.timeseries(3901, "Goodput since the first attempt")(
        overviews.RUN_GOODPUT(q.JOB).least(10),
        text="Fraction of the wall time since a run first began that went into steps "
        "that last, of the 10 lowest: not into restarts, steps done again, compiles, "
        "data, checkpoints. `jaxmon job goodput` prints the same of a run that is not "
        "there now.",
        thresholds=q.below(limit.goodput),
        alerts=("JaxmonGoodputLow",),
    )
    yield model.timeseries(3902, "What the wall time of runs went into")(
        seconds.max(*_RUN, "activity").sum("activity"),
        text="Of all runs together, since their first attempts: lost_progress are "
        "steps done again, waiting is between attempts, recovery from a restart to its "
        "first step.",
        stacked="percent",
    )
    yield model.timeseries(3903, "Interruptions")(
        overviews.RUN_INTERRUPTIONS(q.JOB).worst(10),
        text="Attempts that ended before the current one: crashed by an error, ended "
        "without a record, stopped in order, or unseen by jaxmon and counted by the "
        "scheduler; the 10 largest. `jaxmon job post-mortem` says what failed first.",
    )
    yield model.timeseries(3908, "Time between saves")(
        overviews.RUN_SAVE_SECONDS(q.JOB).worst(10),
        text="Time in the loop for each checkpoint, of the 10 longest. `jaxmon job "
        "goodput` says what would lose least to saves and failures.",
        no_value="No run is known to save",
    )
    yield model.timeseries(3906, "Steps done again")(
        overviews.RUN_LOST_STEPS(q.JOB).worst(10),
        text="Steps that were lost because the last checkpoint did not have them, of "
        "the 10 runs with most. Save more often, or on a notice of preemption.",
    )
    yield model.timeseries(3905, "Time to resume")(
        overviews.RUN_RESUME_SECONDS(q.JOB).worst(10),
        text="Mean time from an interruption to the end of the next step, of the 10 "
        "longest: detection, scheduling, startup, restore, compile.",
        no_value="No interruption",
    )
    yield model.timeseries(3907, "Attempts without progress")(
        overviews.RUN_FRUITLESS(q.JOB).worst(10),
        text="Attempts in a row, with the current one, that have done no new step; 0 "
        "with progress.",
        thresholds=q.above(limit.fruitless_attempts),
        alerts=("JaxmonRunNoProgress",),
    )


_LOOP = ("job", "loop")


@model.row(32, "Ranks", lines=(2, 3))
def ranks(slos: Slos) -> Iterator[model.Panel]:
    """Return which rank holds up the others."""
    stuck = gauge(catalog.CALL_AGE_SECONDS, *q.PROCESS).max(*q.BY_PROCESS, "state")
    yield model.table(3205, "Stuck ranks")(
        model.Target(stuck.topk(q.FEW), "Last call"),
        text="Time since the last call of processes of a job without progress; empty "
        "otherwise. In a hang most of them wait for the device, and the cause is a "
        "process in another state. `jaxmon job why` says on which line it is.",
        alerts=("JaxmonRankStuck",),
        no_value="None is stuck",
        sort="Last call",
    )
    yield model.timeseries(3206, "Stragglers")(
        q.worst_of(waits(slos.limits)[2]),
        text="How much less of its time a process waits for its device than the median "
        "one of its job, of the 20 with the least: the others wait for it in "
        "collectives, if it hardly waits at all. Empty or near 0 in a healthy job. "
        "`jaxmon job why` says what it does meanwhile.",
        unbounded=True,
        alerts=("JaxmonStraggler",),
        no_value="None waits less",
    )
    yield monitoring.oncall().panel("Processes that crashed")
    yield model.timeseries(3201, "Step time against the median rank")(
        q.worst_of(overviews.SLOW_RANKS(), 10),
        text="Step time of the slowest ranks as a multiple of the median of their "
        "loop, within five minutes. All equal with collectives, which make every rank "
        "wait for the slowest: then compare device time.",
        thresholds=q.above(slos.limits.straggler),
        no_value="None is slower",
    )
    yield model.timeseries(3202, "Device time against the median rank")(
        slower(slos.limits).where(q.JOB).worst(10),
        text="Time that a call takes on the device of a rank, as a multiple of the "
        "median rank's, of functions that each runs for itself: a straggler's device "
        "takes longer for the same work.",
        thresholds=q.above(slos.limits.straggler),
        alerts=("JaxmonStraggler",),
        no_value="None takes longer",
    )


def step_age() -> Expr:
    """Return the time since each process of a running loop finished a step."""
    return gauge(catalog.STEP_AGE_SECONDS, *q.PROCESS)


_NO_INSPECTOR = "No NCCL Inspector"


@model.row(27, "Collectives; empty without NCCL", lines=(3,), collapsed=True)
def inspected() -> Iterator[model.Panel]:
    """Return how fast collectives are, which process arrives last, or is missing."""
    lagging = q.host(catalog.NCCL_LAGGING_RANKS).max()
    missing = q.host(catalog.NCCL_PROCESSES, re("state", "unresponsive|dead"))
    yield model.timeseries(2701, "Bus bandwidth of collectives")(
        overviews.BANDWIDTH(q.JOB).least(q.FEW),
        text="Mean by time, of the 20 lowest, by NCCL Inspector. The bus idles while "
        "ranks wait for the last one: it falls if the network is slower, and if ranks "
        "arrive at different times.",
        no_value=_NO_INSPECTOR,
    )
    yield model.timeseries(2702, "Ranks that arrive late at collectives")(
        q.least_of(overviews.LATE()),
        text="Mean time of a collective's kernels as a multiple of the median "
        "process's, of the 20 with the least. A kernel waits for the last rank to "
        "arrive, so the last one has the shortest kernels. `jaxmon job why` compares "
        "the ranks of each communicator.",
        no_value="None arrives late",
    )
    yield model.timeseries(3207, "Ranks behind or missing, by NCCL")(
        model.Target(lagging, "lagging"),
        missing.max("state"),
        text="Ranks that are behind in a communicator in which nothing moves, and "
        "processes that NCCL cannot reach, in the job with the most; 0 if all is "
        "well. The runbook asks for their hosts.",
        alerts=("JaxmonRankStuck",),
        no_value="No job with NCCL 2.24",
    )


_LOST = "data_wait|eager|gc|gil|blocked"


@model.row(30, "Runs", lines=(6, 1))
def glance(slos: Slos) -> Iterator[model.Panel]:
    """Return the state of all runs, and one line for each."""
    current = services.oncall(slos)
    limit = slos.limits
    yield current.panel("Oldest step")
    yield model.stat(3002, "Goodput")(
        overviews.GOODPUT(q.JOB).min(),
        text="Fraction of the marked time of the worst service that is spent in steps, "
        "rather than waiting for data, compiling, saving or evaluating; without rests.",
    )
    yield model.stat(3003, "Slowest rank")(
        overviews.SLOW_RANKS(q.JOB).max(),
        text="Step time of the slowest rank of any loop as a multiple of the median's. "
        "Without collectives all ranks wait for it at the next barrier; see Ranks.",
        thresholds=q.above(slos.limits.straggler),
        no_value="None is slower",
    )
    yield model.stat(3004, "Data wait")(
        overviews.WAITING(q.JOB, eq("state", "data_wait")).max(),
        text="Fraction of its time that the worst process in a loop waits for data. "
        "The accelerators idle meanwhile.",
        thresholds=q.above(limit.data_wait),
    )
    yield model.stat(3005, "Last save")(
        gauge(catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint"), *q.PROCESS)
        .min("job")
        .max(),
        text="What a failure would cost the service that saved longest ago.",
        thresholds=q.above(limit.checkpoint_age),
        no_value="No checkpoint",
    )
    yield model.stat(3006, "Non-finite run")(
        gauge(catalog.VALUE_NONFINITE_RUN, *q.PROCESS).max(),
        text="Logged values since the last finite one, of the worst quantity. A loss "
        "that stays NaN has lost the run from there on.",
        thresholds=q.above(limit.nonfinite_values),
    )
    slow = overviews.SLOW_RANKS(q.JOB)
    steps, waits = histogram(catalog.STEP_SECONDS, *q.PROCESS), q.above(limit.data_wait)
    yield model.table(3007, "Loops")(
        model.Target(step_age().count(*_LOOP), "Ranks"),
        model.Target(counter(catalog.STEPS, *q.PROCESS).rate().max(*_LOOP), "Steps"),
        model.Target(overviews.STEP_MEAN(q.JOB).max(*_LOOP), "Step time"),
        model.Target(q.defined(steps.quantile(0.95, *_LOOP)), "p95"),
        model.Target(slow.max(*_LOOP), "Slowest rank", q.above(slos.limits.straggler)),
        model.Target(overviews.DATA_WAIT(q.JOB).max(*_LOOP), "Data wait", waits),
        model.Target(counter(catalog.ITEMS, *q.PROCESS).rate().sum(*_LOOP), "Items"),
        model.Target(step_age().max(*_LOOP), "Last step", q.above(limit.stalled_after)),
        text="One line per loop. Steps of one rank, items of all ranks; the slowest "
        "rank as a multiple of the median. The name selects the service.",
        height=6,
        cell_links=(q.opening("job", "Show only this service", "training"),),
        no_value="No loops",
        sort="Last step",
    )


@model.row(31, "Where the time of runs goes", lines=(4, 3))
def time() -> Iterator[model.Panel]:
    """Return what the time of the runs goes into."""
    saving = gauge(
        catalog.ACTIVITY_RUNNING_SECONDS, eq("activity", "checkpoint"), *q.PROCESS
    )
    yield services.cost().panel("Goodput of services")
    yield model.timeseries(3102, "Time lost on the host")(
        q.worst_of(overviews.WAITING(), 10, re("state", _LOST)),
        text="Fraction of time that the worst rank of each service spends on what "
        "keeps its device waiting. `jaxmon explain` names the lines.",
        alerts=("JaxmonTimeLost",),
        no_value="No loops",
    )
    yield functions.calls().panel("Where the time goes")
    yield model.timeseries(3103, "Checkpoint in progress")(
        model.Target(saving.max(), "oldest"),
        text="Age of the oldest checkpoint that is being written, 0 if none. One that "
        "keeps growing hangs in its storage.",
        alerts=("JaxmonCheckpointFailed",),
        no_value="No checkpoint",
    )
    yield model.timeseries(3107, "Model FLOPs utilization")(
        overviews.MFU(q.JOB).least(10),
        text="FLOPs of matrix products and convolutions that the model needs, as a "
        "fraction of what the devices could do; the lowest services. Low with busy "
        "devices: small products, recomputation, memory. Processes that call functions "
        "of unknown FLOPs are left out.",
        no_value="No known peak",
    )
    seconds = histogram(catalog.CHECKPOINT_SECONDS, *q.PROCESS)
    failed = events.CHECKPOINT_FAILURES.within(RATE_INTERVAL, *q.PROCESS)
    yield model.timeseries(3105, "Checkpoints that failed")(
        failed.sum("operation"),
        text="Orbax saves and restores that began and did not succeed.",
        alerts=("JaxmonCheckpointFailed",),
        no_value="No checkpoint",
    )
    yield model.timeseries(3104, "Time of a checkpoint")(
        q.defined(seconds.quantile(0.95, "operation")),
        text="p95 of Orbax checkpoints: a save until it is committed, how long "
        "it blocks the program, how much of that it waits for the save before. Much "
        "wait: saves are more frequent than storage allows.",
        no_value="No checkpoint",
    )
