"""Ranks of a job, and the collectives in which they wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, counter, gauge, histogram, re, recorded
from jaxmon.symptoms.job import DEVICE_TIME, FOR_OTHERS, waits_less
from jaxmon_alerts.overviews import accelerators
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, timeseries
from jaxmon_dashboards.boards.rows import compiles, monitoring


SPREAD = q.above(1.1, 1.3)
"""Where the colours of a rank that is slower than the median change."""

_BY, _RANK = ("job", "loop"), (*q.BY_PROCESS, "loop")
_NAMED = f"{q.NAMED_PROCESS} {{{{loop}}}}"
# Of its time; a function that hardly runs is slow or fast by chance.
_LEAST_SHARE = 0.05


@row(32, "Ranks", lines=(3, 3, 3))
def oncall(slos: Slos) -> Iterator[Panel]:
    """Return which rank holds up the others."""
    compiling = compiles.oncall(slos)
    health = monitoring.oncall()
    stuck = gauge(catalog.CALL_AGE_SECONDS, *q.PROCESS).max(*q.BY_PROCESS, "state")
    waiting = counter(catalog.WALL_SECONDS, *q.PROCESS, re("state", FOR_OTHERS))
    waits = waiting.rate().sum(*q.BY_PROCESS).of_unit("ratio")
    lagging = gauge(catalog.NCCL_LAGGING_RANKS, *q.HOST)
    missing = gauge(catalog.NCCL_PROCESSES, *q.HOST, re("state", "unresponsive|dead"))
    yield timeseries(3205, "Stuck ranks")(
        Target(stuck.worst(q.FEW), f"{q.NAMED_PROCESS} {{{{state}}}}"),
        text="Time since the last call of processes of a job that do not get on; empty "
        "otherwise. In a hang most of them wait for the device, and the cause is a "
        "process in another state. `jaxmon job why` says on which line it is.",
        alerts=("JaxmonRankStuck",),
        no_value="None is stuck",
    )
    yield timeseries(3206, "Stragglers")(
        Target(waits_less(waits).worst(q.FEW), q.NAMED_PROCESS),
        text="How much less of its time a process waits for its device than the median "
        "one of its job, of the 20 with the least: the others wait for it in "
        "collectives, if it hardly waits at all. Near 0 for all in a healthy job. "
        "`jaxmon job why` says what it does meanwhile.",
        unbounded=True,
        alerts=("JaxmonRankSlow",),
    )
    yield timeseries(3207, "Ranks behind or missing, by NCCL")(
        Target(lagging.max("job").worst(q.FEW), "{{job}} lagging"),
        Target(missing.max("job", "state").worst(q.FEW), "{{job}} {{state}}"),
        text="Ranks that are behind in a communicator in which nothing moves, and "
        "processes that NCCL cannot reach, of the 20 jobs with the most; 0 if all is "
        "well. The runbook asks for their hosts.",
        alerts=("JaxmonNcclStuck",),
        no_value="No job with NCCL 2.24",
    )
    yield timeseries(3201, "Step time against the median rank")(
        Target(spread().worst(10), _NAMED),
        text="Step time of the slowest ranks as a multiple of the median of their "
        "loop. All equal with collectives, which make every rank wait for the slowest: "
        "then compare device time.",
        thresholds=SPREAD,
    )
    yield timeseries(3202, "Device time against the median rank")(
        Target(_device_spread().worst(10), f"{q.NAMED_PROCESS} {{{{function}}}}"),
        text="Time that functions keep the device of a rank busy, as a multiple of the "
        "median rank's: a straggler's device takes longer for the same work.",
        thresholds=q.above(slos.limits.straggler),
        alerts=("JaxmonStraggler",),
        no_value="No sampled calls",
    )
    yield timeseries(3203, "Ranks without a step for longest")(
        Target(step_age().max(*_RANK).worst(10), _NAMED),
        text="Time since each of these ranks finished a step. If one is ahead of the "
        "others, it hangs, and they wait for it.",
        thresholds=q.above(durations.seconds(slos.limits.stalled_after)),
        alerts=("JaxmonTrainingStalled",),
    )
    yield health.panel("Processes that crashed")
    yield compiling.panel("Oldest compile in progress")
    busy = accelerators.TENSOR_CORES_OF_JOBS(q.JOB)
    yield timeseries(3204, "Tensor cores busy by service")(
        Target(busy.worst(10), "{{job}}"),
        text="Fraction of cycles in which the tensor cores of the service's GPUs were "
        "busy, recomputation and padding included.",
        no_value="Not available",
    )


def step_age() -> Expr:
    """Return the time since each process of a running loop finished a step."""
    return gauge(catalog.STEP_AGE_SECONDS, *q.PROCESS)


def spread() -> Expr:
    """Return the step time of each rank as a multiple of its loop's median."""
    mean = q.defined(histogram(catalog.STEP_SECONDS, *q.PROCESS).mean(*_RANK))
    return mean.relative_to(mean.median(*_BY), *_BY).of_unit("times")


def _device_spread() -> Expr:
    by = (*q.BY_PROCESS, "function")
    busy = recorded(DEVICE_TIME, *q.FUNCTION, labels=by)
    busy = busy.and_(step_age().max(*q.BY_PROCESS), *q.BY_PROCESS) > _LEAST_SHARE
    same = ("job", "function")
    return busy.relative_to(busy.median(*same), *same).of_unit("times")


_NO_INSPECTOR = "No NCCL Inspector"


@row(27, "Collectives", lines=(3,))
def inspected() -> Iterator[Panel]:
    """Return how fast collectives are, and which process arrives last."""
    named = "{{job}} {{collective}}"
    yield timeseries(2701, "Bus bandwidth of collectives")(
        Target(overviews.BANDWIDTH(q.JOB).least(q.FEW), f"{named} {{{{size}}}}"),
        text="Mean by time, of the 20 lowest, by NCCL Inspector. The bus idles while "
        "ranks wait for the last one: it falls if the network is slower, and if ranks "
        "arrive at different times.",
        no_value=_NO_INSPECTOR,
    )
    late = overviews.LATE(q.JOB)
    yield timeseries(2702, "Ranks that arrive late at collectives")(
        Target(late.least(q.FEW), f"{q.NAMED_PROCESS} {{{{collective}}}}"),
        text="Mean time of a collective's kernels as a multiple of the median "
        "process's, of the 20 with the least. A kernel waits for the last rank to "
        "arrive, so the last one has the shortest kernels. `jaxmon job why` compares "
        "the ranks of each communicator.",
        no_value="None arrives late",
    )
    yield timeseries(2703, "Collectives")(
        Target(overviews.RECORDED(q.JOB).worst(q.FEW), named),
        Target(overviews.UNRECORDED(q.JOB).worst(q.FEW), f"{named} unrecorded"),
        text="Collectives per second that NCCL Inspector recorded, and others that "
        "were launched: small ones, and with NCCL before 2.30.3 all but the last of "
        "each interval.",
        no_value=_NO_INSPECTOR,
    )
