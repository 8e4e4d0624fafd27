"""
Cause alerts: likely reasons for missed objectives.

This module has those about the program as a whole, and the complete list. Each function
of this module and its siblings creates one alert, or one per severity, from the
thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.artifacts import promql
from jaxmon.artifacts.alerts import compiles, hardware, memory, monitoring, starts
from jaxmon.artifacts.alerts.model import PROCESS, Alert
from jaxmon.artifacts.promql import counter, gauge
from jaxmon.artifacts.slo import Thresholds, durations
from jaxmon.artifacts.slo.thresholds import INFO, PAGE, TICKET


DEPLOY_ALERT = "JaxmonDeployInProgress"
# States in which the device waits for the program.
TIME_LOST_ALERT = "JaxmonTimeLost"
_LOST = "data_wait|eager|gc|blocked"
STALLED_ALERT, STALLED_SLO = "JaxmonTrainingStalled", "step-freshness"


def cause_alerts(thresholds: Thresholds, scale: float) -> Iterator[Alert]:
    """
    Yield the alerts, `DEPLOY_ALERT` first: Alertmanager must see it before the alerts
    it inhibits. *scale* divides the durations that are not thresholds.
    """
    hour, day = (durations.scaled(one, scale) for one in ("1h", "1d"))
    yield _deploy_in_progress(thresholds, hour)
    yield compiles.recompile_storm(thresholds)
    yield compiles.cold_starts(thresholds)
    yield memory.out_of_memory(thresholds)
    yield memory.device_memory_high(thresholds)
    yield memory.memory_leak(thresholds)
    yield memory.host_memory_growth(thresholds)
    yield _training_stalled(thresholds)
    yield _time_lost(thresholds)
    yield _non_finite(thresholds)
    yield _slower(thresholds)
    yield compiles.compile_stuck(thresholds)
    yield compiles.programs_diverge(thresholds)
    yield from hardware.accelerator_lost(thresholds, day)
    yield hardware.gpu_xid(thresholds)
    yield hardware.gpu_ecc_errors(thresholds)
    yield hardware.gpu_needs_reset(thresholds)
    yield hardware.gpu_throttled(thresholds)
    yield hardware.tpu_runtime_down(thresholds)
    yield monitoring.target_down(thresholds, day)
    yield from monitoring.service_vanished(thresholds, hour)
    yield monitoring.collector_down(thresholds, day)
    yield monitoring.web_config_failed(thresholds)
    yield monitoring.agent_silent(thresholds)
    yield monitoring.agent_hook_inactive(thresholds)


def _deploy_in_progress(thresholds: Thresholds, hour: str) -> Alert:
    # A process that keeps restarting would inhibit its own alerts.
    restarts = thresholds.deploy_restarts
    return Alert(
        name=DEPLOY_ALERT,
        expr=starts.youngest(thresholds.deploy_window, restarts=restarts, hour=hour),
        severity=INFO,
        summary="Processes of a job started recently; compiles are expected.",
        description=(
            "The latest process of job {{ $labels.job }} started "
            "{{ $value | humanizeDuration }} ago. Compile tickets are held "
            f"back until it has run for {thresholds.deploy_window}."
        ),
    )


def _slower(thresholds: Thresholds) -> Alert:
    slowdown = gauge(catalog.SLOWDOWN).max("job", "kind", "name", "against")
    return Alert(
        name="JaxmonSlowdown",
        expr=slowdown > thresholds.slowdown,
        for_=thresholds.slowdown_for,
        severity=TICKET,
        summary="A function or a loop is slower than before.",
        description=(
            "{{ $labels.kind | title }} {{ $labels.name }} of job {{ $labels.job }} "
            "takes {{ $value | humanize }} times as long as "
            '{{ if eq $labels.against "past_run" }}in an earlier run.'
            "{{ else }}earlier in its run.{{ end }}"
        ),
    )


def _training_stalled(thresholds: Thresholds) -> Alert:
    # The first step of a large model takes long to compile; that counts as progress for
    # a while.
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS)
    compiling = (oldest > 0) < durations.seconds(thresholds.stuck_after)
    age = promql.time() - gauge(catalog.LAST_STEP_TIMESTAMP_SECONDS)
    age = age.unless(compiling, *PROCESS)
    return Alert(
        name=STALLED_ALERT,
        # One stuck process stops the others: the oldest step is what counts.
        expr=age.max("job", "loop") > durations.seconds(thresholds.stalled_after),
        severity=PAGE,
        summary="A running loop is making no progress.",
        description=(
            "A process of job {{ $labels.job }} finished its last step of loop "
            "{{ $labels.loop }} {{ $value | humanizeDuration }} ago."
        ),
        labels=(("slo", STALLED_SLO),),
    )


def _time_lost(thresholds: Thresholds) -> Alert:
    window = thresholds.time_lost_window
    lost = counter(catalog.WALL_SECONDS, promql.re("state", _LOST)).rate(window)
    # Of processes in a loop: a server waits for requests, not for data.
    loops = gauge(catalog.LAST_STEP_TIMESTAMP_SECONDS).max(*PROCESS)
    share = lost.sum(*PROCESS, "state").and_(loops, *PROCESS)
    return Alert(
        name=TIME_LOST_ALERT,
        # All ranks wait for the slowest.
        expr=share.max("job", "state") > thresholds.time_lost,
        severity=TICKET,
        summary="Training spends most of its time on something else.",
        description=(
            "A process of job {{ $labels.job }} spent "
            f"{{{{ $value | humanizePercentage }}}} of the last {window} on "
            "{{ $labels.state }}."
        ),
    )


def _non_finite(thresholds: Thresholds) -> Alert:
    outputs = gauge(catalog.NONFINITE_OUTPUTS).max("job", "name") > 0
    run = gauge(catalog.VALUE_NONFINITE_RUN).max("job", "name")
    return Alert(
        name="JaxmonNonFinite",
        expr=outputs.or_(run > thresholds.nonfinite_values),
        for_=thresholds.nonfinite_for,
        severity=TICKET,
        summary="Values became NaN or infinite and stay so.",
        description=(
            "{{ $labels.name }} of job {{ $labels.job }} was finite, and is NaN or "
            "infinite since."
        ),
    )
