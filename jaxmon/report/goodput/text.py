"""The record of a run, for people and as JSON types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from jaxmon.catalog import RUN_ACTIVITIES
from jaxmon.report.goodput.record import RunRecord
from jaxmon.report.layout import (
    Column,
    ago,
    counted,
    duration,
    share,
    table,
    times,
    wrapped,
)


ACTIVITIES = {
    "step": "steps, each once",
    "compile": "compiling",
    "data_wait": "waiting for data",
    "checkpoint": "saving checkpoints",
    "startup": "starting the first time",
    "recovery": "starting again, restoring",
    "lost_progress": "steps done again",
    "waiting": "between attempts",
    "marked": "activities that the program marks",
    "unknown": "unknown",
}
"""What is displayed for each activity."""

_LAYOUT = (
    Column("ACTIVITY", 36, right=False),
    Column("TIME", 14),
    Column("SHARE", 9),
    Column("", right=False),
)
_INDENT = "  "


def lines(record: RunRecord, width: int, *, now: float) -> list[str]:
    """Return what *record* says, in lines of *width*, at the Unix time *now*."""
    goodput, wall = record.goodput, record.wall
    rate = "unknown" if goodput is None else share(goodput, 1.0)
    head = (
        f"{record.run}: goodput {rate} of {duration(wall)}, attempt {_attempt(record)}"
    )
    spent = {name: record.seconds.get(name, 0.0) for name in RUN_ACTIVITIES}
    rows = [
        (ACTIVITIES[name], duration(seconds), share(seconds, wall), "")
        for name, seconds in sorted(spent.items(), key=lambda item: -item[1])
        if seconds
    ]
    return [
        head,
        *table(_LAYOUT, rows, width=width),
        *(
            one
            for text in _sentences(record, now)
            for one in wrapped(text, width, first=_INDENT, rest=_INDENT * 2)
        ),
    ]


def document(record: RunRecord) -> dict[str, Any]:
    """Return *record* and the figures that follow from it."""
    return {
        **asdict(record),
        "wall_seconds": record.wall,
        "goodput": record.goodput,
        "steps": record.steps,
        "seconds_between_failures": record.seconds_between,
        "seconds_to_resume": record.seconds_to_resume,
    }


def _attempt(record: RunRecord) -> str:
    return f"{record.interrupted + 1:,}"


def _sentences(record: RunRecord, now: float) -> Iterator[str]:
    if record.marked:
        lost = f"; {record.lost_steps:,} had to be done again" * bool(record.lost_steps)
        yield f"{counted(record.steps, 'step')} done{lost}"
    else:
        yield "no steps are marked: what was progress is not known"
    if record.interrupted:
        kinds = ", ".join(f"{n:,} {how}" for how, n in record.interruptions.items())
        between, resume = record.seconds_between, record.seconds_to_resume
        yield (
            f"interrupted {times(record.interrupted)} ({kinds})"
            + (f", every {duration(between)} on average" if between else "")
            + (f"; the next step was done {duration(resume)} later" if resume else "")
        )
    if record.fruitless > 1:
        yield f"{record.fruitless:,} attempts in a row have done no new step"
    how = f"; this attempt {record.ended}" if record.ended else ""
    host = record.host or "a host"
    yield f"written {ago(max(now - record.time, 0.0))} by {host}{how}"
