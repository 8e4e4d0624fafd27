"""Thresholds of the alerts, in the ``alerts`` section of ``slo.yaml``."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from jaxmon.artifacts.slo import durations


Form = Literal["count", "duration", "ratio", "severity"]

Severity = Literal["page", "ticket", "info"]
PAGE: Severity = "page"
TICKET: Severity = "ticket"
INFO: Severity = "info"
SEVERITIES = (PAGE, TICKET, INFO)


def _of(form: Form, help_: str) -> dict[str, str]:
    return {"form": form, "help": help_}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a cause alert fires; each field's metadata describes it."""

    burn_3x_severity: Severity = field(
        default=TICKET,
        metadata=_of(
            "severity",
            "Severity of a burn rate of 3 over 1h.",
        ),
    )
    recompiles: float = field(
        default=20.0,
        metadata=_of(
            "count",
            "Recompiles of a function within recompile_window that count as a storm.",
        ),
    )
    recompile_window: str = field(
        default="10m",
        metadata=_of("duration", "Window in which recompiles are counted."),
    )
    cold_requests: float = field(
        default=10.0,
        metadata=_of(
            "count", "Minimum number of cold requests to a route within cold_window."
        ),
    )
    cold_share: float = field(
        default=0.05,
        metadata=_of(
            "ratio", "Minimum fraction of the route's requests that are cold."
        ),
    )
    cold_window: str = field(
        default="10m",
        metadata=_of("duration", "Window in which cold requests are counted."),
    )
    oom_window: str = field(
        default="10m",
        metadata=_of("duration", "Window for counting out-of-memory errors."),
    )
    device_memory: float = field(
        default=0.9,
        metadata=_of(
            "ratio", "Fraction of device memory in use at which allocations may fail."
        ),
    )
    device_memory_for: str = field(
        default="10m",
        metadata=_of("duration", "How long usage must stay above that."),
    )
    leak_for: str = field(
        default="20m",
        metadata=_of("duration", "How long a leak of live arrays must be suspected."),
    )
    host_memory_growth: float = field(
        default=0.1,
        metadata=_of(
            "ratio", "Growth of a process's memory within host_memory_window."
        ),
    )
    host_memory_window: str = field(
        default="1h",
        metadata=_of(
            "duration",
            "Window over which growth is measured; it must occur in two "
            "consecutive windows.",
        ),
    )
    stalled_after: str = field(
        default="10m",
        metadata=_of(
            "duration", "Age of a running loop's last step that means it is stuck."
        ),
    )
    time_lost: float = field(
        default=0.5,
        metadata=_of(
            "ratio",
            "Share of a training process's time spent waiting for data, blocked, or in "
            "operations outside of jit.",
        ),
    )
    time_lost_window: str = field(
        default="30m",
        metadata=_of("duration", "Window for measuring that share."),
    )
    nonfinite_values: float = field(
        default=10.0,
        metadata=_of(
            "count",
            "Values of a logged quantity in a row that are NaN or infinite; dynamic "
            "loss scaling makes a few.",
        ),
    )
    nonfinite_for: str = field(
        default="2m",
        metadata=_of("duration", "How long values must be NaN or infinite."),
    )
    stuck_after: str = field(
        default="15m",
        metadata=_of("duration", "Age of a compile that means it is stuck."),
    )
    diverged_for: str = field(
        default="10m",
        metadata=_of(
            "duration", "How long processes of one mesh must have different programs."
        ),
    )
    slowdown: float = field(
        default=1.5,
        metadata=_of(
            "count", "How many times as long as before a function or step must take."
        ),
    )
    slowdown_for: str = field(
        default="15m",
        metadata=_of("duration", "For how long a function or step must be slower."),
    )
    accelerator_lost_for: str = field(
        default="1m",
        metadata=_of("duration", "How long an accelerator must be down."),
    )
    accelerator_used: str = field(
        default="10m",
        metadata=_of(
            "duration",
            "A lost device pages if a program used it within this window.",
        ),
    )
    xid_window: str = field(
        default="10m",
        metadata=_of("duration", "Window for critical Xid errors."),
    )
    ecc_window: str = field(
        default="10m",
        metadata=_of("duration", "Window for uncorrectable GPU memory errors."),
    )
    reset_needed_for: str = field(
        default="10m",
        metadata=_of("duration", "How long a reset must be requested."),
    )
    throttled: float = field(
        default=0.1,
        metadata=_of(
            "ratio", "Fraction of throttled_window during which a GPU is throttled."
        ),
    )
    throttled_window: str = field(
        default="15m",
        metadata=_of("duration", "Window over which throttling is averaged."),
    )
    tpu_runtime_down_for: str = field(
        default="10m",
        metadata=_of(
            "duration",
            "How long TPU runtimes must be unresponsive while a program uses TPUs.",
        ),
    )
    target_down_for: str = field(
        default="5m",
        metadata=_of("duration", "How long a target must be unresponsive."),
    )
    vanished_for: str = field(
        default="5m",
        metadata=_of("duration", "How long a service must report nothing."),
    )
    collector_down_for: str = field(
        default="10m", metadata=_of("duration", "How long a collector must fail.")
    )
    web_config_failed_for: str = field(
        default="10m",
        metadata=_of("duration", "How long a web configuration must be invalid."),
    )
    agent_silent_for: str = field(
        default="5m",
        metadata=_of("duration", "How long an agent must be unresponsive."),
    )
    hook_inactive_for: str = field(
        default="10m", metadata=_of("duration", "How long a hook must be inactive.")
    )
    deploy_window: str = field(
        default="10m",
        metadata=_of("duration", "Process age up to which compiles are expected."),
    )
    deploy_restarts: float = field(
        default=3.0,
        metadata=_of(
            "count", "Restarts within 1h above which a process counts as crash-looping."
        ),
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
