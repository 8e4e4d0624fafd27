"""
What restarts and saves cost a run, over all its attempts; and saves that fail.

Of a first attempt, nothing is said but what its saves cost; nor of a run so young that
starting it explains all.
Waiting between attempts is judged for itself: an interruption over a weekend is no
reason to be content with all others.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.process import Snapshot
from jaxmon.facts.reading import in_order
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.run import (
    CHECKPOINT,
    LOST,
    RECOVERY,
    WAITING,
    RunRecord,
    Saving,
    failures,
    plausible,
    saving,
    seconds_of_a_step,
)
from jaxmon.facts.status import Reason
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import clean, counted, duration, share, times
from jaxmon.limits import Limits
from jaxmon.promql import counter, eq, events, gauge, gauge_over
from jaxmon.symptoms.alert import TICKET, Alert
from jaxmon.symptoms.reason import period, reason
from jaxmon.symptoms.symptom import FAILURE, HINT, NO_SCREEN, TIME, Finding, Symptom


# The sum of saves and lost steps hardly changes within this factor of the best.
_NEAR = 2.0
_WENT_INTO = "What the wall time of runs went into"
_SEE = "`jaxmon job post-mortem` says what fails first."
_ON_RESTORING = (
    "Look at what it logs about restoring: the latest checkpoint may be damaged, "
    "incomplete, or not where it looks."
)
_IN_VAIN = (
    f"Stop the restarts while you look for the cause. {_SEE} If attempts end at the "
    "same step, skip its batch or restore an earlier checkpoint. If they end before "
    "their first step, the checkpoint may be damaged. If they end at another step each "
    "time, save more often."
)
_IN_ORDER = (
    "Each attempt ended in order. If the run is finished, do not restart it. If it was "
    "preempted each time, save on the notice (SIGTERM). If it exits by itself, its log "
    "says why."
)
_RECOVERY = (
    "Do less before the loop: import and open less, restore in parallel or from a "
    "nearer copy, and restart in place rather than on other machines."
)
_WAITING = (
    "The scheduler, or people, took that long to start it again: keep spare machines, "
    "raise its priority, or restart it in place. If it was paused on purpose, nothing "
    "is wrong."
)
_ASYNCHRONOUS = (
    "Save asynchronously, as Orbax does by default, or to faster storage: then the "
    "loop continues meanwhile."
)
_LESS_OFTEN = "Or save less often, if a failure may cost that many more steps."
_NOTICE = "Save on the notice of preemption (SIGTERM) as well"
_BY = ("job", "run")
# Between two attempts there is no series.
_RECENT, _AROUND = "15m", "1h"
# So much of the window must have been added to the totals: if they have begun anew,
# their differences mean nothing until that, too, is a window ago.
_ADDED = 0.75


def no_progress(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect a run that restarts again and again, and gets no further."""
    record = plausible(snapshot.run)
    if record is None or record.fruitless <= snapshot.limits.fruitless_attempts:
        return
    yield Finding(
        "no_progress",
        record.run,
        f"Run {record.run} is in attempt {record.fruitless:,} in a row without a new "
        "step.",
        tuple(interruptions(record)),
        _IN_VAIN if failures(record) else _IN_ORDER,
    )


def _run_no_progress(limits: Limits) -> Alert:
    attempts = gauge_over(catalog.RUN_FRUITLESS_ATTEMPTS, "last", _RECENT)
    return Alert(
        expr=attempts.max(*_BY) > limits.fruitless_attempts,
        description="A run restarts again and again without a new step.",
        summary=(
            "Run {{ $labels.run }} of job {{ $labels.job }} is in attempt "
            "{{ $value | humanize }} in a row without a new step."
        ),
    )


