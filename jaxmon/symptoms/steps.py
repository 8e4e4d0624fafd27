"""
Loops, and threads of a program, that make no progress, or are slower than before: in a
run, against an earlier one, over weeks and versions.

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
from jaxmon.facts.walltime import (
    FILLER_ADVICE,
    HELPER_ADVICE,
    FailedHelper,
    Now,
    Standing,
    from_place,
)
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import ago, clean, counted, duration
from jaxmon.limits import Limits
from jaxmon.promql import Expr, gauge, histogram
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import PAGE, TICKET, Alert, SiteLimits
from jaxmon.symptoms.reason import due, reason, said_or_doing
from jaxmon.symptoms.symptom import BUDGET, FAILURE, TIME, Finding, Symptom


_EARLIER = 60.0
# Changes after which a program has a rhythm.
_RHYTHM = 20
_MOST_LINES = 5
_MOST_OTHERS = 3
_MOST_GONE = 2
# Calls of a program after which it is known how long it takes.
_REPEATS = 3
# In which it may wait for a helper, and for a program.
_WAITS = ("data_wait", "blocked")
_AWAITS = ("device", "fetch", "transfer")
_DOING = {
    "data_wait": "been waiting for data",
    "device": "been in a call of a jitted function",
    "fetch": "been waiting for results",
    "transfer": "been copying to the device",
    "eager": "been in an operation outside of jit",
    "python": "not called a jitted function",
    "startup": "been importing modules or initialising devices",
    "gc": "been collecting garbage",
    "gil": "been waiting for the interpreter",
    "blocked": "been blocked outside of JAX",
}
_ON_THE_DEVICE = (
    "The device does not finish. In a job of several processes, one may be missing in "
    "a collective: `jaxmon job why` says which."
)
_ACTIONS = {
    "data_wait": "Look at what the loader waits for: a file system, a worker process "
    "that has died, a queue that nothing fills. `jaxmon explain --stacks` shows all "
    "threads.",
    **dict.fromkeys(_AWAITS, _ON_THE_DEVICE),
    "blocked": "The stack shows what it waits for: a lock that another thread holds, a "
    "file, a socket. `jaxmon explain --stacks` shows the other threads.",
    "python": "The stack shows the loop it is in.",
}
_END_THE_LOOP = (
    "A loop whose condition is never met does not end, and a NaN meets few: bound its "
    "iterations, and let it end at values that are not finite."
)
_WAITING = ("/queue.py:", "/threading.py:")
_ALONE = "the program has no other thread that could fill the queue"
_START_ANEW = (
    "Start the workers as new processes: "
    'multiprocessing.get_context("spawn"), or "forkserver".'
)
_BREAK_THE_POOL = (
    "Find out what ended the worker: its output may say so, or the kernel's log if "
    "memory ran out. concurrent.futures.ProcessPoolExecutor raises BrokenProcessPool "
    "then, where multiprocessing.Pool waits."
)
_TAKE_FROM_IT = (
    "No thread takes from that queue. Take results while you put further "
    "work; before you wait for a thread to end, empty its queue, or let it stop: by an "
    "event that it checks, and put with a timeout."
)
_FREE_THE_LOCK = (
    "Look for the thread that holds it. If two threads wait for locks that the other "
    "one holds, take the locks in the same order everywhere."
)
STALLED_ALERT, STALLED_SLO = "JaxmonTrainingStalled", "step-freshness"


def stalled(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect a program that has been doing the same thing far longer than before."""
    now, limits = snapshot.time.now, snapshot.limits
    forks = list(_forks(snapshot)) if now.state in _WAITS else []
    # What a child has never done, it may never do.
    first = bool(forks) and not now.longest_there
    asleep = limits.stalled_for_a_failed_thread if now.asleep else limits.deadlocked
    waits = first and now.seconds >= seconds_in(asleep)
    if now.state not in _DOING or not (waits or is_long(now, limits)):
        return
    before = ""
    if now.changes and now.longest_before:
        before = f"; before, it took {duration(now.longest_before)} at most"
    doing = "been waiting for a lock" if now.lock else _DOING[now.state]
    if now.state == "device" and now.function:
        doing = f"been in a call of {now.function}"
    where = f" at {now.place}" if now.place else ""
    pooled = next((of for of in now.gone if of.pooled), None)
    if pooled is not None and now.state in _WAITS:
        before += f"; {pooled}, and a call that waits for its result never returns"
    causes, action = _causes(snapshot, forks)
    yield Finding(
        "stalled",
        now.place,
        f"The program has {doing} for {duration(now.seconds)}{where}{before}.",
        (*causes, *from_place(now.stack, now.place)[:_MOST_LINES]),
        action,
        where=now.place,
        # What is marked says itself when it pages.
        severity=TICKET if snapshot.steps or snapshot.requests else PAGE,
    )


