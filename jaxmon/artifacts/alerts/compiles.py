"""Compile alerts: recompile storms, cold starts, stuck compiles, diverging programs."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts.model import DEPLOY_NOISE, PROCESS, Alert
from jaxmon.artifacts.promql import Expr, counter, gauge, ne
from jaxmon.artifacts.slo import Thresholds, durations
from jaxmon.artifacts.slo.thresholds import TICKET


def recompile_storm(thresholds: Thresholds) -> Alert:
    """Alert on a function that keeps recompiling."""
    window = thresholds.recompile_window
    recompiles = counter(catalog.RECOMPILES).increase(window)
    # Per process: when all ranks or replicas recompile the same function, each does so
    # once.
    worst = recompiles.sum(*PROCESS, "function").max("job", "function")
    return Alert(
        name="JaxmonRecompileStorm",
        expr=worst > thresholds.recompiles,
        severity=TICKET,
        summary="A function keeps recompiling.",
        description=(
            "Function {{ $labels.function }} of job {{ $labels.job }} recompiled "
            f"{{{{ $value | humanize }}}} times in {window} in one process."
        ),
        labels=DEPLOY_NOISE,
    )


def cold_starts(thresholds: Thresholds) -> Alert:
    """Alert on requests that wait for compiles."""
    window, by = thresholds.cold_window, ("job", "route")
    waiting = counter(catalog.REQUESTS, ne("start", "warm"))
    cold = waiting.increase(window).sum(*by)
    every = counter(catalog.REQUESTS).increase(window).sum(*by)
    share = promql.ratio(cold, every) > thresholds.cold_share
    return Alert(
        name="JaxmonColdStarts",
        expr=share.and_(cold > thresholds.cold_requests),
        severity=TICKET,
        summary="Many requests are waiting for compiles.",
        description=(
            "{{ $value | humanizePercentage }} of requests to route "
            "{{ $labels.route }} of job {{ $labels.job }} waited for a compile in the "
            f"last {window}."
        ),
        labels=DEPLOY_NOISE,
    )


def compile_stuck(thresholds: Thresholds) -> Alert:
    """Alert on a compile that does not finish."""
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS).max(*PROCESS)
    return Alert(
        name="JaxmonCompileStuck",
        expr=oldest > durations.seconds(thresholds.stuck_after),
        severity=TICKET,
        summary="A compile is stuck.",
        description=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}has been compiling one "
            "program for {{ $value | humanizeDuration }}."
        ),
    )


def programs_diverge(thresholds: Thresholds) -> Alert:
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
        for_=thresholds.diverged_for,
        severity=TICKET,
        summary="Processes of one mesh run different programs.",
        description=(
            "The processes of job {{ $labels.job }} compiled {{ $value }} "
            "different programs for function {{ $labels.function }}, which runs "
            "on all their devices; its collectives will deadlock."
        ),
    )


def _of_run(series: Expr, ranks: Expr) -> Expr:
    return series.joined(ranks, on=PROCESS, take=("ranks",))
