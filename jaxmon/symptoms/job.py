"""Processes of a job: one is stuck, slow or missing, or runs another program."""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon import catalog, promql
from jaxmon.facts.process import JobRank
from jaxmon.facts.status import FindingSummary
from jaxmon.host.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, counter, gauge, histogram, re
from jaxmon.symptoms.alert import A_FUNCTION, AN_INSTANCE, PROCESS, Alert
from jaxmon.symptoms.symptom import Finding, Symptom


# States in which a process may wait for another one, and in which it does not. What
# compiles, or is in an activity that it marks, is none of both: that may take long.
FOR_OTHERS = "device|fetch|transfer"
_BUSY = "data_wait|eager|python|gc|gil|blocked|idle"
# What NCCL says of a process that does not take part.
_GONE = "unresponsive|dead"
# Of shorter calls the clock is a part.
_LEAST_SECONDS = 0.001
STUCK = ("stalled", "compile_stuck")
"""Topics of what has lasted so long that it may never end."""
WAITED_FOR = "`jaxmon job why` says which rank the others wait for."
DEVICE_TIME = f"function:{catalog.EXECUTION_SECONDS.name}:ratio_rate5m"
"""Fraction of time a function keeps its process's devices busy."""


def is_held_up(rank: JobRank, findings: Iterable[Finding | FindingSummary]) -> bool:
    """Return whether *findings* are of a process that waits in a job, or stops it."""
    return (rank.count or 0) > 1 and any(
        finding.topic in STUCK or "`jaxmon job why`" in finding.action
        for finding in findings
    )


