"""
Thresholds of the alerts, in the ``alerts`` section of ``slo.yaml``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


Form = Literal["count", "duration", "ratio", "severity"]

SEVERITIES = ("page", "ticket", "info")


def _of(form: Form, default: float | str, help_: str) -> Any:
    return field(default=default, metadata={"form": form, "help": help_})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """
    When a cause alert fires; each field's metadata says what it means.
    """

    burn_3x_severity: str = _of(
        "severity",
        "ticket",
        "Severity of burning the budget 3 times as fast as it lasts, over one hour.",
    )
    recompiles: float = _of(
        "count",
        20,
        "Recompiles of one function, within recompile_window, that make a storm.",
    )
    recompile_window: str = _of(
        "duration", "10m", "Window in which recompiles are counted."
    )
    cold_requests: float = _of(
        "count",
        10,
        "Cold requests of one route, within cold_window, that are worth a look.",
    )
    cold_share: float = _of(
        "ratio", 0.05, "Share of cold requests in cold_window that is worth a look."
    )
    cold_window: str = _of(
        "duration", "10m", "Window in which cold requests are counted."
    )
    device_memory: float = _of(
        "ratio",
        0.9,
        "Share of a device's memory in use that endangers the next allocation.",
    )
    device_memory_for: str = _of(
        "duration", "10m", "How long device memory must stay above that."
    )
    host_memory_growth: float = _of(
        "ratio", 0.1, "Growth of a process per hour, as a share of the host's memory."
    )
    host_memory_window: str = _of(
        "duration", "1h", "Window over which growth is measured."
    )
    stalled_after: str = _of(
        "duration",
        "10m",
        "Age of the last step of a running loop that means it is stuck.",
    )
    stuck_after: str = _of(
        "duration", "15m", "Age of a compile that means it is stuck."
    )
    collector_down_for: str = _of("duration", "10m", "How long a collector must fail.")
    target_down_for: str = _of(
        "duration", "5m", "How long a target must be unreachable."
    )
    deploy_window: str = _of(
        "duration", "10m", "How long after a start of a process compiles are expected."
    )
