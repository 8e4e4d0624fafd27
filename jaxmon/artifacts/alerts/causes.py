"""
Cause alerts: likely reasons for missed objectives, and what no objective covers.

Each function of this module's siblings creates one alert, or one per severity, from the
limits; this is the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jaxmon.artifacts.alerts import (
    checks,
    compiles,
    goodput,
    hardware,
    memory,
    monitoring,
    requests,
    slowdowns,
    starts,
    training,
)
from jaxmon.artifacts.alerts.model import Alert
from jaxmon.artifacts.slo.changes import ExpectedRun
from jaxmon.artifacts.slo.severity import PAGE
from jaxmon.formats import durations
from jaxmon.limits import Limits


def cause_alerts(
    limits: Limits,
    scale: float = 1,
    *,
    runs: Iterable[ExpectedRun] = (),
    page: str = PAGE,
) -> Iterator[Alert]:
    """
    Yield the alerts, that on deployments first: Alertmanager must see it before the
    alerts it inhibits.

    Args:
        limits: when they fire.
        scale: divides the durations that are not limits.
        runs: that are expected to run.
        page: what the site calls the severity.
    """
    hour, day = (durations.scaled(one, scale) for one in ("1h", "1d"))
    yield starts.deploy_in_progress(limits, hour)
    yield from requests.requests_hang(limits)
    yield requests.cold_starts(limits)
    yield requests.cold_latency(limits)
    yield training.training_stalled(limits)
    yield training.rank_stuck(limits)
    yield training.nccl_stuck(limits)
    yield from starts.training_died(limits, runs)
    yield starts.crash_loop(limits)
    yield starts.not_ready(limits)
    yield starts.warmup_failed(limits)
    yield from training.non_finite(limits)
    yield training.data_starvation(limits)
    yield training.time_lost(limits)
    yield training.straggler(limits)
    yield training.rank_slow(limits)
    yield training.checkpoint_age(limits)
    yield training.checkpoint_failed(limits)
    yield from goodput.of_runs(limits)
    yield from slowdowns.slower(limits, scale)
    yield from memory.out_of_memory(limits)
    yield memory.device_memory_high(limits)
    yield memory.memory_leak(limits)
    yield memory.host_memory_growth(limits)
    yield compiles.recompile_storm(limits)
    yield compiles.compile_failed(limits)
    yield compiles.compile_slow(limits)
    yield compiles.compile_stuck(limits)
    yield compiles.thundering_compilation(limits)
    yield compiles.programs_diverge(limits)
    yield from checks.of_results(limits)
    yield from hardware.accelerator_lost(limits, day)
    yield hardware.gpu_xid(limits)
    yield hardware.gpu_ecc_errors(limits)
    yield hardware.gpu_needs_reset(limits)
    yield hardware.gpu_throttled(limits)
    yield hardware.tpu_runtime_down(limits)
    yield hardware.underused(limits)
    yield hardware.idle(limits)
    yield monitoring.target_down(limits, day)
    yield from monitoring.service_vanished(limits, hour, page=page)
    yield monitoring.collector_down(limits, day)
    yield monitoring.web_config_failed(limits)
    yield monitoring.agent_silent(limits)
    yield monitoring.agent_hook_inactive(limits)
    yield monitoring.export_failing(limits)
    yield monitoring.spans_dropped(limits)