def _rank_stuck(limits: Limits) -> Alert:
    limit = durations.seconds(limits.rank_stuck_after)
    waiting = gauge(catalog.CALL_AGE_SECONDS, re("state", FOR_OTHERS)).max("job")
    waiting = waiting.record(
        *("job", catalog.CALL_AGE_SECONDS, "waiting"),
        "How long a process of a job has waited for its device or another process.",
    )
    busy = gauge(catalog.CALL_AGE_SECONDS, re("state", _BUSY)) > limit
    return Alert(
        expr=busy.max(*PROCESS, "state").and_(waiting > limit, "job"),
        summary=(
            f"Processes of job {{{{ $labels.job }}}} wait for {AN_INSTANCE}in state "
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


def waits(limits: Limits) -> tuple[Expr, Expr, Expr]:
    """
    Return how many processes a job has, the time that the median one waits for its
    device, and how much less others do.
    """
    window = limits.rank_slow_for
    wall = catalog.WALL_SECONDS
    waits = counter(wall, re("state", FOR_OTHERS)).rate(window).sum(*PROCESS)
    # A process on its own, and several jobs under one name, are not comparable.
    ranks = waits.count("job").equals(gauge(catalog.PROCESS_COUNT).max("job"))
    ranks = ranks.record(
        *("job", wall, f"ranks{window}"),
        "How many processes a job has, if all of them report where their time goes.",
    )
    usual = waits.median("job").and_(ranks)
    usual = usual.record(
        *("job", wall, f"waits{window}"),
        f"Fraction of {window} that the median process waited for its device.",
    )
    shorter = (waits.less(usual, "job") * -1 > 0).record(
        *("worker", wall, f"waits_less{window}"),
        "How much less a process waited, if it did.",
    )
    return ranks, usual, shorter


def _rank_slow(limits: Limits) -> Alert:
    """
    Alert on a process that does not wait for its device while the others of its job do:
    they wait for it in collectives.
    """
    ranks, usual, shorter = waits(limits)
    # A host with more is ahead of its device.
    hardly = shorter.less(usual, "job") > -limits.rank_slow_waits
    slow = (shorter > limits.rank_slow).and_(hardly)
    return Alert(
        expr=slow.and_(ranks >= limits.processes_compared, "job"),
        for_=limits.rank_slow_for,
        description="The other processes of a job wait for this one at every step.",
        summary=(
            AN_INSTANCE + "lets the others of job {{ $labels.job }} wait for "
            "{{ $value | humanizePercentage }} of the time."
        ),
    )


def slower(limits: Limits) -> Expr:
    """
    Return how many times as long as in the median process a call takes on the device,
    where it takes longer, of functions that each runs by itself.
    """
    by = (*PROCESS, "function")
    same = ("job", "function", "fingerprint")
    window = limits.straggler_for
    sampled = histogram(catalog.EXECUTION_SECONDS)
    seconds = sampled.sum.rate(window).sum(*by)
    # Servers run shapes as requests come; processes of a loop run the same.
    loops = gauge(catalog.STEP_AGE_SECONDS).max(*PROCESS)
    mean = promql.ratio(seconds, sampled.count.rate(window).sum(*by)) > _LEAST_SECONDS
    mean = mean.of_unit("seconds").and_(loops, *PROCESS)
    mean = mean.record(
        *("function", catalog.EXECUTION_SECONDS, f"mean{window}"),
        f"Mean device time of a call within {window}, of processes in a loop.",
    )
    info = gauge(catalog.PROGRAM_INFO)
    # Series that are pushed overlap with those that they replace.
    single = info.count(*by).equals(1)
    programs = info.max(*by, "fingerprint").and_(single, *by)
    # In what several processes run together, who is slow waits least for the others.
    devices = gauge(catalog.DEVICE_INFO).count(*PROCESS)
    spans = gauge(catalog.PROGRAM_DEVICES).max(*by).relative_to(devices, *PROCESS) > 1
    alone = mean.unless(spans, *by).record(
        *("function", catalog.EXECUTION_SECONDS, f"alone{window}"),
        "Of these, those that a process runs by itself.",
    )
    times = alone.joined(programs, on=by, take=("fingerprint",)).record(
        *("program", catalog.EXECUTION_SECONDS, f"alone{window}"),
        "The same by program, of functions with one.",
    )
    enough = times.count(*same) >= limits.processes_compared
    usual = times.median(*same).and_(enough)
    usual = usual.record(
        *("job", catalog.EXECUTION_SECONDS, f"median{window}"),
        "What the median process takes, if there are enough to compare.",
    )
    found = (times.relative_to(usual, *same) > 1).max(*by)
    return found.record(
        *("function", catalog.EXECUTION_SECONDS, f"slower{window}"),
        "How many times as long as that a process takes, if it is slower.",
    )


def _straggler(limits: Limits) -> Alert:
    by = (*PROCESS, "function")
    busy = promql.recorded(DEVICE_TIME, labels=by) > limits.straggler_share
    return Alert(
        expr=(slower(limits) > limits.straggler).and_(busy, *by),
        for_=limits.straggler_for,
        description=(
            "One process's device takes longer for a program that each runs for "
            "itself than the others', which wait for it."
        ),
        summary=(
            A_FUNCTION + "takes {{ $value | humanize }} times as long on "
            f"{AN_INSTANCE}as in the median process."
        ),
    )


def _programs_diverge(limits: Limits) -> Alert:
    run = ("job", "ranks")
    processes = gauge(catalog.PROCESS_COUNT)
    # Several runs may share a job: a run is the processes that know of as many ranks.
    # If there are more than that, they are several runs, which cannot be distinguished.
    ranks = processes.count_values("ranks", *PROCESS)
    alone = _of_run(processes, ranks).max(*run) >= ranks.count(*run)
    alone = alone.record(
        *("run", catalog.PROCESS_COUNT, "alone"),
        "Ranks of a run, if a job has no more processes that know of as many.",
    )
    # What runs on every device that the run is seen to have is one program, or a hang.
    # What runs on fewer is a process's own, or a stage's.
    devices = _of_run(gauge(catalog.DEVICE_INFO), ranks).count(*run)
    devices = devices.record(
        *("run", catalog.DEVICE_INFO, "count"), "Devices that a run is seen to have."
    )
    programs = _of_run(gauge(catalog.PROGRAM_INFO), ranks)
    several = programs.count(*run, "function", "fingerprint").count(*run, "function")
    several = (several > 1).record(
        *("run", catalog.PROGRAM_INFO, "several"),
        "Programs of a function of a run, if there are several.",
    )
    everywhere = _of_run(gauge(catalog.PROGRAM_DEVICES), ranks).reaching(devices, *run)
    everywhere = everywhere.and_(several, *run, "function").record(
        *("function", catalog.PROGRAM_DEVICES, "everywhere"),
        "Of these functions, those that run on every device of the run.",
    )
    common = programs.and_(everywhere, *PROCESS, "function")
    kinds = common.count(*run, "function", "fingerprint").record(
        *("program", catalog.PROGRAM_INFO, "processes"),
        "Processes that have a program of such a function.",
    )
    compiling = _of_run(gauge(catalog.COMPILES_IN_PROGRESS), ranks).max(*run) > 0
    compiling = compiling.record(
        *("run", catalog.COMPILES_IN_PROGRESS, "max"),
        "Compiles of a process of a run, if there are some.",
    )
    # While one process compiles, the others are merely ahead.
    stuck = kinds.count(*run, "function").and_(alone, *run).unless(compiling, *run)
    different = stuck.max("job", "function").record(
        *("function", catalog.PROGRAM_INFO, "different"),
        "Different programs of a function that runs on all devices of a run, while no "
        "process compiles.",
    )
    return Alert(
        expr=different > 1,
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
