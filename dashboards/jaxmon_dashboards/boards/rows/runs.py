"""Training runs: at a glance, what their time goes into, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, counter, eq, events, gauge, histogram, re
from jaxmon.promql.expressions import RATE_INTERVAL
from jaxmon_alerts.overviews import services as computed
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, stat, table, timeseries
from jaxmon_dashboards.boards.rows import calls, executive, now, ranks


_BY = ("job", "loop")
_LOST = "data_wait|eager|gc|gil|blocked"


@row(30, "Runs", lines=(8, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the state of all runs, and one line for each."""
    current = now.oncall(slos)
    running = ranks.step_age().max(*_BY).count()
    saved = gauge(
        catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint"), *q.PROCESS
    )
    run = gauge(catalog.VALUE_NONFINITE_RUN, *q.PROCESS).max()
    limit = slos.limits
    yield stat(3001, "Loops running")(
        running,
        text="Training loops that are running, each counted once for its service.",
        no_value="None",
    )
    yield current.panel("Oldest step")
    yield stat(3002, "Goodput")(
        goodput(),
        text="Fraction of the wall time of all runs that is spent in steps, rather "
        "than waiting for data, compiling, saving or evaluating.",
    )
    yield stat(3003, "Slowest rank")(
        ranks.spread().max(),
        text="Step time of the slowest rank of any loop as a multiple of the median's. "
        "Without collectives all ranks wait for it at the next barrier; see Ranks.",
        thresholds=ranks.SPREAD,
    )
    yield stat(3004, "Data wait")(
        data_wait("job").max(),
        text="Fraction of step time that the worst service waits for data. The "
        "accelerators idle meanwhile.",
        thresholds=q.above(limit.data_wait),
    )
    yield stat(3005, "Last save")(
        saved.min("job").max(),
        text="What a failure would cost the service that saved longest ago.",
        thresholds=q.above(durations.seconds(limit.checkpoint_age)),
        no_value="No checkpoint",
    )
    yield stat(3006, "Non-finite run")(
        run,
        text="Logged values since the last finite one, of the worst quantity. A loss "
        "that stays NaN has lost the run from there on.",
        thresholds=q.above(limit.nonfinite_values),
    )
    yield current.panel("Recompiles")
    steps = histogram(catalog.STEP_SECONDS, *q.PROCESS)
    items = counter(catalog.ITEMS, *q.PROCESS).rate().sum(*_BY)
    stalled = durations.seconds(slos.limits.stalled_after)
    yield table(3007, "Loops")(
        Target(ranks.step_age().count(*_BY), "Ranks"),
        Target(counter(catalog.STEPS, *q.PROCESS).rate().max(*_BY), "Steps"),
        Target(q.defined(steps.mean(*_BY)), "Step time"),
        Target(q.defined(steps.quantile(0.95, *_BY)), "p95"),
        Target(ranks.spread().max(*_BY), "Slowest rank", ranks.SPREAD),
        Target(data_wait(*_BY), "Data wait", q.above(slos.limits.data_wait)),
        Target(items, "Items"),
        Target(ranks.step_age().max(*_BY), "Last step", q.above(stalled)),
        text="One line per loop. Steps of one rank, items of all ranks; the slowest "
        "rank as a multiple of the median. The name selects the service.",
        height=6,
        labels=_BY,
        cell_links=(q.opening("job", "Show only this service", "training"),),
        sort="Last step",
    )


