"""Runs over all their attempts: what restarts cost."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.facts.run import CHECKPOINT, FEWEST_FAILURES, OUTSIDE, STOPPED
from jaxmon.promql import (
    RATE_INTERVAL,
    Expr,
    Matcher,
    call,
    counter,
    eq,
    gauge,
    ne,
    re,
)
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Row, Target, line, row, timeseries


_BY = ("job", "run")
_NAMED = "{{job}} {{run}}"
_NONE = "No run with a record"
_IN_LOOP = [one for one in catalog.RUN_ACTIVITIES if one not in OUTSIDE]


def across_restarts(slos: Slos) -> Row:
    """Return what the wall time of runs went into, and how often they restarted."""
    limit = slos.limits
    interrupted = _latest(catalog.RUN_INTERRUPTIONS, *_BY, "ending")
    up = _latest(catalog.RUN_SECONDS, *_BY, "activity", only=ne("activity", "waiting"))
    resumed = _latest(catalog.RUN_RESUME_SECONDS, *_BY)
    every, best = _between_saves(up.sum(*_BY))
    fruitless = gauge(catalog.RUN_FRUITLESS_ATTEMPTS, *q.PROCESS).max(*_BY)
    between = (up.sum(*_BY) / (interrupted.sum(*_BY) > 0)).of_unit("seconds")
    after = resumed / (_latest(catalog.RUN_RESUMES, *_BY) > 0)
    return row(
        39,
        "Goodput across restarts",
        line(
            timeseries(
                3901,
                "Goodput since the first attempt",
                Target(_goodput().least(10), _NAMED),
                text=(
                    "Fraction of the wall time since a run first began that went into "
                    "steps that last, of the 10 lowest: not into restarts, steps done "
                    "again, compiles, data, checkpoints. `jaxmon job goodput` prints "
                    "the same of a run that is not there now."
                ),
                maximum=1,
                thresholds=q.below(limit.goodput),
                alerts=("JaxmonGoodputLow",),
                no_value=_NONE,
            ),
            timeseries(
                3902,
                "What the wall time of runs went into",
                Target(
                    _latest(catalog.RUN_SECONDS, *_BY, "activity").sum("activity"),
                    "{{activity}}",
                ),
                text=(
                    "Of all runs together, since their first attempts: lost_progress "
                    "are steps done again, waiting is between attempts, recovery from "
                    "a restart to its first step."
                ),
                stacked="percent",
                no_value=_NONE,
            ),
            timeseries(
                3903,
                "Interruptions",
                Target(interrupted.worst(10), f"{_NAMED} {{{{ending}}}}"),
                text=(
                    "Attempts that ended before the current one: crashed by an error, "
                    "killed without a word, stopped in order, or unseen by jaxmon and "
                    "counted by the scheduler; the 10 largest. `jaxmon job "
                    "post-mortem` says what failed first."
                ),
                no_value=_NONE,
            ),
        ),
        line(
            timeseries(
                3904,
                "Time between interruptions",
                Target(between.least(10), _NAMED),
                text=(
                    "Wall time of a run by interruption, without waiting, of the 10 "
                    "shortest."
                ),
                no_value="No interruption",
            ),
            timeseries(
                3908,
                "Time between saves",
                Target(every.of_unit("seconds").worst(10), f"{_NAMED} now"),
                Target(best.of_unit("seconds").worst(10), f"{_NAMED} loses least"),
                text=(
                    "Time in the loop for each checkpoint, of the 10 longest, and what "
                    "would lose least to saves and failures: the root of twice the "
                    "time of a save times the time between failures (Young's formula), "
                    "known after two failures that were no orderly exit."
                ),
                no_value="No run is known to save",
            ),
            timeseries(
                3906,
                "Steps done again",
                Target(_latest(catalog.RUN_LOST_STEPS, *_BY).worst(10), _NAMED),
                text=(
                    "Steps that were lost because the last checkpoint did not have "
                    "them, of the 10 runs with most. Save more often, or on a notice "
                    "of preemption."
                ),
                no_value=_NONE,
            ),
        ),
        line(
            timeseries(
                3905,
                "Time to resume",
                Target(after.of_unit("seconds").worst(10), _NAMED),
                text=(
                    "Mean time from an interruption to the end of the next step, of "
                    "the 10 longest: detection, scheduling, startup, restore, compile."
                ),
                no_value="No interruption",
            ),
            timeseries(
                3907,
                "Attempts without progress",
                Target(fruitless.worst(10), _NAMED),
                text=(
                    "Attempts in a row, with the current one, that have done no new "
                    "step; 0 with progress."
                ),
                thresholds=q.above(limit.fruitless_attempts),
                alerts=("JaxmonRunNoProgress",),
                no_value=_NONE,
            ),
        ),
    )


def _between_saves(up: Expr) -> tuple[Expr, Expr]:
    """Return the time between the saves of each run, and what would lose least."""
    looping = _latest(
        catalog.RUN_SECONDS, *_BY, "activity", only=re("activity", "|".join(_IN_LOOP))
    )
    saving = _latest(catalog.RUN_SECONDS, *_BY, only=eq("activity", CHECKPOINT))
    failed = _latest(
        catalog.RUN_INTERRUPTIONS, *_BY, "ending", only=ne("ending", STOPPED)
    )
    saves = _latest(catalog.RUN_SAVES, *_BY) > 0
    between = up / (failed.sum(*_BY) >= FEWEST_FAILURES)
    best = call("sqrt", (saving / saves > 0) * 2 * between)
    # Saves that take longer than that are not what the formula is about.
    return looping.sum(*_BY) / saves, best < between


def _goodput() -> Expr:
    step = _latest(catalog.RUN_SECONDS, *_BY, only=eq("activity", "step"))
    return step / _latest(catalog.RUN_SECONDS, *_BY, "activity").sum(*_BY)


def _latest(metric: catalog.Metric, *by: str, only: Matcher | None = None) -> Expr:
    """Return the count of the latest attempt, which continues those before."""
    matchers = (*(() if only is None else (only,)), *q.PROCESS)
    return counter(metric, *matchers).latest(RATE_INTERVAL).max(*by)
