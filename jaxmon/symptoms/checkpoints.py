"""Checkpoints that fail, or are not made any more."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.process import Snapshot
from jaxmon.facts.reading import in_order
from jaxmon.facts.status import HostFacts, Reason
from jaxmon.host.formats import durations
from jaxmon.host.formats.layout import clean, counted
from jaxmon.limits import Limits
from jaxmon.promql import eq, events, gauge
from jaxmon.symptoms.alert import TICKET, Alert
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.reason import period, reason
from jaxmon.symptoms.symptom import FAILURE, NO_SCREEN, Symptom


def failing(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect checkpoints of which the latest failed."""
    for one in snapshot.checkpoints:
        if not (failed := one.failed_in_a_row):
            continue
        many = counted(failed, f"checkpoint {one.name}").removeprefix("1 ")
        yield Finding(
            "checkpoint",
            one.name,
            f"The latest {many} failed.",
            (),
            "The program's log has the exception, unless it was swallowed: a full "
            "disk, permissions, a storage that does not respond.",
        )


def saves_failing(facts: HostFacts) -> Iterator[Reason]:
    """Yield saves and restores of checkpoints that fail."""
    found: dict[str, dict[str, float]] = {}
    failures = facts.recent.values(catalog.CHECKPOINT_FAILURES)
    for (worker, operation), failed in failures.items():
        if failed > 0:
            found.setdefault(operation, {})[worker] = failed
    for operation, of in found.items():
        many = counted(sum(of.values()), f"checkpoint {clean(operation)}")
        times = [facts.recent.seconds(worker) or 0.0 for worker in of]
        text = f"{many} failed in the last {period(max(times))}."
        yield reason("checkpoint", TICKET, text, in_order(of), operation)


def checkpoint_failed(limits: Limits) -> Alert:
    """Alert on saves that fail, the first one included, which has no age."""
    window = limits.checkpoint_window
    failed = events.CHECKPOINT_FAILURES.within(window, eq("operation", "save"))
    return Alert(
        expr=failed.sum("job") > 0,
        severity=TICKET,
        description="Saves fail; the work since the last checkpoint is not saved.",
        summary=(
            "{{ $value | humanize }} saves of job {{ $labels.job }} failed in "
            f"{window}."
        ),
    )


def checkpoint_age(limits: Limits) -> Alert:
    """Alert on a loop whose work is not saved any more."""
    saved = gauge(catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint"))
    loops = gauge(catalog.STEP_AGE_SECONDS).max("job")
    return Alert(
        # One process may save for all.
        expr=(saved.min("job") > durations.seconds(limits.checkpoint_age)).and_(loops),
        severity=TICKET,
        description="A run makes no more checkpoints; a failure costs its work.",
        summary=(
            "The last checkpoint of job {{ $labels.job }} ended "
            "{{ $value | humanizeDuration }} ago."
        ),
    )


SYMPTOMS = (
    Symptom(
        *("checkpoint", "F8", "The latest saves of a checkpoint failed.", FAILURE),
        *(failing, catalog.CHECKPOINT_FAILURES, "Training: Checkpoints that failed"),
        reason=saves_failing,
        rule=("JaxmonCheckpointFailed", checkpoint_failed),
        severity=TICKET,
    ),
    Symptom(
        *("checkpoint_age", "F8", "A run makes no checkpoints."),
        rule=("JaxmonCheckpointAge", checkpoint_age),
        missing=NO_SCREEN,
    ),
)
