"""
Loops that make no progress, or are slower than before: in a run, against an earlier
one, over weeks and versions.

Of the last minute there is the mean only, and users wait for that. Prometheus has no
samples of a week ago, only sums: it compares means over an hour, of what is long enough
to be a ticket (`Limits.slowdown`) whatever the noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from re import match

from jaxmon import catalog, promql
from jaxmon.facts.events import Slower
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.status import LoopSummary, Reason
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import ago, clean, duration
from jaxmon.promql import Expr, gauge, histogram
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import A_FUNCTION, PAGE, PROCESS, TICKET, Alert, SiteLimits
from jaxmon.symptoms.reason import due, reason, said_or_doing
from jaxmon.symptoms.stalls import stalled
from jaxmon.symptoms.symptom import BUDGET, FAILURE, TIME, Finding, Symptom


STALLED_ALERT, STALLED_SLO = "JaxmonTrainingStalled", "step-freshness"


def _loops_stalled(facts: HostFacts) -> Iterator[Reason]:
    for loop in facts.loops:
        age = loop.age
        if age is None or not _is_late(loop, facts):
            continue
        text = f"{named(loop)} is stuck: its last step was {duration(age)} ago"
        after = _stuck_after(loop, facts) + seconds_in(facts.limits.stalled_for)
        severity, text = due(text, age, after, PAGE)
        yield reason("stalled", severity, text, [loop.age_worker], loop.loop)


def _is_late(loop: LoopSummary, facts: HostFacts) -> bool:
    limits = facts.limits
    times = limits.late_step_times * _step_seconds(loop, facts)
    # Of long steps, so many take longer than the alert waits.
    late = min(max(seconds_in(limits.late_step), times), _stuck_after(loop, facts))
    if loop.age is None or loop.age < late:
        return False
    return not _excused(facts, loop.age_worker)


def _stuck_after(loop: LoopSummary, facts: HostFacts) -> float:
    """Return the age of its last step from which a loop is stuck, as `patience`."""
    times = facts.limits.stalled_step_times * _step_seconds(loop, facts)
    return max(seconds_in(facts.limits.stalled_after), times)


def _step_seconds(loop: LoopSummary, facts: HostFacts) -> float:
    """Return how long a step of the process takes that has made none for longest."""
    steps = facts.now.distributions(catalog.STEP_SECONDS)
    observed = steps.get((loop.age_worker, loop.loop))
    return (observed.mean if observed else None) or 0.0


def _excused(facts: HostFacts, worker: str) -> bool:
    limits, now = facts.limits, facts.now
    return any(
        key[0] == worker
        and 0 < value < seconds_in(most)
        and (metric is catalog.COMPILE_OLDEST_SECONDS or match(recorded.PAUSES, key[1]))
        for metric, most in (
            (catalog.COMPILE_OLDEST_SECONDS, limits.stuck_after),
            (catalog.ACTIVITY_RUNNING_SECONDS, limits.activity_after),
            (catalog.ACTIVITY_AGE_SECONDS, limits.stalled_after),
        )
        for key, value in now.of(metric).items()
    )


def named(loop: LoopSummary) -> str:
    """Return ``loop NAME``."""
    return f"loop {clean(loop.loop)}"


def _training_stalled(limits: SiteLimits) -> Alert:
    # The first step of a large model takes long to compile, and an evaluation is no
    # step; both count as progress for a while.
    limit, times = seconds_in(limits.stalled_after), limits.stalled_step_times
    age, steps = gauge(catalog.STEP_AGE_SECONDS), histogram(catalog.STEP_SECONDS)
    excused = recorded.busy(
        limit,
        compiling=seconds_in(limits.stuck_after),
        active=seconds_in(limits.activity_after),
    )
    soon = age <= steps.sum.total() / steps.count.total() * times
    # One stuck process stops the others: the oldest step is what counts.
    late = age.unless(soon).unless(excused, *PROCESS).max("job", "loop")
    late = late.record(
        *("loop", catalog.STEP_AGE_SECONDS, "late"),
        f"Age of the last step, if that is {times:g} times as old as a step takes and "
        "the process is not busy with something else.",
    )
    paged = recorded.paged(STALLED_ALERT, limits)
    return Alert(
        expr=(late > limit).unless(paged, "job"),
        # The step after a long compile is due.
        for_=limits.stalled_for,
        keep_for=limits.stalled_for,
        severity=PAGE,
        description="A running loop is making no progress.",
        summary=(
            "A process of job {{ $labels.job }} finished its last step of loop "
            "{{ $labels.loop }} {{ $value | humanizeDuration }} ago."
        ),
        labels=(("slo", STALLED_SLO),),
    )


def patience(age: Expr, limit: float, times: float) -> Expr:
    """
    Return the *age* above which each loop's step is late: *limit* seconds, or so many
    *times* its mean step if that is longer.
    """
    steps = histogram(catalog.STEP_SECONDS)
    mean = (steps.sum.total() / (steps.count.total() > 0)) * times
    return promql.call("clamp_min", mean, limit).or_(age * 0 + limit)


SECONDS = f"program:{catalog.EXECUTION_SECONDS.name}_sum:rate5m"
SAMPLES = f"program:{catalog.EXECUTION_SECONDS.name}_count:rate5m"
"""Device time of a program's sampled calls, and their number, per second."""
MEAN = f"program:{catalog.EXECUTION_SECONDS.name}:mean1h"
"""Mean device time of a program over an hour."""
VERSIONS = f"job:{catalog.RUNTIME_INFO.name}:versions"
"""Processes of a job by version of JAX and its platform."""
PROGRAM = ("job", "function", "fingerprint")
VERSION = ("job", "jax", "jaxlib", "platform_version")
_MEANING = "A function or a loop is slower than before."
_WHAT_CHANGED = (
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


def _slower(snapshot: Snapshot) -> Iterator[Finding]:
    for slowdown in snapshot.slower:
        if slowdown.recent_seconds <= slowdown.settled_seconds:
            continue
        action = _PAST_RUN if slowdown.against == "past_run" else _WHAT_CHANGED
        yield Finding(
            "slower",
            slowdown.name,
            _verdict(slowdown, snapshot.process.now),
            (*slowdown.beside, *_changes(slowdown)),
            _CROWDED if slowdown.crowded else action,
            seconds=(slowdown.recent_seconds - slowdown.settled_seconds)
            * slowdown.calls,
        )


def _verdict(slowdown: Slower, now: float) -> str:
    ratio = slowdown.recent_seconds / max(slowdown.settled_seconds, 1e-9)
    what = (
        f"A step of loop {slowdown.name}" if slowdown.what == "loop" else slowdown.name
    )
    since = ago(max(now - slowdown.since, 0.0))
    when = (
        f"as in the run that ended {since}"
        if slowdown.against == "past_run"
        else f"as before, since {since}"
    )
    why = "; other processes hold the processors" if slowdown.crowded else ""
    return (
        f"{what} takes {ratio:.1f} times as long {when}: "
        f"{duration(slowdown.settled_seconds)} → {duration(slowdown.recent_seconds)}"
        f"{why}."
    )


def _changes(slowdown: Slower) -> Iterator[str]:
    if slowdown.against == "past_run":
        shapes = (
            f", for the same arguments ({slowdown.shapes})" if slowdown.shapes else ""
        )
        changed = "; ".join(slowdown.changed) or "nothing that jaxmon records"
        yield f"changed: {changed}{shapes}"
    elif slowdown.shapes:
        yield f"for the same arguments: {slowdown.shapes}"


def _loops_slow(facts: HostFacts) -> Iterator[Reason]:
    for loop in facts.loops:
        usual, mean = loop.usual, loop.mean
        if loop.age is None or not usual or not mean or _is_late(loop, facts):
            continue
        if mean > facts.limits.slowdown * usual and loop.rate:
            text = (
                f"{named(loop)} is slow: a step takes {duration(mean)}, before "
                f"{duration(usual)}."
            )
            yield reason("slower", TICKET, text, loop.workers, loop.loop)


def slowdown(limits: SiteLimits) -> Iterator[Alert]:
    """Yield tickets: against the run's and the function's past, and a version."""
    found = gauge(catalog.SLOWDOWN).max("job", "kind", "name", "against")
    yield Alert(
        expr=found > limits.slowdown,
        for_=limits.slowdown_for,
        description=_MEANING,
        summary=(
            "{{ $labels.kind | title }} {{ $labels.name }} of job {{ $labels.job }} "
            "takes {{ $value | humanize }} times as long as "
            '{{ if eq $labels.against "past_run" }}in an earlier run.'
            "{{ else }}earlier in its run.{{ end }}"
        ),
    )
    day = limits.duration("1d")
    versions = promql.recorded(VERSIONS, labels=VERSION, unit="")
    # An upgrade: processes of a version that the job did not have a day ago.
    yesterday = versions.offset(day)
    upgraded = versions.unless(yesterday, *VERSION).and_(yesterday.max("job"), "job")
    upgraded = upgraded.max("job").record(
        *("job", catalog.RUNTIME_INFO, f"upgraded{day}"),
        f"Jobs with processes of a version that they did not have {day} ago.",
    )
    slower = than_before(day).max("job", "function") > limits.slowdown
    yield Alert(
        expr=slower.and_(upgraded, "job"),
        for_=limits.slowdown_for,
        description=f"{_MEANING} It is the same program, and takes longer.",
        summary=A_FUNCTION
        + "takes {{ $value | humanize }} times as long as before the upgrade.",
        labels=(("against", "version"),),
    )


def than_before(back: str) -> Expr:
    """Return how many times as long each program takes as a duration ago."""
    now = promql.recorded(MEAN, labels=PROGRAM, unit="seconds")
    return now / now.offset(back)


SYMPTOMS = (
    Symptom(
        *("stalled", "F8", "A loop, or a thread of it, makes no progress.", FAILURE),
        *(stalled, catalog.STEP_AGE_SECONDS, "On-call: Age of the last step"),
        rule=(STALLED_ALERT, _training_stalled),
        reason=_loops_stalled,
        because=said_or_doing("stalled"),
        severity=TICKET,
    ),
    Symptom(
        *("step_freshness_budget", "F8", "A loop is often late."),
        rule=("JaxmonStepFreshnessBudgetBurn", None),
        missing=BUDGET,
    ),
    Symptom(
        *("slower", "F7", "A function or a loop is slower than before.", TIME),
        *(_slower, catalog.SLOWDOWN, "Debug: Slower than before"),
        rule=("JaxmonSlowdown", slowdown),
        reason=_loops_slow,
        because=said_or_doing("slower"),
        wait="slowdown_for",
        observed=("slower",),
    ),
)
