"""Training runs and their ranks: at a glance, where time goes, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import Expr, counter, eq, events, gauge, histogram, re
from jaxmon.promql.expressions import RATE_INTERVAL
from jaxmon.symptoms.job import slower, waits
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, stat, table, timeseries
from jaxmon_dashboards.boards.rows import compiles, monitoring, services


_BY = ("job", "loop")


@row(32, "Ranks", lines=(2, 3))
def ranks(slos: Slos) -> Iterator[Panel]:
    """Return which rank holds up the others."""
    stuck = gauge(catalog.CALL_AGE_SECONDS, *q.PROCESS).max(*q.BY_PROCESS, "state")
    yield table(3205, "Stuck ranks")(
        Target(stuck.topk(q.FEW), "Last call"),
        text="Time since the last call of processes of a job without progress; empty "
        "otherwise. In a hang most of them wait for the device, and the cause is a "
        "process in another state. `jaxmon job why` says on which line it is.",
        alerts=("JaxmonRankStuck",),
        no_value="None is stuck",
        sort="Last call",
    )
    yield timeseries(3206, "Stragglers")(
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
    yield timeseries(3201, "Step time against the median rank")(
        q.worst_of(overviews.SLOW_RANKS(), 10),
        text="Step time of the slowest ranks as a multiple of the median of their "
        "loop, within five minutes. All equal with collectives, which make every rank "
        "wait for the slowest: then compare device time.",
        thresholds=q.above(slos.limits.straggler),
        no_value="None is slower",
    )
    yield timeseries(3202, "Device time against the median rank")(
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


@row(27, "Collectives; empty without NCCL", lines=(3,), collapsed=True)
def inspected() -> Iterator[Panel]:
    """Return how fast collectives are, which process arrives last, or is missing."""
    lagging = q.host(catalog.NCCL_LAGGING_RANKS).max()
    missing = q.host(catalog.NCCL_PROCESSES, re("state", "unresponsive|dead"))
    yield timeseries(2701, "Bus bandwidth of collectives")(
        overviews.BANDWIDTH(q.JOB).least(q.FEW),
        text="Mean by time, of the 20 lowest, by NCCL Inspector. The bus idles while "
        "ranks wait for the last one: it falls if the network is slower, and if ranks "
        "arrive at different times.",
        no_value=_NO_INSPECTOR,
    )
    yield timeseries(2702, "Ranks that arrive late at collectives")(
        q.least_of(overviews.LATE()),
        text="Mean time of a collective's kernels as a multiple of the median "
        "process's, of the 20 with the least. A kernel waits for the last rank to "
        "arrive, so the last one has the shortest kernels. `jaxmon job why` compares "
        "the ranks of each communicator.",
        no_value="None arrives late",
    )
    yield timeseries(3207, "Ranks behind or missing, by NCCL")(
        Target(lagging, "lagging"),
        missing.max("state"),
        text="Ranks that are behind in a communicator in which nothing moves, and "
        "processes that NCCL cannot reach, in the job with the most; 0 if all is "
        "well. The runbook asks for their hosts.",
        alerts=("JaxmonRankStuck",),
        no_value="No job with NCCL 2.24",
    )


_LOST = "data_wait|eager|gc|gil|blocked"


@row(30, "Runs", lines=(6, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the state of all runs, and one line for each."""
    current = services.oncall(slos)
    limit = slos.limits
    yield current.panel("Oldest step")
    yield stat(3002, "Goodput")(
        overviews.GOODPUT(q.JOB).min(),
        text="Fraction of the marked time of the worst service that is spent in steps, "
        "rather than waiting for data, compiling, saving or evaluating; without rests.",
    )
    yield stat(3003, "Slowest rank")(
        overviews.SLOW_RANKS(q.JOB).max(),
        text="Step time of the slowest rank of any loop as a multiple of the median's. "
        "Without collectives all ranks wait for it at the next barrier; see Ranks.",
        thresholds=q.above(slos.limits.straggler),
        no_value="None is slower",
    )
    yield stat(3004, "Data wait")(
        overviews.WAITING(q.JOB, eq("state", "data_wait")).max(),
        text="Fraction of its time that the worst process in a loop waits for data. "
        "The accelerators idle meanwhile.",
        thresholds=q.above(limit.data_wait),
    )
    yield stat(3005, "Last save")(
        gauge(catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint"), *q.PROCESS)
        .min("job")
        .max(),
        text="What a failure would cost the service that saved longest ago.",
        thresholds=q.above(limit.checkpoint_age),
        no_value="No checkpoint",
    )
    yield stat(3006, "Non-finite run")(
        gauge(catalog.VALUE_NONFINITE_RUN, *q.PROCESS).max(),
        text="Logged values since the last finite one, of the worst quantity. A loss "
        "that stays NaN has lost the run from there on.",
        thresholds=q.above(limit.nonfinite_values),
    )
    slow = overviews.SLOW_RANKS(q.JOB)
    steps, waits = histogram(catalog.STEP_SECONDS, *q.PROCESS), q.above(limit.data_wait)
    yield table(3007, "Loops")(
        Target(step_age().count(*_BY), "Ranks"),
        Target(counter(catalog.STEPS, *q.PROCESS).rate().max(*_BY), "Steps"),
        Target(overviews.STEP_MEAN(q.JOB).max(*_BY), "Step time"),
        Target(q.defined(steps.quantile(0.95, *_BY)), "p95"),
        Target(slow.max(*_BY), "Slowest rank", q.above(slos.limits.straggler)),
        Target(overviews.DATA_WAIT(q.JOB).max(*_BY), "Data wait", waits),
        Target(counter(catalog.ITEMS, *q.PROCESS).rate().sum(*_BY), "Items"),
        Target(step_age().max(*_BY), "Last step", q.above(limit.stalled_after)),
        text="One line per loop. Steps of one rank, items of all ranks; the slowest "
        "rank as a multiple of the median. The name selects the service.",
        height=6,
        cell_links=(q.opening("job", "Show only this service", "training"),),
        no_value="No loops",
        sort="Last step",
    )


@row(31, "Where the time of runs goes", lines=(4, 3))
def time() -> Iterator[Panel]:
    """Return what the time of the runs goes into."""
    saving = gauge(
        catalog.ACTIVITY_RUNNING_SECONDS, eq("activity", "checkpoint"), *q.PROCESS
    )
    yield services.cost().panel("Goodput of services")
    yield timeseries(3102, "Time lost on the host")(
        q.worst_of(overviews.WAITING(), 10, re("state", _LOST)),
        text="Fraction of time that the worst rank of each service spends on what "
        "keeps its device waiting. `jaxmon explain` names the lines.",
        alerts=("JaxmonTimeLost",),
        no_value="No loops",
    )
    yield compiles.calls().panel("Where the time goes")
    yield timeseries(3103, "Checkpoint in progress")(
        Target(saving.max(), "oldest"),
        text="Age of the oldest checkpoint that is being written, 0 if none. One that "
        "keeps growing hangs in its storage.",
        alerts=("JaxmonCheckpointFailed",),
        no_value="No checkpoint",
    )
    yield timeseries(3107, "Model FLOPs utilization")(
        overviews.MFU(q.JOB).least(10),
        text="FLOPs of matrix products and convolutions that the model needs, as a "
        "fraction of what the devices could do; the lowest services. Low with busy "
        "devices: small products, recomputation, memory. Processes that call functions "
        "of unknown FLOPs are left out.",
        no_value="No known peak",
    )
    seconds = histogram(catalog.CHECKPOINT_SECONDS, *q.PROCESS)
    failed = events.CHECKPOINT_FAILURES.within(RATE_INTERVAL, *q.PROCESS)
    yield timeseries(3105, "Checkpoints that failed")(
        failed.sum("operation"),
        text="Orbax saves and restores that began and did not succeed.",
        alerts=("JaxmonCheckpointFailed",),
        no_value="No checkpoint",
    )
    yield timeseries(3104, "Time of a checkpoint")(
        q.defined(seconds.quantile(0.95, "operation")),
        text="p95 of Orbax checkpoints: a save until it is committed, how long "
        "it blocks the program, how much of that it waits for the save before. Much "
        "wait: saves are more frequent than storage allows.",
        no_value="No checkpoint",
    )