def _old_checkpoint(snapshot: Snapshot) -> Iterator[Finding]:
    record = plausible(snapshot.run)
    if record is None or not record.behind or record.step >= record.furthest:
        return
    seconds = record.behind * seconds_of_a_step(record)
    if seconds < seconds_in(snapshot.limits.steps_again):
        return
    yield Finding(
        "old_checkpoint",
        record.run,
        f"Run {record.run} did not go on from its latest checkpoints: it began "
        f"{counted(record.behind, 'step')} before the last but one, "
        f"{duration(seconds)} of work.",
        tuple(interruptions(record)),
        f"{_ON_RESTORING} Stop the attempt before it removes the good ones. If it goes "
        "back on purpose, nothing is wrong; if it begins anew, give it another name "
        "(`run`).",
        seconds=min(seconds, snapshot.process.observed_seconds),
    )


def _restarts(snapshot: Snapshot) -> Iterator[Finding]:
    record = plausible(snapshot.run)
    limits = snapshot.limits
    if record is None or record.up < seconds_in(limits.run_young):
        return
    spent, saves = record.seconds, saving(record)
    if saves and spent.get(CHECKPOINT, 0.0) >= limits.time_worth * record.up:
        yield _saves(record, saves, snapshot)
    if not record.interrupted:
        return
    lost, recovery = spent.get(LOST, 0.0), spent.get(RECOVERY, 0.0)
    much = lost + recovery >= limits.time_worth * record.up
    if much and lost >= limits.time_part * record.up:
        yield _lost(record, saves, snapshot)
    if much and recovery >= limits.time_part * record.up:
        usual = duration(recovery / record.interrupted)
        yield Finding(
            "recovery",
            record.run,
            f"Run {record.run} spent {_part(recovery, record)} on starting again and "
            f"restoring: {usual} after each interruption.",
            tuple(interruptions(record)),
            _RECOVERY,
            seconds=_of_this(recovery, record, snapshot),
        )
    waited = spent.get(WAITING, 0.0)
    if waited >= limits.time_worth * record.wall:
        usual = duration(waited / max(record.starts - 1, 1))
        yield Finding(
            "between_attempts",
            record.run,
            f"No attempt of run {record.run} ran for {duration(waited)}, "
            f"{share(waited, record.wall)} of {duration(record.wall)}: {usual} before "
            "each restart.",
            tuple(interruptions(record)),
            _WAITING,
        )


def _lost(record: RunRecord, saves: Saving | None, snapshot: Snapshot) -> Finding:
    lost = record.seconds.get(LOST, 0.0)
    return Finding(
        "lost_progress",
        record.run,
        f"Run {record.run} did {counted(record.lost_steps, 'step')} again after it "
        f"was interrupted {times(record.interrupted)}: {_part(lost, record)}.",
        (*interruptions(record), *_how_it_saves(saves)),
        _how_to_save(record, saves),
        seconds=_of_this(_to_win(lost, record, saves), record, snapshot),
    )


def _saves(record: RunRecord, saves: Saving, snapshot: Snapshot) -> Finding:
    spent = record.seconds.get(CHECKPOINT, 0.0)
    action = _ASYNCHRONOUS
    if saves.best is None:
        action = f"{_ASYNCHRONOUS} {_LESS_OFTEN}"
    elif saves.every * _NEAR < saves.best:
        action = f"{_by_the_formula(saves)} {_ASYNCHRONOUS}"
    return Finding(
        "checkpoint_time",
        record.run,
        f"Saving held up run {record.run} for {_part(spent, record)}.",
        (*_how_it_saves(saves), *interruptions(record)),
        action,
        seconds=_of_this(spent, record, snapshot),
    )


def interruptions(record: RunRecord) -> Iterator[str]:
    """Return a sentence on the interruptions, if there were any."""
    if record.interrupted:
        kinds = ", ".join(f"{n:,} {how}" for how, n in record.interruptions.items())
        between = record.seconds_between if record.interrupted > 1 else None
        resume = record.seconds_to_resume
        yield (
            f"interrupted {times(record.interrupted)} ({kinds})"
            + (f", every {duration(between)} on average" if between else "")
            + (f"; the next step was done {duration(resume)} later" if resume else "")
        )


