"""What the ledger of time, which has one state at a moment, does not show itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jaxmon.facts.process import Snapshot
from jaxmon.facts.walltime import Period
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import duration, share
from jaxmon.symptoms.alert import TICKET, Severity
from jaxmon.symptoms.stalls import is_long
from jaxmon.symptoms.symptom import Finding, part


_MORE = 5
_MOST_LINES = 3
_SLACK = 2.0  # seconds: a call is noticed that late
_IS_WORK_DUE = (
    "It waits for work. If some is due, find the thread that should give it: "
    "`jaxmon explain --stacks`."
)
# Calls per read from which on a program reads rarely.
_RARELY = 10
EXPLAINED = 0.7
"""The device is busy if it explains this share of the wait for it."""
OF_A_LINE = 0.02
"""Share of the time from which on a line is worth a word."""


def at_rest(period: Period) -> dict[str, float]:
    """
    Return the seconds that Python had lines which wait most of their time, such as a
    `time.sleep`: it was woken up there, and may have waited for a processor.
    """
    blocked = dict(period.lines("blocked"))
    lines = period.lines("python")
    return {line: spent for line, spent in lines if spent < blocked.get(line, 0.0)}


def reads_rarely(snapshot: Snapshot) -> bool:
    """Return whether most calls are not followed by a read of results."""
    calls = sum(function.calls or 0 for function in snapshot.users)
    return 0 < reads(snapshot) * _RARELY < calls


def mostly_measured(snapshot: Snapshot) -> bool:
    """Return whether it is known how long the device computes most calls."""
    called = [(of.calls or 0, of.samples.execution_mean) for of in snapshot.users]
    measured = sum(calls for calls, seconds in called if seconds is not None)
    return measured >= EXPLAINED * sum(calls for calls, _ in called)


def reads(snapshot: Snapshot) -> int:
    """Return how often results were read."""
    lines = snapshot.transfers.lines
    return sum(line.count for line in lines if line.direction != "host_to_device")


def eager_waits(snapshot: Snapshot, period: Period) -> float:
    """
    Return for how long the program waited for results of operations outside of jit: if
    it hardly dispatches anything else, these are what the device computes.
    """
    dispatch, called = period.of("eager"), period.of("device")
    waited, busy = period.of("fetch"), snapshot.busy_seconds(period)
    # What was compiled ahead of time is called, too, and not counted.
    if not any(of.calls or of.misses or of.built for of in snapshot.users):
        return waited
    few = dispatch < OF_A_LINE * period.seconds or dispatch < _MORE * called
    # If the time of jitted functions is unknown, it may be that.
    return 0.0 if few or not busy or busy > (1 - EXPLAINED) * waited else waited


def traced_again(snapshot: Snapshot, period: Period) -> float:
    """
    Return the time of tracing that leads to no compile: outside of jit, `jax.grad` and
    its like trace the operations of a function on each call.
    """
    since_start = snapshot.time.since_start.seconds
    called = sum(period.compiled().values())
    traced = period.of("compile") - called
    measured = snapshot.compile_time + snapshot.load_time
    compiled = measured * period.seconds / max(since_start, 1e-9)
    compiled = max(compiled + snapshot.compiling.oldest_seconds - called, 0.0)
    again = traced - compiled
    certain = period.is_worth(again, "compile", 0.0)
    return again if certain and compiled < traced / 2 else 0.0


def idle(snapshot: Snapshot, period: Period) -> Iterator[Finding]:
    """Say that there was nothing to do."""
    now, idled = snapshot.time.now, period.of("idle")
    if now.work and is_long(now, snapshot.limits):
        idled -= min(now.seconds, idled)  # another finding is about that
    advice = _IS_WORK_DUE if now.work else ""
    for took, text, action in (
        (idled, "The program was idle for", advice),
        (divided(snapshot, period), "The program waited for other processes for", ""),
    ):
        if took >= snapshot.limits.time_worth * period.seconds:
            yield Finding("idle", "", f"{text} {part(took, period)}.", (), action)


def divided(snapshot: Snapshot, period: Period) -> float:
    """Return how long other processes did the work: it has called nothing since."""
    time, waits = snapshot.time, [of for of in period.places if of.divided]
    took = sum(of.seconds for of in waits if of.state == "data_wait")
    computes = period.share("eager") >= snapshot.limits.time_worth
    called = time.call_age is not None and time.call_age < took - _SLACK
    return 0.0 if computes or called or time.now.asleep else took


def costs(  # noqa: PLR0913, PLR0917 - the parts of a sentence
    topic: str,
    snapshot: Snapshot,
    period: Period,
    took: float,
    lines: Mapping[str, float],
    won: float,
    lead: str,
    rest: str = "",
) -> Finding:
    """
    Return that something *took* so long that as much can be *won*, most of it at the
    first of *lines*: these are parts of it, and together no more than that.
    """
    ratio = min(took / max(sum(lines.values()), 1e-9), 1.0)
    most = sorted(lines.items(), key=lambda item: -item[1])[:_MOST_LINES]
    parts = [(line, seconds * ratio) for line, seconds in most if seconds]
    where = parts[0][0] if parts else ""
    evidence = [f"called from {line}" for line in [period.caller(where)] if line]
    others = [(line, spent) for line, spent in parts[1:] if spent >= OF_A_LINE * took]
    evidence += [f"{line}: {duration(spent)}" for line, spent in others]
    mostly = f": {share(parts[0][1], took)} of it at {where}" if parts else ""
    least = "" if period.settled or lead.endswith("about") else " at least"
    return Finding(
        topic,
        where,
        f"{lead}{least} {part(took, period)}{rest}{mostly}.",
        tuple(evidence),
        "",
        where,
        # As a part of the whole observed time.
        won / period.seconds * (snapshot.process.observed_seconds or period.seconds),
    )


def has_work(snapshot: Snapshot) -> bool:
    """Return whether what is marked waits: steps, a request, an item of a queue."""
    open_requests = any(route.in_progress for route in snapshot.requests)
    items = any(queue.depth for queue in snapshot.queues)
    return bool(snapshot.steps) or open_requests or items


def severity_of(
    took: float, limit: str, period: Period, snapshot: Snapshot
) -> Severity | None:
    """Return that of the alert on loops, which adds up its window."""
    looping = any(loop.running for loop in snapshot.steps)
    if not limit or not looping:
        return None
    window = seconds_in(snapshot.limits.time_lost_window)
    spent = took / period.seconds * min(snapshot.process.observed_seconds, window)
    return TICKET if spent > getattr(snapshot.limits, limit) * window else None
