"""Training alerts: loops that stand still, wait, diverge, or do not save their work."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.artifacts import events
from jaxmon.artifacts.alerts.model import PROCESS, Alert
from jaxmon.artifacts.alerts.power import DEVICE_TIME
from jaxmon.artifacts.slo.severity import PAGE, TICKET
from jaxmon.artifacts.slo.timed import busy, patience
from jaxmon.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, counter, eq, gauge, histogram, re


STALLED_ALERT, STALLED_SLO = "JaxmonTrainingStalled", "step-freshness"
# What a stalled loop does not do takes its time.
TIME_ALERTS = ("JaxmonDataStarvation", "JaxmonTimeLost")

RANK_ALERT = "JaxmonRankStuck"

_STARVED = "data_wait"
# States in which a process may wait for another one, and in which it does not. What
# compiles, or is in an activity that it marks, is none of both: that may take long.
FOR_OTHERS = "device|fetch|transfer"
_BUSY = "data_wait|eager|python|gc|gil|blocked|idle"
# What NCCL says of a process that does not take part.
_GONE = "unresponsive|dead"
# States in which the device waits for the program.
_LOST = "eager|gc|gil|blocked"
_LOSS = "(?i).*loss.*"
# Of shorter calls the clock is a part; what takes less of the time does not matter.
_LITTLE = 0.1
_LEAST_SECONDS, _LEAST_SHARE, _LEAST_PROCESSES = 0.001, 0.05, 4


def training_stalled(limits: Limits) -> Alert:
    """Alert on a loop that makes no progress."""
    # The first step of a large model takes long to compile, and an evaluation is no
    # step; both count as progress for a while.
    limit = durations.seconds(limits.stalled_after)
    excused = busy(
        limit,
        compiling=durations.seconds(limits.stuck_after),
        active=durations.seconds(limits.activity_after),
    )
    age = gauge(catalog.STEP_AGE_SECONDS)
    late = age > patience(age, limit)
    return Alert(
        name=STALLED_ALERT,
        # One stuck process stops the others: the oldest step is what counts.
        expr=late.unless(excused, *PROCESS).max("job", "loop"),
        # The step after a long compile is due.
        for_=limits.stalled_for,
        keep_for=limits.stalled_for,
        severity=PAGE,
        description="A running loop is making no progress.",
        summary=(
            "A process of job {{ $labels.job }} finished its last step of loop "
            "{{ $labels.loop }} {{ $value | humanizeDuration }} ago."
        ),
        labels=(("slo", STALLED_SLO),),
    )


def rank_stuck(limits: Limits) -> Alert:
    """Alert on a process for which the others of its job wait in a collective."""
    limit = durations.seconds(limits.rank_stuck_after)
    waiting = gauge(catalog.CALL_AGE_SECONDS, re("state", FOR_OTHERS)) > limit
    busy = gauge(catalog.CALL_AGE_SECONDS, re("state", _BUSY)) > limit
    return Alert(
        name=RANK_ALERT,
        expr=busy.max(*PROCESS, "state").and_(waiting.max("job"), "job"),
        severity=TICKET,
        description="The other processes of a job wait for this one.",
        summary=(
            "Processes of job {{ $labels.job }} wait for {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}in state "
            "{{ $labels.state }}, for {{ $value | humanizeDuration }}."
        ),
    )


def nccl_stuck(limits: Limits) -> Alert:
    """Alert on ranks that NCCL finds behind or missing."""
    # All sidecars of a job report the same job.
    lagging = gauge(catalog.NCCL_LAGGING_RANKS).max("job") > 0
    gone = gauge(catalog.NCCL_PROCESSES, re("state", _GONE)).max("job", "state") > 0
    return Alert(
        name="JaxmonNcclStuck",
        expr=lagging.labelled("state", "lagging").or_(gone),
        for_=limits.nccl_stuck_for,
        severity=TICKET,
        description="Ranks of a job are behind in their collectives, or missing.",
        summary=(
            "NCCL finds {{ $value | humanize }} {{ $labels.state }} ranks or processes "
            "of job {{ $labels.job }}; the others wait for them."
        ),
    )


def data_starvation(limits: Limits) -> Alert:
    """Alert on a loop that waits for its input."""
    return _share_alert(
        TIME_ALERTS[0],
        limits.time_lost_window,
        _STARVED,
        limits.data_wait,
        "Training waits for its input; the accelerators idle meanwhile.",
    )


def time_lost(limits: Limits) -> Alert:
    """Alert on a loop that spends its time on something else."""
    return _share_alert(
        TIME_ALERTS[1],
        limits.time_lost_window,
        _LOST,
        limits.time_lost,
        "Training spends most of its time on something else.",
    )


def _share_alert(
    name: str, window: str, states: str, limit: float, description: str
) -> Alert:
    lost = counter(catalog.WALL_SECONDS, re("state", states)).rate(window)
    # Of processes in a loop: a server waits for requests, not for data.
    loops = gauge(catalog.STEP_AGE_SECONDS).max(*PROCESS)
    share = lost.sum(*PROCESS, "state").and_(loops, *PROCESS)
    return Alert(
        name=name,
        # All ranks wait for the slowest.
        expr=share.max("job", "state") > limit,
        severity=TICKET,
        description=description,
        summary=(
            "A process of job {{ $labels.job }} spent "
            f"{{{{ $value | humanizePercentage }}}} of the last {window} on "
            "{{ $labels.state }}."
        ),
    )


def non_finite(limits: Limits) -> Iterator[Alert]:
    """
    Yield a page for the loss of a running loop, whose work is lost from there on, and a
    ticket for other values.
    """
    outputs = gauge(catalog.NONFINITE_OUTPUTS).max("job", "name") > 0
    loops = gauge(catalog.STEP_AGE_SECONDS).max(*PROCESS)
    run = gauge(catalog.VALUE_NONFINITE_RUN)
    loss = gauge(catalog.VALUE_NONFINITE_RUN, re("name", _LOSS)).and_(loops, *PROCESS)
    lost = loss.max("job", "name") >= limits.nonfinite_losses
    others = outputs.or_(run.max("job", "name") > limits.nonfinite_values)
    for severity, expr in ((PAGE, lost), (TICKET, others.unless(lost))):
        yield Alert(
            name="JaxmonNonFinite",
            expr=expr,
            for_=limits.nonfinite_for,
            severity=severity,
            description="Values became NaN or infinite and stay so.",
            summary=(
                "{{ $labels.name }} of job {{ $labels.job }} was finite, and is NaN or "
                "infinite since."
            ),
        )


def straggler(limits: Limits) -> Alert:
    """Alert on a process whose device takes longer for what the others run as well."""
    by = (*PROCESS, "function")
    same = ("job", "function", "fingerprint")
    window = limits.straggler_for
    sampled = histogram(catalog.EXECUTION_SECONDS)
    seconds = sampled.sum.rate(window).sum(*by)
    # Servers run shapes as requests come; processes of a loop run the same.
    loops = gauge(catalog.STEP_AGE_SECONDS).max(*PROCESS)
    mean = promql.ratio(seconds, sampled.count.rate(window).sum(*by)) > _LEAST_SECONDS
    mean = mean.of_unit("seconds").and_(loops, *PROCESS)
    info = gauge(catalog.PROGRAM_INFO)
    # Series that are pushed overlap with those that they replace.
    single = info.count(*by).equals(1)
    programs = info.max(*by, "fingerprint").and_(single, *by)
    # In what several processes run together, who is slow waits least for the others.
    own = gauge(catalog.DEVICE_INFO).count(*PROCESS)
    spans = gauge(catalog.PROGRAM_DEVICES).max(*by).relative_to(own, *PROCESS) > 1
    alone = mean.unless(spans, *by)
    times = alone.joined(programs, on=by, take=("fingerprint",))
    enough = times.count(*same) >= _LEAST_PROCESSES
    slower = times.relative_to(times.median(*same).and_(enough), *same)
    return Alert(
        name="JaxmonStraggler",
        expr=(slower > limits.straggler)
        .and_(_device_share() > _LEAST_SHARE, *by)
        .max(*by),
        for_=limits.straggler_for,
        severity=TICKET,
        description=(
            "One process's device takes longer for a program that each runs for "
            "itself than the others', which wait for it."
        ),
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} takes "
            "{{ $value | humanize }} times as long on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}as in the median "
            "process."
        ),
    )


def rank_slow(limits: Limits) -> Alert:
    """
    Alert on a process that does not wait for its device while the others of its job do:
    they wait for it in collectives.
    """
    window = limits.rank_slow_for
    waits = counter(catalog.WALL_SECONDS, re("state", FOR_OTHERS)).rate(window)
    # A process on its own, and several jobs under one name, are not comparable.
    one_job = waits.sum(*PROCESS).count("job")
    one_job = one_job.equals(gauge(catalog.PROCESS_COUNT).max("job"))
    shorter = waits_less(waits.sum(*PROCESS)).and_(one_job >= _LEAST_PROCESSES, "job")
    # A host with more is ahead of its device.
    hardly = waits.sum(*PROCESS) < _LITTLE
    return Alert(
        name="JaxmonRankSlow",
        expr=(shorter > limits.rank_slow).and_(hardly, *PROCESS),
        for_=limits.rank_slow_for,
        severity=TICKET,
        description="The other processes of a job wait for this one at every step.",
        summary=(
            "{{ $labels.instance }} {{ with $labels.worker }}(worker {{ . }}) "
            "{{ end }}lets the others of job {{ $labels.job }} wait for "
            "{{ $value | humanizePercentage }} of the time."
        ),
    )


def waits_less(waits: Expr) -> Expr:
    """Return how much less each process waits than the median one of its job."""
    return waits.less(waits.median("job"), "job") * -1


def _device_share() -> Expr:
    return promql.recorded(DEVICE_TIME, labels=(*PROCESS, "function"))


def checkpoint_age(limits: Limits) -> Alert:
    """Alert on a loop whose work is not saved any more."""
    saved = gauge(catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint"))
    loops = gauge(catalog.STEP_AGE_SECONDS).max("job")
    return Alert(
        name="JaxmonCheckpointAge",
        # One process may save for all.
        expr=(saved.min("job") > durations.seconds(limits.checkpoint_age)).and_(loops),
        severity=TICKET,
        description="A run makes no more checkpoints; a failure costs its work.",
        summary=(
            "The last checkpoint of job {{ $labels.job }} ended "
            "{{ $value | humanizeDuration }} ago."
        ),
    )


def checkpoint_failed(limits: Limits) -> Alert:
    """Alert on saves that fail, the first one included, which has no age."""
    window = limits.checkpoint_window
    failed = events.CHECKPOINT_FAILURES.within(window, eq("operation", "save"))
    return Alert(
        name="JaxmonCheckpointFailed",
        expr=failed.sum("job") > 0,
        severity=TICKET,
        description="Saves fail; the work since the last checkpoint is not saved.",
        summary=(
            "{{ $value | humanize }} saves of job {{ $labels.job }} failed in "
            f"{window}."
        ),
    )
