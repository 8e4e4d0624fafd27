"""Processes of a job: one is stuck, slow or missing, or runs another program."""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.host.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, counter, gauge, histogram, re
from jaxmon.symptoms.alert import PROCESS, Alert
from jaxmon.symptoms.symptom import Symptom


# States in which a process may wait for another one, and in which it does not. What
# compiles, or is in an activity that it marks, is none of both: that may take long.
FOR_OTHERS = "device|fetch|transfer"
_BUSY = "data_wait|eager|python|gc|gil|blocked|idle"
# What NCCL says of a process that does not take part.
_GONE = "unresponsive|dead"
# Of shorter calls the clock is a part.
_LEAST_SECONDS = 0.001
DEVICE_TIME = f"function:{catalog.EXECUTION_SECONDS.name}:ratio_rate5m"
"""Fraction of time a function keeps its process's devices busy."""


def _rank_stuck(limits: Limits) -> Alert:
    limit = durations.seconds(limits.rank_stuck_after)
    waiting = gauge(catalog.CALL_AGE_SECONDS, re("state", FOR_OTHERS)) > limit
    busy = gauge(catalog.CALL_AGE_SECONDS, re("state", _BUSY)) > limit
    return Alert(
        expr=busy.max(*PROCESS, "state").and_(waiting.max("job"), "job"),
        summary=(
            "Processes of job {{ $labels.job }} wait for {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}in state "
            "{{ $labels.state }}, for {{ $value | humanizeDuration }}."
        ),
    )


def _nccl_stuck(limits: Limits) -> Alert:
    # All sidecars of a job report the same job.
    lagging = gauge(catalog.NCCL_LAGGING_RANKS).max("job") > 0
    missing = gauge(catalog.NCCL_PROCESSES, re("state", _GONE)).max("job", "state") > 0
    return Alert(
        expr=lagging.labelled("state", "lagging").or_(missing),
        for_=limits.nccl_stuck_for,
        summary=(
            "NCCL finds {{ $value | humanize }} {{ $labels.state }} ranks or processes "
            "of job {{ $labels.job }}; the others wait for them."
        ),
    )


def _rank_slow(limits: Limits) -> Alert:
    """
    Alert on a process that does not wait for its device while the others of its job do:
    they wait for it in collectives.
    """
    window = limits.rank_slow_for
    waits = counter(catalog.WALL_SECONDS, re("state", FOR_OTHERS)).rate(window)
    # A process on its own, and several jobs under one name, are not comparable.
    one_job = waits.sum(*PROCESS).count("job")
    one_job = one_job.equals(gauge(catalog.PROCESS_COUNT).max("job"))
    compared = one_job >= limits.processes_compared
    shorter = waits_less(waits.sum(*PROCESS)).and_(compared, "job")
    # A host with more is ahead of its device.
    hardly = waits.sum(*PROCESS) < limits.rank_slow_waits
    return Alert(
        expr=(shorter > limits.rank_slow).and_(hardly, *PROCESS),
        for_=limits.rank_slow_for,
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


def _straggler(limits: Limits) -> Alert:
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
    devices = gauge(catalog.DEVICE_INFO).count(*PROCESS)
    spans = gauge(catalog.PROGRAM_DEVICES).max(*by).relative_to(devices, *PROCESS) > 1
    alone = mean.unless(spans, *by)
    times = alone.joined(programs, on=by, take=("fingerprint",))
    enough = times.count(*same) >= limits.processes_compared
    busy = promql.recorded(DEVICE_TIME, labels=by)
    slower = times.relative_to(times.median(*same).and_(enough), *same)
    return Alert(
        expr=(slower > limits.straggler)
        .and_(busy > limits.straggler_share, *by)
        .max(*by),
        for_=limits.straggler_for,
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


def _programs_diverge(limits: Limits) -> Alert:
    run = ("job", "ranks")
    processes = gauge(catalog.PROCESS_COUNT)
    # Several runs may share a job: a run is the processes that know of as many ranks.
    # If there are more than that, they are several runs, which cannot be distinguished.
    ranks = processes.count_values("ranks", *PROCESS)
    alone = _of_run(processes, ranks).max(*run) >= ranks.count(*run)
    # What runs on every device that the run is seen to have is one program, or a hang.
    # What runs on fewer is a process's own, or a stage's.
    devices = _of_run(gauge(catalog.DEVICE_INFO), ranks).count(*run)
    everywhere = _of_run(gauge(catalog.PROGRAM_DEVICES), ranks).reaching(devices, *run)
    programs = _of_run(gauge(catalog.PROGRAM_INFO), ranks)
    common = programs.and_(everywhere, *PROCESS, "function")
    kinds = common.count(*run, "function", "fingerprint")
    different = kinds.count(*run, "function") > 1
    compiling = _of_run(gauge(catalog.COMPILES_IN_PROGRESS), ranks).max(*run) > 0
    # While one process compiles, the others are merely ahead.
    stuck = different.and_(alone, *run).unless(compiling, *run)
    return Alert(
        expr=stuck.max("job", "function"),
        for_=limits.diverged_for,
        summary=(
            "The processes of job {{ $labels.job }} compiled {{ $value }} "
            "different programs for function {{ $labels.function }}, which runs "
            "on all their devices; its collectives will deadlock."
        ),
    )


def _of_run(series: Expr, ranks: Expr) -> Expr:
    return series.joined(ranks, on=PROCESS, take=("ranks",))


_STUCK = ("rank_stuck_after", "rank_stuck_times", "rank_stuck_first", "stuck_after")
_CACHE = ("rank_repeated_seconds", "rank_repeated_share", "rank_uncached_seconds")
SYMPTOMS = (
    Symptom(
        *("rank_stuck", "F8", "The other processes of a job wait for this one."),
        rule=("JaxmonRankStuck", _rank_stuck),
        ranks=_STUCK,
    ),
    Symptom(
        *("rank_missing", "F8", "A rank is gone, and the others wait."),
        ranks=("rank_gone_after",),
        missing="JaxmonTrainingDied and JaxmonAgentSilent say it",
    ),
    Symptom(
        *("rank_slow", "F7", "A rank is slow at every step."),
        rule=("JaxmonStraggler", _rank_slow),
        ranks=("rank_slow_share",),
    ),
    Symptom(
        *("rank_starved", "F7", "A rank waits for a processor most of the time."),
        ranks=("rank_starved_share",),
        missing="JaxmonStraggler says it if the others wait",
    ),
    Symptom(
        *("rank_compiles", "F6", "A rank compiles what the persistent cache has."),
        ranks=_CACHE,
        missing="one process cannot know what others loaded",
    ),
    Symptom(
        *("nccl", "F8", "Ranks of a job are behind in their collectives, or missing."),
        rule=("JaxmonRankStuck", _nccl_stuck),
        ranks=_STUCK,
    ),
    Symptom(
        *("straggler", "F7", "The device of a process is slower."),
        rule=("JaxmonStraggler", _straggler),
        ranks=("rank_slow_share",),
    ),
    Symptom(
        *("programs_diverge", "F8", "Processes of one mesh run different programs."),
        rule=("JaxmonProgramsDiverge", _programs_diverge),
        ranks=_STUCK,
    ),
)