def _how_it_saves(saves: Saving | None) -> Iterator[str]:
    if saves is not None:
        holds = f", each of which held up the loop for {duration(saves.seconds)}"
        yield (
            f"one save in {duration(saves.every)} of the loop"
            + holds * bool(saves.seconds)
        )


def _how_to_save(record: RunRecord, saves: Saving | None) -> str:
    if record.behind_in_all > record.lost_steps / 2:
        return (
            "Most of these steps had been saved: an attempt did not go on from the "
            f"latest checkpoints. {_ON_RESTORING}"
        )
    if not failures(record):
        return f"{_NOTICE}: each attempt ended in order, so it had the time."
    if saves is None:
        return (
            "Save more often, and on the notice of preemption. Mark saves as "
            '`jaxmon.activity("checkpoint")`, which Orbax\'s do not need, to learn how '
            "often would lose least."
        )
    if saves.best is None:
        return f"Save more often. {_NOTICE}."
    if saves.every > saves.best * _NEAR:
        return f"{_by_the_formula(saves)} {_NOTICE}."
    return (
        f"It saves about as often as loses least, every {duration(saves.best)}: fewer "
        f"failures would help, and saves that hold it up for less. {_SEE}"
    )


def _by_the_formula(saves: Saving) -> str:
    steps = f", or {saves.steps:,} steps" if saves.steps > 1 else ""
    return (
        f"Save every {duration(saves.best or 0.0)}{steps}: by Young's formula, that "
        f"loses least, {share(saves.least, 1.0)} of the time."
    )


def _to_win(lost: float, record: RunRecord, saves: Saving | None) -> float:
    """Return what would be won of *lost* seconds with saves as often as is best."""
    if saves is None or saves.best is None:
        return lost
    spent = lost + record.seconds.get(CHECKPOINT, 0.0)
    return min(max(spent - saves.least * record.up, 0.0), lost)


def _part(seconds: float, record: RunRecord) -> str:
    return f"{duration(seconds)}, {share(seconds, record.up)} of {duration(record.up)}"


def _of_this(seconds: float, record: RunRecord, snapshot: Snapshot) -> float:
    """Return *seconds* of the run in proportion to the time of this process."""
    return seconds / record.up * snapshot.process.observed_seconds


def _goodput_low(limits: Limits) -> Alert:
    window = limits.goodput_window
    step = counter(catalog.RUN_SECONDS, eq("activity", "step"))
    whole = counter(catalog.RUN_SECONDS)
    steps = counter(catalog.RUN_STEPS).latest(_RECENT).max(*_BY) > 0

    (productive, spent), (productive_then, spent_then) = (
        (
            step.latest(length, back=back).max(*_BY),
            whole.latest(length, back=back).max(*_BY, "activity").sum(*_BY),
        )
        for length, back in ((_RECENT, ""), (_AROUND, window))
    )
    added = (spent - spent_then).record(
        *("run", catalog.RUN_SECONDS, f"added{window}"),
        f"Seconds of {window} in which a run was known.",
    )
    added = added > seconds_in(window) * _ADDED
    share = ((productive - productive_then) / added).record(
        *("run", catalog.RUN_SECONDS, f"goodput{window}"),
        f"Fraction of {window} that a run spent on new steps.",
    )
    return Alert(
        # A run that marks no steps has no goodput.
        expr=share.and_(steps, *_BY) < limits.goodput,
        for_=limits.goodput_for,
        summary=(
            "Run {{ $labels.run }} of job {{ $labels.job }} spent "
            f"{{{{ $value | humanizePercentage }}}} of the last {window} on new steps."
        ),
    )


_GOODPUT = "JaxmonGoodputLow"


