"""What the record of a run says: its goodput across restarts, and how it saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from jaxmon.catalog import RUN_ACTIVITIES
from jaxmon.facts.run import RunRecord, Saving, plausible, saving
from jaxmon.host.formats.layout import Column, ago, counted, duration, share
from jaxmon.screens.section import Section
from jaxmon.symptoms.runs import interruptions


_ACTIVITIES = {
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
_TITLE = "GOODPUT ACROSS RESTARTS"
_LAYOUT = (
    Column("ACTIVITY", 36, right=False),
    Column("TIME", 14),
    Column("SHARE", 9),
    Column("", right=False),
)


def goodput(found: RunRecord) -> Section:
    """Return the section of a report on the run that *found* is the record of."""
    record = plausible(found)
    if record is None:
        return Section(_TITLE)
    wall = record.wall
    spent = {name: record.seconds.get(name, 0.0) for name in RUN_ACTIVITIES}
    rows = [
        (_ACTIVITIES[name], duration(seconds), share(seconds, wall), "")
        for name, seconds in sorted(spent.items(), key=lambda item: -item[1])
        if seconds
    ]
    about = f": {_result(record)} of run {record.run}"
    return Section(_TITLE, about, _LAYOUT, rows, below=[*_sentences(record)])


def lines(record: RunRecord, width: int, *, now: float) -> list[str]:
    """Return what *record* says, in lines of *width*, at the Unix time *now*."""
    of_run = goodput(record)
    return replace(
        of_run,
        title=f"{record.run}: goodput",
        about=f" {_result(record)}",
        below=[*of_run.below, _written(record, now)],
    ).lines(width)


def document(record: RunRecord) -> dict[str, Any]:
    """Return *record* and the figures that follow from it."""
    known = saving(record) or Saving(0.0, 0.0)
    return {
        **vars(record.filled()),
        "wall_seconds": record.wall,
        "goodput": record.goodput,
        "steps": record.steps,
        "seconds_between_interruptions": record.seconds_between,
        "seconds_to_resume": record.seconds_to_resume,
        "seconds_between_saves": known.every or None,
        "best_seconds_between_saves": known.best,
    }


def _result(record: RunRecord) -> str:
    rate = "unknown" if record.goodput is None else share(record.goodput, 1.0)
    return f"{rate} of {duration(record.wall)}, attempt {record.interrupted + 1:,}"


def _sentences(record: RunRecord) -> Iterator[str]:
    if record.marked:
        lost = f"; {record.lost_steps:,} had to be done again" * bool(record.lost_steps)
        yield f"{counted(record.steps, 'step')} done{lost}"
    else:
        yield "no steps are marked: what was progress is not known"
    yield from interruptions(record)
    if (known := saving(record)) is not None:
        best = f"; every {duration(known.best)} loses least" if known.best else ""
        saved = counted(record.saves, "checkpoint")
        yield f"{saved} saved, every {duration(known.every)} on average{best}"
    if record.fruitless > 1:
        yield f"{record.fruitless:,} attempts in a row have done no new step"


def _written(record: RunRecord, now: float) -> str:
    how = f"; this attempt {record.ended}" if record.ended else ""
    host = record.host or "a host"
    return f"written {ago(max(now - record.time, 0.0))} by {host}{how}"
