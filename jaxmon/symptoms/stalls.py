"""A program that does the same thing far longer than before, and what it waits for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from math import inf

from jaxmon.facts.process import Snapshot
from jaxmon.facts.walltime import (
    FILLER_ADVICE,
    HELPER_ADVICE,
    PROPAGATE_ADVICE,
    FailedHelper,
    Now,
    Standing,
    from_place,
)
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration
from jaxmon.limits import Limits
from jaxmon.symptoms.alert import PAGE, TICKET, Severity
from jaxmon.symptoms.symptom import Finding


_EARLIER = 60.0
# Changes after which a program has a rhythm.
_RHYTHM, _RHYTHM_OF_LOCKS = 20, 5
_MOST_LINES = 5
_MOST_OTHERS = 3
_MOST_GONE = 2
# Seconds from which on a wait that has not ended is worth a word.
_LASTS = 5.0
# Calls of a program after which it is known how long it takes.
_REPEATS = 3
# Seconds: calls are counted as often.
_COUNTED = 1.0
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
# How a program ends its workers itself.
_ON_PURPOSE = (-signal.SIGTERM, -signal.SIGINT)
_WAITING = ("/queue.py:", "/threading.py:")
_ALONE = "the program has no other thread that could {} the queue"
_START_ANEW = (
    "Start the workers as new processes: "
    'multiprocessing.get_context("spawn"), or "forkserver".'
)
_FORKED = (
    "This process was forked from one that had used JAX, whose threads it lacks: its "
    "first compile or call has taken {} so far, and may never end."
)
LOAD_LATER = (
    "Let each process initialise JAX and load the model after the fork: in gunicorn, "
    "without --preload, or in post_fork; in multiprocessing, by "
    'get_context("spawn").'
)
_BREAK_THE_POOL = (
    "Find out what ended the worker: its output may say so, or the kernel's log if "
    "memory ran out. concurrent.futures.ProcessPoolExecutor raises BrokenProcessPool "
    "then, where a queue or multiprocessing.Pool waits."
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


def stalled(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect a program that has been doing the same thing far longer than before."""
    now, limits = snapshot.time.now, snapshot.limits
    if lasts := stuck_after_fork(snapshot):
        yield Finding(
            *("stalled", now.place, _FORKED.format(duration(lasts))),
            *(from_place(now.stack, now.place)[:_MOST_LINES], LOAD_LATER, now.place),
            # A first compile may as well be slow.
            severity=_severity(snapshot) if is_long(now, limits) else TICKET,
        )
        return
    forks = list(_forks(snapshot)) if now.state in _WAITS else []
    # What a child has never done, it may never do.
    first = bool(forks) and not now.longest_there
    asleep = limits.stalled_for_a_failed_thread if now.asleep else limits.deadlocked
    waits = first and now.seconds >= seconds_in(asleep)
    if now.state not in _DOING or not (waits or is_long(now, limits)):
        yield from _lasting(snapshot)
        return
    causes = [of for of in now.gone if now.state in _WAITS and _is_cause(of, now)]
    cause = causes[0] if causes else None
    evidence, action = _causes(snapshot, forks, cause)
    pooled = ", and a call that waits for its result never returns"
    waits_for = f"{cause}{pooled if cause and cause.pooled else ''}"
    lead = f"{waits_for[:1].upper()}{waits_for[1:]}; the" if cause else "The"
    yield Finding(
        "stalled",
        now.place,
        f"{lead} {doing(now)}.",
        (*evidence, *from_place(now.stack, now.place)[:_MOST_LINES]),
        action,
        where=now.place,
        severity=_severity(snapshot),
    )


def _severity(snapshot: Snapshot) -> Severity:
    # What is marked says itself when it pages.
    return TICKET if snapshot.steps or snapshot.requests else PAGE


def stuck_after_fork(snapshot: Snapshot) -> float:
    """
    Return for how long a process has been in its first compile or call that was forked
    from one that had used JAX; 0 if it has not, or that is not long.
    """
    now, least = snapshot.time.now, snapshot.limits.stalled_for_a_failed_thread
    compiled = any(of.built or of.hits for of in snapshot.functions)
    if not snapshot.process.forked or compiled:
        return 0.0
    lasts = max(now.seconds * (now.state in _AWAITS), snapshot.compiling.oldest_seconds)
    return lasts if lasts >= seconds_in(least) else 0.0


