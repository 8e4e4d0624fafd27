"""Thresholds of the alerts, in the ``alerts`` section of ``slo.yaml``."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from jaxmon.artifacts.slo import durations


Form = Literal["count", "duration", "ratio"]

Severity = Literal["page", "ticket", "info"]
PAGE: Severity = "page"
TICKET: Severity = "ticket"
INFO: Severity = "info"
SEVERITIES = (PAGE, TICKET, INFO)


def _count(default: float, meaning: str) -> Any:
    return _threshold("count", float(default), meaning)


def _duration(default: str, meaning: str) -> Any:
    return _threshold("duration", default, meaning)


def _ratio(default: float, meaning: str) -> Any:
    return _threshold("ratio", default, meaning)


def _threshold(form: Form, default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"form": form, "help": meaning})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a cause alert fires; each field's metadata describes it."""

    recompiles: float = _count(
        20,
        "Recompiles of a function within recompile_window that count as a storm.",
    )
    recompile_window: str = _duration("10m", "Window in which recompiles are counted.")
    compile_failures: float = _count(
        3,
        "Failed compiles of a function within compile_window.",
    )
    compile_slow: float = _ratio(
        0.05,
        "Maximum fraction of a service's compiles that take longer than a second.",
    )
    compiles: float = _count(
        20,
        "Minimum number of compiles within compile_window for compile_slow.",
    )
    compile_window: str = _duration("30m", "Window in which compiles are judged.")
    thundering: float = _count(
        4,
        "Minimum number of processes that compile the same function within "
        "thundering_window, rather than load it from a shared cache.",
    )
    thundering_share: float = _ratio(
        0.5,
        "Minimum fraction of the job's processes that do so.",
    )
    thundering_seconds: float = _count(
        60,
        "Minimum time that they spend on it, in seconds.",
    )
    thundering_window: str = _duration("10m", "Window in which they do so.")
    cold_requests: float = _count(
        10,
        "Minimum number of cold requests to a route within cold_window.",
    )
    cold_share: float = _ratio(
        0.05,
        "Minimum fraction of the route's requests that are cold.",
    )
    cold_window: str = _duration("10m", "Window in which cold requests are counted.")
    cold_latency: str = _duration(
        "10s",
        "Latency that 95 % of a route's cold requests should not exceed.",
    )
    hang_after: str = _duration(
        "5m",
        "How long no request of a route may finish while some are in progress.",
    )
    cancelled_after: str = _duration(
        "1s",
        "Mean time after which callers give up on a route that answers none.",
    )
    oom_window: str = _duration("10m", "Window for counting out-of-memory errors.")
    oom_share: float = _ratio(
        0.5,
        "Minimum fraction of a job's processes, and at least two, that run out of "
        "memory for a page.",
    )
    device_memory: float = _ratio(
        0.8,
        "Fraction of device memory in use at which allocations may fail.",
    )
    device_memory_for: str = _duration("10m", "How long usage must stay above that.")
    leak_for: str = _duration(
        "20m",
        "How long a leak of live arrays must be suspected.",
    )
    host_memory_growth: float = _ratio(
        0.1,
        "Growth of a process's memory within host_memory_window.",
    )
    host_memory_window: str = _duration(
        "1h",
        "Window over which growth is measured; it must occur in two consecutive "
        "windows.",
    )
    stalled_after: str = _duration(
        "10m",
        "Age of a running loop's last step that means it is stuck.",
    )
    stalled_for: str = _duration("2m", "How long that must last.")
    activity_after: str = _duration(
        "1h",
        "Age of an evaluation, checkpoint or other activity from which it no longer"
        " explains why a loop stands still.",
    )
    died_for: str = _duration(
        "3m",
        "How long a training process must be dead without a successor.",
    )
    died_within: str = _duration(
        "6h",
        "How long ago it may have been alive; older deaths are not news.",
    )
    crash_starts: float = _count(
        3,
        "Starts of one process within crash_window, without a step or request, that"
        " count as a crash loop.",
    )
    crash_window: str = _duration("15m", "Window in which starts are counted.")
    not_ready_for: str = _duration(
        "30m", "How long a process that announced a warm-up may take to be ready."
    )
    warmup_window: str = _duration(
        "1h", "Window in which a signature that fails to warm up counts."
    )
    data_wait: float = _ratio(
        0.3,
        "Share of a training process's time spent waiting for data.",
    )
    rank_stuck_after: str = _duration(
        "30s",
        "How long a process of a job may let the others wait in a collective; at least "
        "10s, and no less than three times as long as is usual.",
    )
    nccl_stuck_for: str = _duration(
        "5m",
        "How long NCCL must find ranks of a job behind, without any progress, or "
        "processes missing.",
    )
    straggler: float = _count(
        1.3,
        "How many times as long as in the median process a function must take.",
    )
    straggler_for: str = _duration("15m", "For how long it must.")
    rank_slow: float = _ratio(
        0.2,
        "Fraction of the time that the median process of a job must wait longer for "
        "its device than one that hardly waits.",
    )
    rank_slow_for: str = _duration("10m", "For how long it must.")
    checkpoint_age: str = _duration(
        "6h",
        "Age of the last checkpoint of a loop that makes checkpoints.",
    )
    checkpoint_window: str = _duration(
        "1h", "Window in which a failed save counts; Orbax's are known."
    )
    fruitless_attempts: float = _count(
        3,
        "Attempts of a run in a row without a new step; one more fires.",
    )
    goodput: float = _ratio(
        0.5,
        "Minimum fraction of a run's wall time within goodput_window, waiting for "
        "machines included, that goes into steps that last.",
    )
    goodput_window: str = _duration("6h", "Window in which goodput is judged.")
    goodput_for: str = _duration("15m", "How long it may be lower.")
    time_lost: float = _ratio(
        0.5,
        "Share of a training process's time spent blocked, or in operations outside"
        " of jit.",
    )
    time_lost_window: str = _duration("30m", "Window for measuring that share.")
    nonfinite_values: float = _count(
        10,
        "Values of a logged quantity in a row that are NaN or infinite; dynamic "
        "loss scaling makes a few.",
    )
    nonfinite_for: str = _duration("2m", "How long values must be NaN or infinite.")
    stuck_after: str = _duration("15m", "Age of a compile that means it is stuck.")
    diverged_for: str = _duration(
        "10m",
        "How long processes of one mesh must have different programs.",
    )
    slowdown: float = _count(
        1.5,
        "How many times as long as before a function or step must take.",
    )
    slowdown_for: str = _duration(
        "15m",
        "For how long a function or step must be slower.",
    )
    key_window: str = _duration("1h", "Window for rejected reuses of PRNG keys.")
    check_window: str = _duration(
        "1h",
        "Window for failed determinism and gradient checks.",
    )
    deviations: float = _count(
        3,
        "Checks within deviation_window in which outputs differed on one device of a "
        "process, and on no other, after which it is corrupting data.",
    )
    deviation_window: str = _duration("2h", "Window for deviations of one device.")
    accelerator_lost_for: str = _duration("1m", "How long an accelerator must be down.")
    accelerator_used: str = _duration(
        "10m",
        "A lost device pages if a program used it within this window.",
    )
    accelerator_busy: float = _ratio(
        0.6,
        "Minimum mean utilisation of accelerators that a program uses.",
    )
    accelerator_idle: float = _ratio(
        0.02,
        "Mean utilisation up to which an accelerator in use is idle.",
    )
    accelerator_window: str = _duration(
        "1h",
        "Window over which utilisation is averaged.",
    )
    xid_window: str = _duration("10m", "Window for critical Xid errors.")
    ecc_window: str = _duration("10m", "Window for uncorrectable GPU memory errors.")
    reset_needed_for: str = _duration("10m", "How long a reset must be requested.")
    throttled: float = _ratio(
        0.1,
        "Fraction of throttled_window during which a GPU is throttled.",
    )
    throttled_window: str = _duration(
        "15m",
        "Window over which throttling is averaged.",
    )
    tpu_runtime_down_for: str = _duration(
        "10m",
        "How long TPU runtimes must be unresponsive while a program uses TPUs.",
    )
    target_down_for: str = _duration("5m", "How long a target must be unresponsive.")
    vanished_for: str = _duration("5m", "How long a service must report nothing.")
    collector_down_for: str = _duration("10m", "How long a collector must fail.")
    web_config_failed_for: str = _duration(
        "10m",
        "How long a web configuration must be invalid.",
    )
    agent_silent_for: str = _duration("5m", "How long an agent must be unresponsive.")
    hook_inactive_for: str = _duration("10m", "How long a hook must be inactive.")
    export_window: str = _duration(
        "10m",
        "Window in which every export by OTLP must fail, or spans be dropped; some "
        "exports must fall into it.",
    )
    export_failing_for: str = _duration("15m", "How long that must last.")
    spans_dropped: float = _count(
        100,
        "Minimum number of spans that a process drops within export_window.",
    )
    deploy_window: str = _duration(
        "10m",
        "Process age up to which compiles are expected.",
    )
    deploy_share: float = _ratio(
        0.25,
        "Minimum fraction of a job's processes that must be that young.",
    )
    deploy_restarts: float = _count(
        3,
        "Restarts within 1h above which a process counts as crash-looping.",
    )

    def scaled(self, scale: float) -> Self:
        """Return them with every duration divided by *scale*."""
        changes: dict[str, Any] = {
            one.name: durations.scaled(getattr(self, one.name), scale)
            for one in fields(self)
            if one.metadata["form"] == "duration"
        }
        return replace(self, **changes)


def section() -> str:
    """Return the section ``alerts`` of ``slo.yaml``: each default and its meaning."""
    defaults = Thresholds()
    lines = ["# Thresholds of the other alerts, with their defaults.", "alerts:"]
    for one in fields(defaults):
        comment = textwrap.wrap(one.metadata["help"], 76)
        value = _written(one.metadata["form"], getattr(defaults, one.name))
        lines += [f"  # {line}" for line in comment] + [f"  {one.name}: {value}"]
    return "\n".join(lines) + "\n"


def _written(form: Form, value: Any) -> str:
    if form == "ratio":
        return f"{value * 100:g}%"
    return f"{value:g}" if form == "count" else str(value)
