"""The record of a run that has been interrupted often, made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxmon.facts.run import RunRecord


HOUR = 3600.0
# Two days, 12 failures 4 h apart, a save of 30 s each half hour.
HEALTHY: dict[str, Any] = {
    "step": 42 * HOUR,
    "data_wait": 1 * HOUR,
    "compile": 1.2 * HOUR,
    "checkpoint": 0.8 * HOUR,
    "startup": 0.2 * HOUR,
    "recovery": 1.5 * HOUR,
    "lost_progress": 1.3 * HOUR,
    "waiting": 2 * HOUR,
}
RECORD = RunRecord(
    schema=1,
    run="llama",
    writer="boot/7/1",
    host="host-1",
    starts=13,
    time=1000.0,
    seconds=HEALTHY,
    interruptions={"killed": 10, "crashed": 2},
    furthest=43_000,
    marked=True,
    saves=96,
    lost_steps=1_300,
    resumes=12,
    resume_seconds=4 * HOUR,
)


def run(seconds: dict[str, float] | None = None, **changes: Any) -> RunRecord:
    """Return a healthy record of which some seconds, and other fields, differ."""
    return replace(RECORD, seconds={**HEALTHY, **(seconds or {})}, **changes)
