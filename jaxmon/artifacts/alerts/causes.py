"""
Cause alerts: likely reasons for missed objectives, and what no objective covers.

Each function of this module's siblings creates one alert, or one per severity, from the
thresholds; this is the list.
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
from jaxmon.artifacts.slo import Thresholds, durations
from jaxmon.artifacts.slo.changes import Run
from jaxmon.artifacts.slo.thresholds import PAGE


def cause_alerts(
    thresholds: Thresholds,
    scale: float = 1,
    *,
    runs: Iterable[Run] = (),
    page: str = PAGE,
) -> Iterator[Alert]:
    """
    Yield the alerts, that on deployments first: Alertmanager must see it before the
    alerts it inhibits.

    Args:
        thresholds: when they fire.
        scale: divides the durations that are not thresholds.
        runs: that are expected to run.
        page: what the site calls the severity.
    """
    hour, day = (durations.scaled(one, scale) for one in ("1h", "1d"))
    yield starts.deploy_in_progress(thresholds, hour)
    yield from requests.requests_hang(thresholds)
    yield requests.cold_starts(thresholds)
    yield requests.cold_latency(thresholds)
    yield training.training_stalled(thresholds)
    yield training.rank_stuck(thresholds)
    yield training.nccl_stuck(thresholds)
    yield from starts.training_died(thresholds, runs)
    yield starts.crash_loop(thresholds)
    yield starts.not_ready(thresholds)
    yield starts.warmup_failed(thresholds)
    yield from training.non_finite(thresholds)
    yield training.data_starvation(thresholds)
    yield training.time_lost(thresholds)
    yield training.straggler(thresholds)
    yield training.rank_slow(thresholds)
    yield training.checkpoint_age(thresholds)
    yield training.checkpoint_failed(thresholds)
    yield from goodput.of_runs(thresholds)
    yield from slowdowns.slower(thresholds, scale)
    yield from memory.out_of_memory(thresholds)
    yield memory.device_memory_high(thresholds)
    yield memory.memory_leak(thresholds)
    yield memory.host_memory_growth(thresholds)
    yield compiles.recompile_storm(thresholds)
    yield compiles.compile_failed(thresholds)
    yield compiles.compile_slow(thresholds)
    yield compiles.compile_stuck(thresholds)
    yield compiles.thundering_compilation(thresholds)
    yield compiles.programs_diverge(thresholds)
    yield from checks.of_results(thresholds)
    yield from hardware.accelerator_lost(thresholds, day)
    yield hardware.gpu_xid(thresholds)
    yield hardware.gpu_ecc_errors(thresholds)
    yield hardware.gpu_needs_reset(thresholds)
    yield hardware.gpu_throttled(thresholds)
    yield hardware.tpu_runtime_down(thresholds)
    yield hardware.underused(thresholds)
    yield hardware.idle(thresholds)
    yield monitoring.target_down(thresholds, day)
    yield from monitoring.service_vanished(thresholds, hour, page=page)
    yield monitoring.collector_down(thresholds, day)
    yield monitoring.web_config_failed(thresholds)
    yield monitoring.agent_silent(thresholds)
    yield monitoring.agent_hook_inactive(thresholds)
    yield monitoring.export_failing(thresholds)
    yield monitoring.spans_dropped(thresholds)
