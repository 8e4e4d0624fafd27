"""Compile alerts: repeated, failed, slow and stuck compiles, diverging programs."""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.artifacts import events
from jaxmon.artifacts.alerts.model import COUNT, DEPLOY_NOISE, PROCESS, Alert
from jaxmon.artifacts.slo.severity import TICKET
from jaxmon.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, eq, gauge, histogram


_SLOW_SECONDS = 1.0
"""What typical kernels take at most to compile; a bound of the histogram."""


def recompile_storm(limits: Limits) -> Alert:
    """Alert on a function that keeps recompiling."""
    window = limits.recompile_window
    recompiles = events.RECOMPILES.within(window).sum(*PROCESS, "function")
    # Per process: when all ranks or replicas recompile the same function, each does so
    # once, and so does each of those that follow each other.
    starts = promql.gauge_changes(catalog.PROCESS_START_TIME_SECONDS, window)
    replaced = starts.max(*PROCESS) > 0
    worst = recompiles.unless(replaced, *PROCESS).max("job", "function")
    return Alert(
        name="JaxmonRecompileStorm",
        expr=worst > limits.recompiles,
        severity=TICKET,
        description="A function keeps recompiling.",
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} recompiled "
            f"{COUNT} times in {window} in one process."
        ),
        labels=DEPLOY_NOISE,
    )


def compile_failed(limits: Limits) -> Alert:
    """Alert on a function whose compiles fail."""
    window = limits.compile_window
    failed = events.COMPILES.within(window, eq("outcome", "failed"))
    return Alert(
        name="JaxmonCompileFailed",
        expr=failed.sum("job", "function") >= limits.compile_failures,
        severity=TICKET,
        description="Compiles of a function fail; calls that need them raise.",
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} failed to "
            f"compile {COUNT} times in {window}."
        ),
    )


def compile_slow(limits: Limits) -> Alert:
    """Alert on a service whose compiles take long; requests wait for them."""
    window = limits.compile_window
    compiles = histogram(
        catalog.COMPILE_SECONDS, eq("phase", "backend_compile"), rare=True
    )
    # A program of a training run may compile for minutes, once, and a server compiles
    # what it starts with.
    serving = gauge(catalog.REQUESTS_IN_PROGRESS).max("job")
    warm = gauge(catalog.UPTIME_SECONDS) > 2 * durations.seconds(window)
    number, quick = (
        one.increase(window).and_(warm, *PROCESS).sum("job")
        for one in (compiles.count, compiles.at_most(_SLOW_SECONDS))
    )
    # Two series of each function, where a quantile would read every bucket. Of a warm
    # process, the one compile with which a series begins does not matter.
    slow = promql.ratio(number - quick.or_(number * 0), number)
    return Alert(
        name="JaxmonCompileSlow",
        expr=(slow > limits.compile_slow).and_(number >= limits.compiles).and_(serving),
        severity=TICKET,
        description="Compiles of a service are many and slow; requests wait for them.",
        summary=(
            "{{ $value | humanizePercentage }} of the compiles of job "
            f"{{{{ $labels.job }}}} in the last {window} took longer than "
            f"{_SLOW_SECONDS:g} s."
        ),
        labels=DEPLOY_NOISE,
    )


def thundering_compilation(limits: Limits) -> Alert:
    """Alert on replicas that each compile the same program."""
    window = limits.thundering_window
    by = (*PROCESS, "function")
    compiled = events.COMPILES.within(window, eq("outcome", "compiled"))
    # Ranks of one run compile together, at the price of one.
    alone = gauge(catalog.PROCESS_COUNT).max(*PROCESS).equals(1)
    replicas = compiled.sum(*by).and_(alone, *PROCESS)
    programs = gauge(catalog.PROGRAM_INFO).max(*by, "fingerprint")
    # No join: series that are pushed overlap with those that they replace.
    same = programs.and_(replicas, *by)
    # Of what compiles in a moment there is little to share.
    backend = eq("phase", "backend_compile")
    spent = events.COMPILE_SECONDS.within(window, backend).sum("job", "function")
    number = same.count("job", "function", "fingerprint").max("job", "function")
    processes = gauge(catalog.RUNTIME_INFO).max(*PROCESS).count("job")
    least = processes * limits.thundering_share
    many = promql.call("clamp_min", least, limits.thundering)
    return Alert(
        name="JaxmonThunderingCompilation",
        expr=number.reaching(many, "job").and_(spent > limits.thundering_seconds),
        keep_for=window,
        severity=TICKET,
        description=(
            "Replicas compile the same program, each for itself; a shared persistent "
            "cache would let one do it for all."
        ),
        summary=(
            "{{ $value }} processes of job {{ $labels.job }} compiled the same program "
            f"of function {{{{ $labels.function }}}} within {window}."
        ),
    )


def compile_stuck(limits: Limits) -> Alert:
    """Alert on a compile that does not finish."""
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS).max(*PROCESS)
    return Alert(
        name="JaxmonCompileStuck",
        expr=oldest > durations.seconds(limits.stuck_after),
        severity=TICKET,
        description="A compile is stuck.",
        summary=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}has been compiling one "
            "program for {{ $value | humanizeDuration }}."
        ),
    )


def programs_diverge(limits: Limits) -> Alert:
    """Alert on processes of one mesh that compiled different programs."""
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
        name="JaxmonProgramsDiverge",
        expr=stuck.max("job", "function"),
        for_=limits.diverged_for,
        severity=TICKET,
        description="Processes of one mesh run different programs.",
        summary=(
            "The processes of job {{ $labels.job }} compiled {{ $value }} "
            "different programs for function {{ $labels.function }}, which runs "
            "on all their devices; its collectives will deadlock."
        ),
    )


def _of_run(series: Expr, ranks: Expr) -> Expr:
    return series.joined(ranks, on=PROCESS, take=("ranks",))
