"""Findings on what is slower than before, in this run or against a past one."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.events import Slower
from jaxmon.facts.process import Snapshot
from jaxmon.formats.layout import ago, duration
from jaxmon.report.findings.finding import Finding


_EARLIER = (
    "Look at what changed when it began. If nothing did, look at the device's clocks "
    "and temperature, and for other processes on this host; `jaxmon profile` shows "
    "which operations take the time."
)
_CROWDED = (
    "Other processes took the processors that it runs on: move them elsewhere, or "
    "give this program processors of its own."
)
_PAST_RUN = (
    "Undo one of the changes at a time; `jaxmon baseline` compares two versions in "
    "turn."
)


def slower(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect functions and loops that are slower than before."""
    for one in snapshot.slower:
        if one.recent_seconds <= one.settled_seconds:
            continue
        action = _PAST_RUN if one.against == "past_run" else _EARLIER
        yield Finding(
            "slower",
            one.name,
            _verdict(one, snapshot.process.now),
            (*one.beside, *_changes(one)),
            _CROWDED if one.crowded else action,
            seconds=(one.recent_seconds - one.settled_seconds) * one.calls,
        )


def _verdict(one: Slower, now: float) -> str:
    ratio = one.recent_seconds / max(one.settled_seconds, 1e-9)
    what = f"A step of loop {one.name}" if one.what == "loop" else one.name
    since = ago(max(now - one.since, 0.0))
    when = (
        f"as in the run that ended {since}"
        if one.against == "past_run"
        else f"as before, since {since}"
    )
    why = "; other processes hold the processors" if one.crowded else ""
    return (
        f"{what} takes {ratio:.1f} times as long {when}: "
        f"{duration(one.settled_seconds)} → {duration(one.recent_seconds)}{why}."
    )


def _changes(one: Slower) -> Iterator[str]:
    if one.against == "past_run":
        shapes = f", for the same arguments ({one.shapes})" if one.shapes else ""
        changed = "; ".join(one.changed) or "nothing that jaxmon records"
        yield f"changed: {changed}{shapes}"
    elif one.shapes:
        yield f"for the same arguments: {one.shapes}"