def _causes(snapshot: Snapshot, forks: list[str]) -> tuple[list[str], str]:
    """Return what the program may wait for, and what to do about it."""
    now = snapshot.time.now
    action = _ACTIONS.get(now.state, "`jaxmon explain --stacks` shows all threads.")
    if now.state in _WAITS and now.gone:
        rest = [str(helper) for helper in now.gone if not helper.pooled]
        is_pool = len(rest) < len(now.gone)
        return rest[:_MOST_GONE], _BREAK_THE_POOL if is_pool else HELPER_ADVICE
    if now.state == "data_wait" and (now.alone or now.fillers):
        may_fill = [thread.filling for thread in now.fillers[:_MOST_OTHERS]]
        return may_fill or [_ALONE], FILLER_ADVICE if may_fill else HELPER_ADVICE
    if now.full or now.lock:
        others = now.full or now.others
        waits = [
            _waits(thread, now) for thread in others[:_MOST_OTHERS] if thread.stack
        ]
        return waits, _TAKE_FROM_IT if now.full else _FREE_THE_LOCK
    if forks:
        asleep = f"{counted(now.asleep, 'worker process')} asleep"
        return [*forks, *([asleep] if now.asleep else [])], _START_ANEW
    if now.state not in _AWAITS or not now.called or now.barrier:
        return [], action
    loops = [
        f"{function.name} loops until a condition is met: {function.flops.open_loop}"
        for function in snapshot.functions
        if function.flops.open_loop and function.name in now.called
    ]
    latest = f"called last: {', '.join(now.called)}"
    return [*loops, latest], f"{_END_THE_LOOP} {action}" if loops else action


def _waits(thread: Standing, now: Now) -> str:
    """Return what *thread* waits for meanwhile, and in which line of the program."""
    puts = any(line.endswith(" in put") for line in thread.stack)
    what = "room in a full queue" if puts else "a thread to end"
    lines = [line for line in thread.stack if not any(of in line for of in _WAITING)]
    what = what if now.full else "a lock too"
    return f"thread {thread.name} waits for {what}: {(lines or thread.stack)[0]}"


def _forks(snapshot: Snapshot) -> Iterator[str]:
    """Yield where it has forked although it uses JAX, of which JAX warns."""
    for warned in snapshot.warnings:
        if warned.text.endswith("_at_fork"):
            yield (
                f"{warned.where} has forked this process, whose threads of JAX the "
                "child lacks: it may wait for ever for a lock that one of them held"
            )


def _waits_for(helper: FailedHelper, now: Now, limits: Limits) -> bool:
    """Return whether what goes on *now* may be to wait for *helper*, which is gone."""
    if helper.age_seconds is None:
        return False
    # The program may have read why a task failed, and wait for something else.
    if helper.kind == "task" and now.state != "data_wait":
        return False
    least = seconds_in(limits.stalled_for_a_failed_thread)
    long = min(helper.age_seconds, now.seconds) >= least
    return long and helper.age_seconds <= now.seconds + _EARLIER


def is_long(now: Now, limits: Limits) -> bool:
    """
    Return whether what goes on *now* is far longer than usual, or as long as is odd for
    one that waits while a thread of the program has just failed.
    """
    failed_after = seconds_in(limits.stalled_for_a_failed_thread)
    never_ends = now.full or (now.alone and now.state == "data_wait")
    if never_ends and now.seconds >= failed_after:
        return True
    if now.state in _WAITS and any(
        _waits_for(helper, now, limits) for helper in now.gone
    ):
        return True
    times = limits.stalled_times
    # So waits a server that has just started, for its end.
    first = now.state == "blocked" and _is_parked(now) and not now.longest_there
    if first or now.work:
        return False  # whether anything is to come is not known
    if now.seconds >= seconds_in(limits.stalled_anywhere):
        return now.seconds >= times * now.longest_there
    if now.lock and now.others and now.seconds >= seconds_in(limits.deadlocked):
        return True
    there, before = now.longest_there or None, now.longest_before or None
    usual: list[tuple[float | None, str]] = []
    repeats = now.repeats if now.state in _AWAITS else 0
    if repeats:
        usual.append((there, limits.stalled_in_a_state))
    if repeats >= _REPEATS or now.changes >= _RHYTHM:
        usual.append((there, limits.stalled_on_a_line))
    if now.changes >= _RHYTHM:
        usual += [
            (now.longest_before if now.lock else None, limits.stalled_for_a_lock),
            (before, limits.stalled_in_a_state),
        ]
    return any(
        longest is not None and now.seconds >= max(seconds_in(least), times * longest)
        for longest, least in usual
    )


def _is_parked(now: Now) -> bool:
    """Return whether it waits for an event or a condition of `threading`."""
    top = now.stack[0] if now.stack else ""
    return "threading.py:" in top and top.endswith(" in wait")


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
    """Return whether the next step of a loop should have come."""
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
    """Return whether a process compiles, or pauses its loop, or did so, as `busy`."""
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
    limit = seconds_in(limits.stalled_after)
    late = recorded.late(
        limit,
        limits.stalled_step_times,
        compiling=seconds_in(limits.stuck_after),
        active=seconds_in(limits.activity_after),
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
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} takes "
            "{{ $value | humanize }} times as long as before the upgrade."
        ),
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
