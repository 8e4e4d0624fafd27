"""What a finding says, and where its topic is measured, displayed and explained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.report.layout import ago
from jaxmon.report.model import Event


class Urgency(IntEnum):
    """What a finding costs, the most urgent first."""

    FAILURE = 0
    """Something failed, is wrong, or is about to fail."""
    TIME = 1
    """Something takes time; `Finding.seconds` says how much could be won back."""
    HINT = 2
    """Something could be better, by an unknown amount."""
    NOTE = 3
    """Nothing is wrong; it says what takes the time."""


class Topic(NamedTuple):
    """
    What all findings of one kind have in common.

    Attributes:
        urgency: what they cost.
        metric: the metric that shows it over time, if there is one.
        panel: the dashboard and the panel, ``Debug: Recompiles over time``.
        runbook: the runbook to follow.
    """

    urgency: Urgency
    metric: Metric | None = None
    panel: str = ""
    runbook: str = ""


MOST_OF_A_MESSAGE = 200

_FAILURE, _TIME, _HINT, _NOTE = Urgency
_COMPILES = Topic(
    _TIME,
    catalog.COMPILE_SECONDS,
    "Debug: Compile time by function",
    "JaxmonColdStarts",
)
_WARNING = Topic(_HINT, catalog.JAX_WARNINGS, "Debug: Warnings of JAX")
_WALL_TIME = Topic(
    _TIME, catalog.WALL_SECONDS, "Debug: Where the time goes", "JaxmonTimeLost"
)
_RUN_TIME = Topic(
    _TIME,
    catalog.RUN_SECONDS,
    "Training: What the wall time of runs went into",
    "JaxmonGoodputLow",
)
_LOST_STEPS = Topic(
    _TIME, catalog.RUN_LOST_STEPS, "Training: Steps done again", "JaxmonGoodputLow"
)
_RECOMPILES = Topic(
    _TIME, catalog.RECOMPILES, "Debug: Recompiles over time", "JaxmonRecompileStorm"
)

TOPICS: dict[str, Topic] = {
    "oom": Topic(
        _FAILURE, catalog.ERRORS, "Debug: Errors over time", "JaxmonOutOfMemory"
    ),
    "memory": Topic(
        _FAILURE,
        catalog.DEVICE_MEMORY_BYTES,
        "On-call: Device memory in use",
        "JaxmonDeviceMemoryHigh",
    ),
    "leak": Topic(
        _FAILURE,
        catalog.LEAK_GROWTH_BYTES,
        "Debug: Suspected leak",
        "JaxmonMemoryLeak",
    ),
    "compile_stuck": Topic(
        _FAILURE,
        catalog.COMPILE_OLDEST_SECONDS,
        "On-call: Oldest compile in progress",
        "JaxmonCompileStuck",
    ),
    "stalled": Topic(
        _FAILURE,
        catalog.STEP_AGE_SECONDS,
        "On-call: Age of the last step",
        "JaxmonTrainingStalled",
    ),
    "no_progress": Topic(
        _FAILURE,
        catalog.RUN_FRUITLESS_ATTEMPTS,
        "Training: Attempts without progress",
        "JaxmonRunNoProgress",
    ),
    "error": Topic(_FAILURE, catalog.ERRORS, "Debug: Errors by function and kind"),
    "requests": Topic(
        _FAILURE,
        catalog.REQUESTS,
        "On-call: Requests by outcome",
        "JaxmonRequestErrorBudgetBurn",
    ),
    "hanging": Topic(
        _FAILURE,
        catalog.REQUEST_OLDEST_SECONDS,
        "On-call: Oldest request in progress",
        "JaxmonRequestsHang",
    ),
    "nonfinite": Topic(
        _FAILURE,
        catalog.NONFINITE_OUTPUTS,
        "On-call: Non-finite values",
        "JaxmonNonFinite",
    ),
    "nonfinite_value": Topic(
        _FAILURE,
        catalog.VALUE_NONFINITE_RUN,
        "On-call: Non-finite values",
        "JaxmonNonFinite",
    ),
    "diverging": Topic(_FAILURE, catalog.VALUE, "On-call: Logged values"),
    "determinism": Topic(
        _FAILURE,
        catalog.DETERMINISM_CHECKS,
        "Debug: Determinism checks",
        "JaxmonCheckFailed",
    ),
    "gradients": Topic(
        _FAILURE,
        catalog.GRADIENT_CHECKS,
        "Debug: Gradient checks",
        "JaxmonCheckFailed",
    ),
    "queue": Topic(_FAILURE, catalog.QUEUE_DEPTH, "On-call: Queue depth"),
    "checkpoint": Topic(
        _FAILURE,
        catalog.CHECKPOINT_FAILURES,
        "Training: Checkpoints that failed",
        "JaxmonCheckpointFailed",
    ),
    "frozen_value": Topic(_FAILURE),
    "dropped_update": Topic(_FAILURE),
    "leaked_tracer": Topic(_FAILURE),
    "recompile": _RECOMPILES,
    "recompiles": _RECOMPILES,
    "operations": _COMPILES,
    "compiled_together": _COMPILES,
    "compile_share": _COMPILES,
    "cold_requests": Topic(
        _TIME, catalog.REQUESTS, "On-call: Cold request ratio", "JaxmonColdStarts"
    ),
    "event_loop": _WALL_TIME,
    "padding": Topic(_TIME, catalog.BATCH_FILL_RATIO, "On-call: Batch fill"),
    "effects": Topic(
        _TIME, catalog.JIT_CACHE_MISSES, "Debug: Cache misses by function"
    ),
    "slower": Topic(
        _TIME, catalog.SLOWDOWN, "Debug: Slower than before", "JaxmonSlowdown"
    ),
    "numpy_argument": Topic(
        _TIME, catalog.DISPATCH_SECONDS, "Debug: Dispatch time by function"
    ),
    "transfer": Topic(
        _TIME, catalog.HOST_TRANSFER_SECONDS, "Debug: Time blocked on transfers"
    ),
    "printed_tracer": Topic(_HINT),
    "fragmentation": Topic(
        _HINT, catalog.DEVICE_MEMORY_BYTES, "Debug: Device memory by kind"
    ),
    "eager": _WALL_TIME,
    "data_wait": _WALL_TIME,
    "host": _WALL_TIME,
    "garbage": _WALL_TIME,
    "interpreter": _WALL_TIME,
    "blocked": _WALL_TIME,
    "copies": _WALL_TIME,
    "fetch": _WALL_TIME,
    "old_checkpoint": _LOST_STEPS,
    "lost_progress": _LOST_STEPS,
    "recovery": Topic(
        _TIME,
        catalog.RUN_RESUME_SECONDS,
        "Training: Time to resume",
        "JaxmonGoodputLow",
    ),
    "checkpoint_time": _RUN_TIME,
    "between_attempts": _RUN_TIME._replace(urgency=_HINT),
    "compiling": Topic(
        _NOTE, catalog.COMPILE_SECONDS, "Debug: Compile time by function"
    ),
    "startup": Topic(_NOTE, catalog.WALL_SECONDS, "Debug: Where the time goes"),
    "idle": Topic(_NOTE, catalog.WALL_SECONDS, "Debug: Where the time goes"),
    "device": Topic(
        _NOTE, catalog.EXECUTION_SECONDS, "Debug: Execution time by function"
    ),
    "same_key": Topic(_HINT),
    "double": Topic(
        _NOTE, catalog.PROGRAM_MATRIX_FLOPS, "Debug: Latest program of each function"
    ),
    "float64": Topic(_HINT, catalog.FLOAT64_PROMOTIONS, "Debug: Promotions to float64"),
    "infinite": Topic(_HINT, catalog.NONFINITE, "Debug: Non-finite outputs"),
    "always_nan": Topic(_HINT, catalog.NONFINITE, "Debug: Non-finite outputs"),
    "warning_donation": _WARNING,
    "warning_dtype_unavailable": _WARNING,
    "warning_backend": _WARNING,
    "export": Topic(
        _HINT,
        catalog.OTLP_EXPORTS,
        "Debug: Failed exports by process",
        "JaxmonExportFailing",
    ),
    "spans": Topic(
        _HINT,
        catalog.DROPPED,
        "Debug: Dropped spans by process",
        "JaxmonSpansDropped",
    ),
    "spike": Topic(_HINT, catalog.VALUE_SPIKES, "On-call: Spikes of logged values"),
    "cache": Topic(
        _HINT,
        catalog.PERSISTENT_CACHE_REQUESTS,
        "Debug: Persistent cache hit rate",
        "JaxmonCacheHitRateBudgetBurn",
    ),
}
"""The topics of findings, by the name that programs read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One thing to change.

    Attributes:
        topic: one of `TOPICS`.
        subject: the function, device, line, loop or route; may be empty.
        verdict: what is wrong, with numbers.
        evidence: lines that show it.
        action: what to do about it.
        where: ``file:line`` of the user's code, if it is one line.
        seconds: how much of the observed time it would win back; 0 if unknown.
    """

    topic: str
    subject: str
    verdict: str
    evidence: tuple[str, ...]
    action: str
    where: str = ""
    seconds: float = 0.0

    @property
    def about(self) -> Topic:
        """What it has in common with others of its topic."""
        return TOPICS[self.topic]

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON types."""
        topic = self.about
        return {
            **asdict(self),
            "evidence": list(self.evidence),
            "urgency": topic.urgency.name.lower(),
            "metric": "" if topic.metric is None else topic.metric.name,
            "panel": topic.panel,
            "runbook": topic.runbook,
        }


NOTHING = "Nothing to fix stands out."


def verdict(findings: Iterable[Finding]) -> str:
    """Return `NOTHING` if nothing is to fix among *findings*, else ``""``."""
    quiet = all(one.about.urgency is Urgency.NOTE for one in findings)
    return NOTHING if quiet else ""


def ranked(findings: list[Finding]) -> list[Finding]:
    """Return *findings* by urgency, then by the time they would win back."""
    return sorted(findings, key=lambda one: (one.about.urgency, -one.seconds))


def quoted(error: Event, now: float) -> str:
    """Return when and where *error* occurred, and the first sentence of its message."""
    said = error.message.partition(". ")[0][:MOST_OF_A_MESSAGE]
    where = error.details.get("where")
    place = f", at {where}" if where else ""
    return f"{ago(now - error.time)}{place}: {said}"