def failing(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect checkpoints of which the latest failed."""
    for checkpoint in snapshot.checkpoints:
        if not (failed := checkpoint.failed_in_a_row):
            continue
        many = counted(failed, f"checkpoint {checkpoint.name}").removeprefix("1 ")
        yield Finding(
            "checkpoint",
            checkpoint.name,
            f"The latest {many} failed.",
            (),
            "The program's log has the exception, unless it was swallowed: a full "
            "disk, permissions, a storage that does not respond.",
        )


def _saves_failing(facts: HostFacts) -> Iterator[Reason]:
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


def _checkpoint_failed(limits: Limits) -> Alert:
    window = limits.checkpoint_window
    failed = events.CHECKPOINT_FAILURES.within(window, eq("operation", "save"))
    failed = failed.sum("job").record(
        *("job", catalog.CHECKPOINT_FAILURES, f"saves{window}"),
        f"Saves that failed within {window}.",
    )
    return Alert(
        expr=failed > 0,
        description="Saves fail; the work since the last checkpoint is not saved.",
        summary=(
            "{{ $value | humanize }} saves of job {{ $labels.job }} failed in "
            f"{window}."
        ),
    )


def _checkpoint_age(limits: Limits) -> Alert:
    saved = gauge(catalog.ACTIVITY_AGE_SECONDS, eq("activity", "checkpoint"))
    loops = gauge(catalog.STEP_AGE_SECONDS).max("job")
    return Alert(
        # One process may save for all.
        expr=(saved.min("job") > seconds_in(limits.checkpoint_age)).and_(loops),
        description="A run makes no more checkpoints; a failure costs its work.",
        summary=(
            "The last checkpoint of job {{ $labels.job }} ended "
            "{{ $value | humanizeDuration }} ago."
        ),
    )


SYMPTOMS = (
    Symptom(
        *("no_progress", "F8", "A run restarts without a new step.", FAILURE),
        *(
            no_progress,
            catalog.RUN_FRUITLESS_ATTEMPTS,
            "Training: Attempts without progress",
        ),
        rule=("JaxmonRunNoProgress", _run_no_progress),
        severity=TICKET,
    ),
    Symptom(
        *("old_checkpoint", "", "A run begins before its latest checkpoints.", TIME),
        *(_old_checkpoint, catalog.RUN_LOST_STEPS, "Training: Steps done again"),
        missing="an attempt may do so on purpose",
        other_runbook=_GOODPUT,
    ),
    *(
        Symptom(
            *(name, "", sentence, urgency),
            *(_restarts, metric, f"Training: {panel}"),
            missing="JaxmonGoodputLow says it if all of them take too much",
            other_runbook=_GOODPUT,
        )
        for name, sentence, urgency, metric, panel in (
            (
                *("lost_progress", "A run does steps again.", TIME),
                *(catalog.RUN_LOST_STEPS, "Steps done again"),
            ),
            (
                *("recovery", "Restarts of a run take time.", TIME),
                *(catalog.RUN_RESUME_SECONDS, "Time to resume"),
            ),
            (
                *("checkpoint_time", "Saves hold up a run.", TIME),
                *(catalog.RUN_SECONDS, _WENT_INTO),
            ),
            (
                *("between_attempts", "No attempt of a run runs.", HINT),
                *(catalog.RUN_SECONDS, _WENT_INTO),
            ),
        )
    ),
    Symptom(
        *("goodput", "", "A run spends little of its time on steps that last."),
        rule=(_GOODPUT, _goodput_low),
        missing="`jaxmon job goodput` has the whole run, not the last hours",
    ),
    Symptom(
        *("checkpoint", "F8", "The latest saves of a checkpoint failed.", FAILURE),
        *(failing, catalog.CHECKPOINT_FAILURES, "Training: Checkpoints that failed"),
        reason=_saves_failing,
        rule=("JaxmonCheckpointFailed", _checkpoint_failed),
        severity=TICKET,
    ),
    Symptom(
        *("checkpoint_age", "F8", "A run makes no checkpoints."),
        rule=("JaxmonCheckpointFailed", _checkpoint_age),
        missing=NO_SCREEN,
    ),
)