def doing(now: Now) -> str:
    """Return what the program has been doing, where, and for how long before."""
    before = ""
    if now.changes and now.longest_before:
        before = f"; before, it took {duration(now.longest_before)} at most"
    does = "been waiting for a lock" if now.lock else _DOING[now.state]
    if now.state == "device" and now.function:
        does = f"been in a call of {now.function}"
    where = f" at {now.place}" if now.place else ""
    return f"program has {does} for {duration(now.seconds)}{where}{before}"


def waiting(snapshot: Snapshot) -> str:
    """Return since when it does something longer than ever, until it is judged."""
    now, limits = snapshot.time.now, snapshot.limits
    after, longest = _long_after(now, limits), (now.longest_before, now.longest_there)
    unusual = now.state in _DOING and after < seconds_in(limits.stalled_anywhere)
    if not (unusual and max(_LASTS, *longest) < now.seconds < after):
        return ""
    return f"The {doing(now)}. It counts as stalled from {duration(after)} on."


def _lasting(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect a wait, or Python, that lasts many times as long as any before, and not yet
    so long that the program has stalled: what is slow would be so again and again.
    """
    now = snapshot.time.now
    if is_lasting(snapshot):
        causes = tuple([str(of) for of in now.gone if _is_cause(of, now)])
        topic = now.state if now.state == "data_wait" else "fetch"
        yield Finding(
            *(topic, now.place, f"The {doing(now)}."),
            *(causes[:_MOST_GONE], _ACTIONS[now.state], now.place),
        )
    elif lasts := quiet(snapshot):
        before = duration(max(snapshot.time.call_pause, _COUNTED))
        yield Finding(
            *("host", now.place),
            f"No progress? The program has not called a jitted function for "
            f"{duration(lasts)}, and runs Python, now at {now.place}; before, at most "
            f"{before} passed between calls.",
            from_place(now.stack, now.place)[:_MOST_LINES],
            "If that is no work after the last call, as to write or to score results, "
            "look at what ends the loop: `jaxmon explain --stacks` shows where it is.",
            where=now.place,
        )


def is_lasting(snapshot: Snapshot) -> bool:
    """Return whether it waits for data, or for its job, for far longer than before."""
    now, limits = snapshot.time.now, snapshot.limits
    times, before = limits.stalled_times, now.longest_before
    least: float | None = _LASTS if before else None
    if snapshot.process.rank.index is not None and now.state in _AWAITS:
        times = limits.rank_stuck_times
        # Calls that were dispatched ahead are all waited for at once.
        repeats = now.repeats >= _REPEATS
        least = least or (seconds_in(limits.stalled_on_a_line) if repeats else None)
    elif now.state != "data_wait":
        return False
    if least is None or now.changes < _RHYTHM or is_long(now, limits):
        return False
    return now.seconds >= max(times * before, least)


def quiet(snapshot: Snapshot) -> float:
    """
    Return for how long a program that called jitted functions again and again has only
    run Python, if that is far longer than ever, and nothing that it does once.
    """
    time, limits = snapshot.time, snapshot.limits
    least = seconds_in(limits.stalled_on_a_line)
    seen, now = inf if time.jax_age is None else time.jax_age, time.now
    age = min(time.call_age or 0.0, seen)
    far = age >= max(least, limits.stalled_times * time.call_pause)
    runs = now.state == "python" and now.repeats >= _RHYTHM and not is_long(now, limits)
    once = any(of.place == now.place for of in time.since_start.once)
    serves = snapshot.requests or snapshot.steps
    return age if far and runs and not (once or serves) else 0.0


def _causes(
    snapshot: Snapshot, forks: list[str], cause: FailedHelper | None
) -> tuple[list[str], str]:
    """Return what it may wait for, beside a *cause* that is known, and what to do."""
    now = snapshot.time.now
    action = _ACTIONS.get(now.state, "`jaxmon explain --stacks` shows all threads.")
    if now.state in _WAITS and now.gone:
        rest = [str(helper) for helper in now.gone if helper is not cause]
        action = PROPAGATE_ADVICE if cause else HELPER_ADVICE
        if cause and cause.kind == "process":
            action = _BREAK_THE_POOL
        return rest[:_MOST_GONE], action
    if (now.alone and not now.full) or (now.state == "data_wait" and now.fillers):
        may_fill = [thread.filling for thread in now.fillers[:_MOST_OTHERS]]
        none = _ALONE.format("empty" if _puts(now) else "fill")
        return may_fill or [none], FILLER_ADVICE if may_fill else HELPER_ADVICE
    if now.full or now.lock:
        others = now.full or now.others
        waits = [_waits(of, now) for of in others[:_MOST_OTHERS] if of.stack]
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
    what = "room in a full queue" if _puts(thread) else "a thread to end"
    lines = [line for line in thread.stack if not any(of in line for of in _WAITING)]
    what = what if now.full else "a lock too"
    return f"thread {thread.name} waits for {what}: {(lines or thread.stack)[0]}"


def _puts(of: Standing | Now) -> bool:
    return any(line.endswith(" in put") for line in of.stack)


def _forks(snapshot: Snapshot) -> Iterator[str]:
    for warned in snapshot.warnings:
        if warned.text.endswith("_at_fork"):
            yield (
                f"{warned.where} has forked this process, whose threads of JAX the "
                "child lacks: it may wait for ever for a lock that one of them held"
            )


def _is_cause(helper: FailedHelper, now: Now) -> bool:
    """Return whether what goes on *now* may be to wait for *helper*, which is gone."""
    if helper.kind == "process" and helper.code in _ON_PURPOSE:
        return False
    # The program may have read why a task failed, and wait for something else.
    if helper.kind == "task" and now.state != "data_wait":
        return False
    age = helper.age_seconds
    return age is not None and age <= now.seconds + _EARLIER


def _waits_for(helper: FailedHelper, now: Now, limits: Limits) -> bool:
    """Return whether the program has waited for *helper* for so long that it is odd."""
    if not _is_cause(helper, now):
        return False
    # Others may do the work of a process that has ended.
    usual = now.longest_there if helper.kind == "process" and not helper.pooled else 0.0
    least = seconds_in(limits.stalled_for_a_failed_thread)
    long = max(least, limits.stalled_times * usual)
    return (helper.age_seconds or 0.0) >= least and now.seconds >= long


def is_long(now: Now, limits: Limits) -> bool:
    """Return whether what goes on *now* lasts so long that it is odd."""
    return now.seconds >= _long_after(now, limits)


def _long_after(now: Now, limits: Limits) -> float:
    """
    Return from how many seconds on it is far longer than usual, or odd for one that
    waits while a thread of the program has just failed; infinite if that is not known.
    """
    never_ends = now.full or (now.alone and now.state in _WAITS)
    after = [seconds_in(limits.stalled_for_a_failed_thread) if never_ends else inf]
    if now.state in _WAITS and any(
        _waits_for(helper, now, limits) for helper in now.gone
    ):
        return 0.0
    times = limits.stalled_times
    # So waits a server that has just started, for its end.
    first = now.state == "blocked" and _is_parked(now) and not now.longest_there
    if first or now.work:
        return after[0]  # whether anything is to come is not known
    anywhere = seconds_in(limits.stalled_anywhere)
    after.append(max(anywhere, times * now.longest_there))
    if now.seconds >= anywhere:
        return min(after)
    if now.lock and now.others:
        after.append(seconds_in(limits.deadlocked))
    there, before = now.longest_there, now.longest_before
    repeats = now.repeats if now.state in _AWAITS else 0
    rhythm, often = now.changes >= _RHYTHM, now.changes >= _RHYTHM_OF_LOCKS
    usual = (
        (repeats and there, there, limits.stalled_in_a_state),
        ((repeats >= _REPEATS or rhythm) and there, there, limits.stalled_on_a_line),
        (often and now.lock, before, limits.stalled_for_a_lock),
        (rhythm and before, before, limits.stalled_in_a_state),
    )
    after += [max(seconds_in(of), times * most) for holds, most, of in usual if holds]
    return min(after)


def _is_parked(now: Now) -> bool:
    top = now.stack[0] if now.stack else ""
    return "threading.py:" in top and top.endswith(" in wait")
