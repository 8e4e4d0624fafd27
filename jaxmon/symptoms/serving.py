"""
Callers who leave, queues that grow, batches that are mostly padding, event loops that
are held up, threads that have failed, replicas that do worse than their siblings.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.facts.ending import Underlying
from jaxmon.facts.marked import QueueFacts
from jaxmon.facts.process import Snapshot
from jaxmon.facts.record import summed
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import ago, counted, duration, share
from jaxmon.limits import Limits
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import A_PROCESS, PAGE, TICKET, Alert
from jaxmon.symptoms.requests import queued
from jaxmon.symptoms.stalls import stalled
from jaxmon.symptoms.symptom import (
    FAILURE,
    LINES,
    TIME,
    TOO_LITTLE,
    Finding,
    Symptom,
    part,
)


_STEADY = 1 / 4
_THIRDS = 3
_IN_JAX = frozenset(("compile", "device", "fetch", "transfer", "eager"))


def _deserted(snapshot: Snapshot) -> Iterator[Finding]:
    # What keeps the event loop, and makes them leave, has them as evidence.
    if not any(of.severity for of in _event_loops(snapshot)):
        yield from _left(snapshot)


def _left(snapshot: Snapshot) -> Iterator[Finding]:
    limits, period = snapshot.limits, snapshot.time.period
    for route in sorted(snapshot.requests, key=lambda route: -route.left):
        every, left = sum(part.count for part in route.finished), route.left
        if left < limits.failed_requests or left <= limits.left_share * every:
            continue
        spent = [
            f"threads were blocked outside of JAX for {duration(seconds)}: {line}"
            for line, seconds in period.lines("blocked")[:1]
            if seconds >= limits.time_worth * period.seconds
        ]
        yield Finding(
            "callers_left",
            route.name,
            f"{counted(left, 'caller')} of {route.name} left before a response began, "
            f"{share(left, every)} of {every:,}.",
            (*queued(route), *spent),
            "What is computed for them is lost. Serve more at once, reject what cannot "
            "be served in time, drop what its caller no longer waits for. Waits in the "
            "server, before the application is called, are in no latency.",
        )


def _queues(snapshot: Snapshot) -> Iterator[Finding]:
    for queue in snapshot.queues:
        if _grows(queue, snapshot.limits):
            yield Finding(
                "queue",
                queue.name,
                f"Queue {queue.name} grew from {queue.lows[0]:,} to {queue.depth:,} "
                f"waiting items in {duration(queue.growth_seconds)}, and never "
                "drained: more arrives than is served.",
                (),
                "Run larger batches or more replicas if the batches are full; find "
                "what blocks if they are not. Limit the queue and reject what exceeds "
                "it, or the wait grows with it.",
            )


def _grows(queue: QueueFacts, limits: Limits) -> bool:
    """
    Return whether *queue* grows steadily: a bounded one stops when it is full, work
    that arrives at once is one step, and a burst drains.
    """
    is_complete = len(queue.lows) == len(queue.highs) == _THIRDS
    if not is_complete or queue.growth_seconds < seconds_in(limits.queue_growing):
        return False
    first, second, third = queue.lows
    growth = third - first
    least = growth * _STEADY
    steady = second - first >= least and third - second >= least
    # Otherwise it may as well be a queue that sways.
    above = queue.depth >= third > queue.highs[0]
    much = growth >= max(limits.queue_deep, limits.queue_growth * first)
    return much and steady and above


def _padding(snapshot: Snapshot) -> Iterator[Finding]:
    observed = snapshot.process.observed_seconds
    executed = min(snapshot.device_seconds or _waited(snapshot), observed)
    routes = [of for of in snapshot.requests if of.batches.fill_ratio is not None]
    every = sum(route.batches.count for route in routes)
    for route in routes:
        count, fill = route.batches.count, route.batches.fill_ratio or 0.0
        if count < snapshot.limits.padded_batches:
            continue
        wasted = executed * count / every * (1 - fill)
        # A service with few requests has nothing to win by filling its batches.
        if wasted >= snapshot.limits.time_worth * observed:
            yield Finding(
                "padding",
                route.name,
                f"Batches of {route.name} are {share(1 - fill, 1)} padding: "
                f"{count:,} of them took about {duration(executed * count / every)} of "
                f"execution, {duration(wasted)} of it for padding.",
                (),
                "Add smaller batch sizes (buckets), or wait a little longer for "
                "requests to fill a batch.",
                seconds=wasted,
            )


def _waited(snapshot: Snapshot) -> float:
    period = snapshot.time.period
    waited = period.share("device", "fetch") if period.settled else 0.0
    return waited * snapshot.process.observed_seconds


def _event_loops(snapshot: Snapshot) -> Iterator[Finding]:
    period = snapshot.time.period
    if not period.settled:
        return
    time, limits = snapshot.time, snapshot.limits
    late = (
        time.turns >= limits.requests_judged
        and time.turn_seconds >= limits.slow_requests_by
    )
    kinds = _IN_JAX | {"blocked"} if late else _IN_JAX
    served = sum(of.count for route in snapshot.requests for of in route.finished)
    ratio = period.seconds / max(snapshot.process.observed_seconds, period.seconds)
    mean = period.event_loops("python") / max(served * ratio, 1)
    # What is short for each request, and adds up, is the fault of no line.
    if late and mean >= limits.slow_requests_by:
        kinds |= {"python"}
    held = [
        of
        for of in period.places
        if of.event_loop and of.state in kinds and (of.place or of.state != "python")
    ]
    lines = summed((place.place, place.seconds) for place in held)
    took = sum(lines.values())
    if took < limits.time_worth * period.seconds:
        return
    most = max(lines, key=lines.__getitem__)
    in_jax = all(place.state in _IN_JAX for place in held)
    there = {place.state for place in held if place.place == most}
    also = ", or await a client that is asynchronous" * ("blocked" in there)
    if "python" in there:
        also = "; or in another process, since threads take turns in running Python"
    long = took >= limits.left_share * period.seconds
    evidence = [of.verdict for of in _left(snapshot)] if long or late else []
    if late:
        evidence.append(
            f"lately, requests waited for {duration(time.turn_seconds)} on average "
            "before they reached the application; waits of 1 s and more are a part of "
            "their latency"
        )
    # They have waited, and left: errors of the objective, which page.
    most_left = max((of.left_lately for of in snapshot.requests), default=0)
    lost = most_left >= limits.failed_requests
    pages = late and lost and time.turn_seconds > limits.left_after
    yield Finding(
        "event_loop",
        most,
        f"{'JAX' if in_jax else 'Coroutines'} kept the event loop from other requests "
        f"for {part(took, period)}: {share(lines[most], took)} of it at {most}.",
        tuple(evidence),
        "Until the line returns, the server responds to no request, not even a health "
        "check. Do that in another thread, as with await asyncio.to_thread(predict, x)"
        f"{also}.",
        where=most,
        # As a part of the whole observed time.
        seconds=took / period.seconds * snapshot.process.observed_seconds,
        severity=(PAGE if pages else TICKET) if evidence else None,
    )


def _failed_threads(snapshot: Snapshot) -> Iterator[Finding]:
    waits = [of for of in stalled(snapshot) if of.topic == "stalled"]
    named = " ".join([s for of in waits for s in (of.verdict, *of.evidence)]).lower()
    failed = [
        helper
        for helper in snapshot.time.failed
        if helper.kind == "thread"
        and not helper.handled
        and f"thread {helper.name} ended".lower() not in named
    ]
    for latest in failed[:1]:
        when = "" if latest.age_seconds is None else f" {ago(latest.age_seconds)}"
        error = Underlying(latest.type, latest.message.rstrip("."))
        place = f", at {latest.where}" if latest.where else ""
        place += f" in {latest.function}" if latest.function else ""
        yield Finding(
            "thread_failed",
            latest.name,
            f"Thread {latest.name} ended{when} by an uncaught exception{place}: "
            f"{error}.",
            tuple(f"earlier, {helper}" for helper in failed[1:]),
            "Nothing does its work any more, unless another thread does. Let it handle "
            "what one item raises, or pass its exceptions on to who waits for it.",
            where=latest.where,
        )


def _replica_hangs(limits: Limits) -> Alert:
    window = limits.hang_after
    left = recorded.left(window, limits) >= limits.hung_requests
    answering = recorded.replica_answered(window).max(*recorded.ROUTE)
    hanging = (recorded.hung(window, limits) > 0).or_(left)
    return Alert(
        # Where all hang, it is the route.
        expr=hanging.and_(answering, *recorded.ROUTE),
        summary=(
            f"{A_PROCESS}has answered no request to route {{{{ $labels.route }}}} for "
            f"{window}; callers wait, or have waited and left."
        ),
    )


def _replica_slow(limits: Limits) -> Alert:
    window = limits.replica_slow_for
    return Alert(
        expr=recorded.times_siblings(window, limits) > limits.replica_slow,
        for_=window,
        summary=(
            f"{A_PROCESS}takes {{{{ $value | humanize }}}} times as long as the median "
            "process for requests to route {{ $labels.route }}."
        ),
    )


_REPLICAS, _OTHERS = "JaxmonReplicaSlow", "a host does not see the other replicas"
SYMPTOMS = (
    Symptom(
        *("replica_hangs", "F8", "One process of a service answers no request."),
        rule=(_REPLICAS, _replica_hangs),
        missing=_OTHERS,
    ),
    Symptom(
        *("replica_slow", "F7", "One process of a service is slower than the others."),
        rule=(_REPLICAS, _replica_slow),
        missing=_OTHERS,
    ),
    Symptom(
        *("callers_left", "F8", "Callers leave before a response begins.", FAILURE),
        *(_deserted, catalog.REQUESTS, "On-call: Requests by outcome"),
        severity=TICKET,
        missing="metrics do not distinguish them from other client errors",
    ),
    Symptom(
        *("queue", "F8", "A queue grows and never drains.", FAILURE),
        *(_queues, catalog.QUEUE_DEPTH, "Serving: Queue depth"),
        severity=TICKET,
        missing="how deep is too deep is the service's; an objective can say it",
    ),
    Symptom(
        *("padding", "", "Batches are mostly padding.", TIME),
        *(_padding, catalog.BATCH_FILL_RATIO, "Serving: Batch fill"),
        missing=TOO_LITTLE,
    ),
    Symptom(
        *("event_loop", "", "A line of code blocks an event loop.", TIME),
        *(_event_loops, catalog.WALL_SECONDS, "Debug: Where the time goes"),
        missing=LINES,
        other_runbook="JaxmonRequestsHang",
    ),
    Symptom(
        *("thread_failed", "F8", "An uncaught exception ended a thread.", FAILURE),
        finding=_failed_threads,
        severity=TICKET,
        missing="only the process knows its threads",
    ),
)
