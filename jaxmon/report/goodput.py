"""
What the record of a run says: its goodput across restarts, and how often it saves
checkpoints, and how often it should.

Saves cost time, and so do steps since the latest save if the run fails. With failures
at a constant rate, the sum is least if the time between saves is the root of twice the
time of a save times the mean time between failures: J. W. Young, *A first order
approximation to the optimum checkpoint interval*, Communications of the ACM 17(9),
1974. J. T. Daly, *A higher order estimate of the optimum checkpoint interval for
restart dumps*, Future Generation Computer Systems 22(3), 2006, refines it for saves
that are not much shorter than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from math import isfinite, sqrt
from typing import Any, NamedTuple

from jaxmon.catalog import RUN_ACTIVITIES
from jaxmon.facts.run import (
    CHECKPOINT,
    DATA_WAIT,
    RECOVERY,
    STARTUP,
    STEP,
    STOPPED,
    WAITING,
    RunRecord,
    plausible,
)
from jaxmon.formats.layout import Column, ago, counted, duration, share, times
from jaxmon.report.section import Section


FEWEST_FAILURES = 2
"""Of fewer, the mean time between them says little."""

OUTSIDE = (CHECKPOINT, STARTUP, RECOVERY, WAITING)
"""Activities in which nothing is done that could be lost."""


class Saving(NamedTuple):
    """
    The saves of a run.

    Attributes:
        seconds: for which each held up the loop, on average.
        every: seconds from one to the next.
        best: what *every* would have to be to lose least, `None` if unknown.
        least: the fraction of the time that is lost then.
        steps: that are done in *best*.
    """

    seconds: float
    every: float
    best: float | None = None
    least: float = 0.0
    steps: int = 0


def failures(record: RunRecord) -> int:
    """Return how many attempts ended without a chance to save."""
    return record.interrupted - record.interruptions.get(STOPPED, 0)


def seconds_of_a_step(record: RunRecord) -> float:
    """Return how long a new step takes, its wait for data included; 0 if unknown."""
    spent = record.seconds.get(STEP, 0.0) + record.seconds.get(DATA_WAIT, 0.0)
    return spent / record.steps if record.steps else 0.0


def saving(record: RunRecord) -> Saving | None:
    """Return how *record* says the run saves, `None` if it is not known to save."""
    if not record.saves:
        return None
    spent = record.seconds
    seconds = spent.get(CHECKPOINT, 0.0) / record.saves
    looping = sum(s for name, s in spent.items() if name not in OUTSIDE)
    found = Saving(seconds, looping / record.saves)
    failed = failures(record)
    if failed < FEWEST_FAILURES or not seconds:
        return found
    between = record.up / failed
    best = sqrt(2 * seconds * between)
    if best >= between:
        return found  # the formula does not hold
    step = seconds_of_a_step(record)
    steps = best / step if step else 0.0
    known = round(steps) if isfinite(steps) else 0
    return found._replace(best=best, least=best / between, steps=known)


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
        **asdict(record),
        "wall_seconds": record.wall,
        "goodput": record.goodput,
        "steps": record.steps,
        "seconds_between_interruptions": record.seconds_between,
        "seconds_to_resume": record.seconds_to_resume,
        "seconds_between_saves": known.every or None,
        "best_seconds_between_saves": known.best,
    }


def interruptions(record: RunRecord) -> Iterator[str]:
    """Return a sentence on the interruptions, if there were any."""
    if record.interrupted:
        kinds = ", ".join(f"{n:,} {how}" for how, n in record.interruptions.items())
        often = record.interrupted > 1
        between = record.seconds_between if often else None
        resume = record.seconds_to_resume
        yield (
            f"interrupted {times(record.interrupted)} ({kinds})"
            + (f", every {duration(between)} on average" if between else "")
            + (f"; the next step was done {duration(resume)} later" if resume else "")
        )


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
