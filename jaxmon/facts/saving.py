"""
How often a run saves checkpoints, and how often it should.

Saves cost time, and so do steps since the latest save if the run fails. With failures
at a constant rate, the sum is least if the time between saves is the root of twice the
time of a save times the mean time between failures: J. W. Young, *A first order
approximation to the optimum checkpoint interval*, Communications of the ACM 17(9),
1974. J. T. Daly, *A higher order estimate of the optimum checkpoint interval for
restart dumps*, Future Generation Computer Systems 22(3), 2006, refines it for saves
that are not much shorter than that.
"""

from __future__ import annotations

from math import isfinite, sqrt
from typing import NamedTuple

from jaxmon.facts.run import (
    CHECKPOINT,
    DATA_WAIT,
    RECOVERY,
    STARTUP,
    STEP,
    STOPPED,
    WAITING,
    RunRecord,
)


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
