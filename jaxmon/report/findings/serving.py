"""Findings on queues and batches. The constants here are the thresholds."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.report.findings.finding import Finding
from jaxmon.report.layout import duration, share
from jaxmon.report.model import Snapshot
from jaxmon.report.served import Queue


_GROWING_SECONDS = 120.0
_DEEP = 20
_OF_DEPTH = 0.05
_STEADY = 1 / 4
_THIRDS = 3
_BATCHES = 100
_WORTH_OF_TIME = 0.1


def queues(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect queues that grow because more arrives than is served."""
    for queue in snapshot.queues:
        if _grows(queue):
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


def padding(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect routes whose batches are mostly padding, if that takes time."""
    observed = snapshot.process.observed_seconds
    executed = min(_executed(snapshot) or _waited(snapshot), observed)
    routes = [one for one in snapshot.requests if one.batches.fill_ratio is not None]
    every = sum(one.batches.count for one in routes)
    for route in routes:
        count, fill = route.batches.count, route.batches.fill_ratio or 0.0
        if count < _BATCHES:
            continue
        wasted = executed * count / every * (1 - fill)
        # A service with few requests has nothing to win by filling its batches.
        if wasted >= _WORTH_OF_TIME * observed:
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


def _grows(queue: Queue) -> bool:
    """
    Return whether *queue* grows steadily: a bounded one stops when it is full, work
    that arrives at once is one step, and a burst drains.
    """
    known = len(queue.lows) == len(queue.highs) == _THIRDS
    if not known or queue.growth_seconds < _GROWING_SECONDS:
        return False
    first, second, third = queue.lows
    growth = third - first
    least = growth * _STEADY
    steady = second - first >= least and third - second >= least
    # Otherwise it may as well be a queue that sways.
    above = queue.depth >= third > queue.highs[0]
    return growth >= max(_DEEP, _OF_DEPTH * first) and steady and above


def _waited(snapshot: Snapshot) -> float:
    """Return for how long the program waited for the device."""
    period = snapshot.time.period
    waited = period.share("device", "fetch") if period.settled else 0.0
    return waited * snapshot.process.observed_seconds


def _executed(snapshot: Snapshot) -> float:
    """Return the seconds of execution of all functions, from their sampled calls."""
    return sum(
        (one.calls or 0) * (one.samples.get("execution_seconds") or 0.0)
        for one in snapshot.functions
    )
