"""
Alerts on compiles: too many, too long, at the wrong moment, different ones.
"""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts.model import DEPLOY_NOISE, PROCESS, Alert
from jaxmon.artifacts.promql import counter, eq, gauge
from jaxmon.artifacts.slo import Thresholds, durations
from jaxmon.artifacts.slo.thresholds import TICKET


def recompile_storm(thresholds: Thresholds) -> Alert:
    """
    Tell of a function that is compiled again and again.
    """
    window = thresholds.recompile_window
    recompiles = counter(catalog.RECOMPILES).increase(window)
    # Of one process: when ranks or replicas compile the same anew, each does so once.
    worst = recompiles.sum(*PROCESS, "function").max("job", "function")
    return Alert(
        name="JaxmonRecompileStorm",
        expr=worst > thresholds.recompiles,
        severity=TICKET,
        summary="A function is compiled again and again.",
        description=(
            "Function {{ $labels.function }} of job {{ $labels.job }} was recompiled "
            f"{{{{ $value | humanize }}}} times within {window}, by one process."
        ),
        labels=DEPLOY_NOISE,
    )


def cold_starts(thresholds: Thresholds) -> Alert:
    """
    Tell of requests that wait for compiles.
    """
    window, by = thresholds.cold_window, ("job", "route")
    cold = counter(catalog.REQUESTS, eq("start", "cold")).increase(window).sum(*by)
    every = counter(catalog.REQUESTS).increase(window).sum(*by)
    share = promql.ratio(cold, every) > thresholds.cold_share
    return Alert(
        name="JaxmonColdStarts",
        expr=share.and_(cold > thresholds.cold_requests),
        severity=TICKET,
        summary="Many requests wait for a compile.",
        description=(
            "{{ $value | humanizePercentage }} of the requests for route "
            "{{ $labels.route }} of job {{ $labels.job }} waited for a compile within "
            f"{window}."
        ),
        labels=DEPLOY_NOISE,
    )


def compile_stuck(thresholds: Thresholds) -> Alert:
    """
    Tell of a compile that does not end.
    """
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS).max(*PROCESS)
    return Alert(
        name="JaxmonCompileStuck",
        expr=oldest > durations.seconds(thresholds.stuck_after),
        severity=TICKET,
        summary="A compile does not come to an end.",
        description=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}has been compiling one "
            "program for {{ $value | humanizeDuration }}."
        ),
    )


def programs_diverge(thresholds: Thresholds) -> Alert:
    """
    Tell of processes of one mesh that compiled different programs.
    """
    by = ("job", "function")
    devices = gauge(catalog.DEVICE_INFO).count("job")
    # What runs on every device that the job is seen to have is one program, or a
    # hang. What runs on fewer is a process's own, a stage's, or another run's.
    everywhere = gauge(catalog.PROGRAM_DEVICES).reaching(devices, "job")
    common = gauge(catalog.PROGRAM_INFO).and_(everywhere, *PROCESS, "function")
    different = common.count(*by, "fingerprint").count(*by) > 1
    compiling = gauge(catalog.COMPILES_IN_PROGRESS).max("job") > 0
    return Alert(
        name="JaxmonProgramsDiverge",
        # While somebody compiles, the others are merely ahead.
        expr=different.unless(compiling, "job"),
        for_=thresholds.diverged_for,
        severity=TICKET,
        summary="Processes of one mesh run different programs.",
        description=(
            "The processes of job {{ $labels.job }} compiled {{ $value }} different "
            "programs for function {{ $labels.function }}, which runs on all of their "
            "devices; collective operations in it wait for ever."
        ),
    )