@row(31, "Where the time of runs goes", lines=(4, 3, 3))
def time() -> Iterator[Panel]:
    """Return what the time of the runs goes into."""
    lost = overviews.WAITING(q.JOB, re("state", _LOST))
    saving = gauge(
        catalog.ACTIVITY_RUNNING_SECONDS, eq("activity", "checkpoint"), *q.PROCESS
    )
    yield executive.cost().panel("Goodput of services")
    yield timeseries(3102, "Time lost on the host")(
        Target(lost.worst(10), "{{job}} {{state}}"),
        text="Fraction of time that the worst rank of each service spends on what "
        "keeps its device waiting. `jaxmon explain` names the lines.",
        alerts=("JaxmonTimeLost", "JaxmonDataStarvation"),
        no_value="No loops",
    )
    yield calls.debug().panel("Where the time goes")
    yield timeseries(3103, "Checkpoint in progress")(
        Target(saving.max("job").worst(10), "{{job}}"),
        text="Age of the checkpoint that each service is writing, 0 if none. One that "
        "keeps growing hangs in its storage.",
        alerts=("JaxmonCheckpointAge",),
        no_value="No checkpoint",
    )
    flops = counter(catalog.FLOPS, eq("work", "model"), *q.FUNCTION).rate()
    rate = flops.sum("job", "function").of_unit("FLOPs per second")
    yield timeseries(3107, "Model FLOPs utilization")(
        Target(computed.MFU(q.JOB).least(10), "{{job}}"),
        text="FLOPs of matrix products and convolutions that the model needs, as a "
        "fraction of what the devices could do; the lowest services. Low with busy "
        "devices: small products, recomputation, memory. Processes that call functions "
        "of unknown FLOPs are left out.",
        no_value="No known peak",
    )
    yield timeseries(3108, "Achieved FLOP/s")(
        Target(computed.FLOPS(q.JOB).worst(10), "{{job}}"),
        text="Model FLOPs per second on all devices of each service.",
        no_value="No products",
    )
    yield timeseries(3109, "Achieved FLOP/s by function")(
        Target(rate.worst(10), "{{job}} {{function}}"),
        text="Model FLOPs per second of the functions with most. `jaxmon explain` says "
        "what fraction of the peak each reaches while it executes, and why FLOPs of "
        "others are unknown.",
        no_value="No products",
    )
    by = ("job", "operation")
    seconds = histogram(catalog.CHECKPOINT_SECONDS, *q.PROCESS).mean(*by)
    failures = events.CHECKPOINT_FAILURES.within(RATE_INTERVAL, *q.PROCESS)
    moved = counter(catalog.CHECKPOINT_BYTES, *q.PROCESS).rate().sum(*by)
    named = "{{job}} {{operation}}"
    yield timeseries(3104, "Time of a checkpoint")(
        Target(q.defined(seconds).worst(10), named),
        text="Mean time of Orbax checkpoints: a save until it is committed, how long "
        "it blocks the program, how much of that it waits for the save before. Much "
        "wait: saves are more frequent than storage allows.",
        no_value="No checkpoint",
    )
    yield timeseries(3105, "Checkpoints that failed")(
        Target(failures.sum(*by).worst(10), named),
        text="Orbax saves and restores that began and did not succeed.",
        alerts=("JaxmonCheckpointFailed",),
        no_value="No checkpoint",
    )
    yield timeseries(3106, "Bytes of checkpoints")(
        Target(moved.worst(10), named),
        text="Array data that Orbax saves and restores, before compression.",
        no_value="No checkpoint",
    )


def goodput(*by: str) -> Expr:
    """Return the fraction of wall time that programs with a loop spend in steps."""
    by_process = counter(catalog.TIME_SECONDS, *q.PROCESS).rate().sum(*q.BY_PROCESS)
    step = counter(catalog.TIME_SECONDS, eq("activity", "step"), *q.PROCESS)
    loops = ranks.step_age().max(*q.BY_PROCESS)
    whole = by_process.and_(loops, *q.BY_PROCESS).sum(*by)
    return q.share(step.rate().sum(*by), whole)


def data_wait(*by: str) -> Expr:
    """Return the fraction of step time spent waiting for data."""
    waited = counter(catalog.DATA_WAIT_SECONDS, *q.PROCESS).rate().sum(*by)
    stepped = histogram(catalog.STEP_SECONDS, *q.PROCESS).sum.rate().sum(*by)
    return q.share(waited, stepped)
