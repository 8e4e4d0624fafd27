"""The finding that a program does not get on."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.facts.walltime import HELPER_ADVICE, FailedHelper, Now
from jaxmon.formats.durations import seconds as seconds_in
from jaxmon.formats.layout import duration
from jaxmon.limits import Limits
from jaxmon.report.findings.finding import Finding


_EARLIER = 60.0
# Changes after which a program has a rhythm.
_RHYTHM = 20
_MOST_LINES = 5
_MOST_OTHERS = 3
_MOST_GONE = 2
# In which it may wait for a helper.
_WAITS = ("data_wait", "blocked")

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
_ACTIONS = {
    "data_wait": "The stack shows what the loader waits for: a file system, a worker "
    "process that has died, a queue that nobody fills.",
    "device": "The device does not finish. In a job of several processes, one may be "
    "missing in a collective: `jaxmon job why` says which.",
    "blocked": "The stack shows what it waits for: a lock that another thread holds, a "
    "file, a socket. `jaxmon explain --stacks` shows the other threads.",
    "python": "The stack shows the loop it is in.",
}
_FREE_THE_LOCK = (
    "Look for the thread that holds it. If two threads wait for locks that the other "
    "one holds, take the locks in the same order everywhere."
)
_ACTIONS["fetch"] = _ACTIONS["transfer"] = _ACTIONS["device"]


def stalled(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect a program that has been doing the same thing far longer than before."""
    now = snapshot.time.now
    if now.state not in _DOING or not is_long(now, snapshot.limits):
        return
    before = ""
    if now.changes and now.longest_before:
        before = f"; before, it took {duration(now.longest_before)} at most"
    doing = "been waiting for a lock" if now.lock else _DOING[now.state]
    where = f" at {now.place}" if now.place else ""
    others = (
        f"thread {one.name} waits for a lock too: {one.stack[0]}"
        for one in now.others[:_MOST_OTHERS]
        if one.stack
    )
    gone = now.gone[:_MOST_GONE] if now.state in _WAITS else ()
    action = _ACTIONS.get(now.state, "`jaxmon explain --stacks` shows all threads.")
    yield Finding(
        "stalled",
        now.place,
        f"The program has {doing} for {duration(now.seconds)}{where}{before}.",
        (*now.stack[:_MOST_LINES], *others, *map(str, gone)),
        HELPER_ADVICE if gone else _FREE_THE_LOCK if now.lock else action,
        where=now.place,
    )


def _waits_for(one: FailedHelper, now: Now, limits: Limits) -> bool:
    """Return whether what goes on *now* may be to wait for *one*, which is gone."""
    if one.age_seconds is None:
        return False
    least = seconds_in(limits.stalled_for_a_failed_thread)
    long = min(one.age_seconds, now.seconds) >= least
    return long and one.age_seconds <= now.seconds + _EARLIER


def is_long(now: Now, limits: Limits) -> bool:
    """
    Return whether what goes on *now* is far longer than usual, or as long as is odd for
    one that waits while a thread of the program has just failed.
    """
    if now.state in _WAITS and any(_waits_for(one, now, limits) for one in now.gone):
        return True
    times = limits.stalled_times
    if now.seconds >= seconds_in(limits.stalled_anywhere):
        return now.seconds >= times * now.longest_there
    if now.lock and now.others and now.seconds >= seconds_in(limits.deadlocked):
        return True
    if now.changes < _RHYTHM:
        return False
    there, before = now.longest_there, now.longest_before
    for usual, least in (
        (before if now.lock else None, limits.stalled_for_a_lock),
        (there or None, limits.stalled_on_a_line),
        (before or None, limits.stalled_in_a_state),
    ):
        if usual is not None and now.seconds >= max(seconds_in(least), times * usual):
            return True
    return False
