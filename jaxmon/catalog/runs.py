"""Metrics of runs: what all attempts of a training took together."""

from __future__ import annotations

from jaxmon.catalog.model import Sheet
from jaxmon.catalog.values import RUN_ACTIVITIES, RUN_ENDINGS


RUNS_GROUP = "Runs"
"""
The group of these metrics. They continue what earlier attempts counted, so neither the
sidecar nor a receiver of deltas may add them to what it has of earlier processes.
"""

_runs = Sheet(RUNS_GROUP)

RUN_SECONDS = _runs.counter(
    "jaxmon_run_seconds_total",
    "Wall time since the first attempt of a run began, by what it went into.",
    "run",
    ("activity", RUN_ACTIVITIES),
)
RUN_INTERRUPTIONS = _runs.counter(
    "jaxmon_run_interruptions_total",
    "Attempts of a run that ended before the current one, by how.",
    "run",
    ("ending", RUN_ENDINGS),
)
RUN_STEPS = _runs.counter(
    "jaxmon_run_steps_total",
    "Steps of a run that were done, each counted once however often it was done.",
    "run",
)
RUN_LOST_STEPS = _runs.counter(
    "jaxmon_run_lost_steps_total",
    "Steps of a run that were done and had to be done again.",
    "run",
)
RUN_SAVES = _runs.counter(
    "jaxmon_run_saves_total",
    "Checkpoints of a run that were saved.",
    "run",
)
RUN_RESUMES = _runs.counter(
    "jaxmon_run_resumes_total",
    "Interruptions of a run after which a step was done again.",
    "run",
)
RUN_RESUME_SECONDS = _runs.counter(
    "jaxmon_run_resume_seconds_total",
    "Time from each interruption of a run to the end of the next step.",
    "run",
)
RUN_FRUITLESS_ATTEMPTS = _runs.gauge(
    "jaxmon_run_fruitless_attempts",
    "Attempts in a row, with the current one, that have done no step for the first "
    "time.",
    "run",
    limits=(0.0, 1e9),
)
RUN_UNSAVED_SECONDS = _runs.gauge(
    "jaxmon_run_unsaved_seconds",
    "Time since the record of a run was last written; a kill costs that much of it.",
    "run",
)
