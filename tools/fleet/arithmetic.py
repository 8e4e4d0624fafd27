"""
When alerts on a budget fire and resolve, by arithmetic on what the requests did.

No rule is evaluated and nothing is scraped: the sums of the windows are differences of
exact counts. This is what the multiwindow, multi-burn-rate alerts of the SRE workbook
promise, and what the rules are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jaxmon import catalog
from jaxmon.host.formats import durations
from jaxmon_alerts.slo import Slo
from jaxmon_alerts.slo.model import Pair
from tools.fleet.layout import Pod
from tools.fleet.remote import Floats
from tools.fleet.series import Fleet, Mask, Values


Span = tuple[float, float]


@dataclass(frozen=True)
class Expected:
    """The *spans* in which a pair of windows fires, seconds since the epoch."""

    pair: Pair
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Requests:
    """How many *events* and *errors* there were until each of *times*, one a step."""

    times: Floats
    events: Floats
    errors: Floats

    def expected(self, slo: Slo) -> Iterator[Expected]:
        """Yield the conditions of *slo* that fire."""
        for pair in (condition.over(slo.window) for condition in slo.policy):
            bad, _, short = self._within(pair, pair.short, slo)
            bad, total, long = self._within(pair, pair.long, slo)
            holds = short & long & (bad >= slo.minimum_errors)
            if pair.factor is not None:
                holds &= total >= slo.minimum_events
            spans = tuple(self._spans(holds, durations.seconds(pair.for_)))
            if spans:
                yield Expected(pair, spans)

    def _within(self, pair: Pair, window: str, slo: Slo) -> tuple[Floats, Floats, Mask]:
        """Return errors and events of *window*, and where they are too many."""
        back = int(durations.seconds(window) / (self.times[1] - self.times[0]))
        before = np.maximum(np.arange(len(self.times), dtype=np.int64) - back, 0)
        bad, total = (of - of.take(before) for of in (self.errors, self.events))
        return bad, total, bad > pair.least(slo.budget) * total

    def _spans(self, holds: Mask, pending: float) -> Iterator[Span]:
        edges = np.diff(np.concatenate([[0], holds.astype(int), [0]]))
        starts, ends = np.flatnonzero(edges > 0), np.flatnonzero(edges < 0)
        for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
            fires = self.times[first] + pending
            if fires <= self.times[end - 1]:
                yield fires, self.times[min(end, len(self.times) - 1)]


def requests(fleet: Fleet, pods: Sequence[Pod], times: Floats) -> Requests:
    """Return the requests of *pods* until *times*, which never end or restart."""
    events, errors = np.zeros((2, len(times)))
    for lines, owners in fleet.groups(pods):
        succeeding = fleet.succeeding(lines)
        wanted = [line for line in lines if line.name == catalog.REQUESTS.name]
        for line in wanted if owners else ():
            count = Values(owners, times, fleet.faults).of(line, succeeding(line))
            outcome = dict(line.labels)["outcome"]
            if outcome != "client_error":
                events += count.sum(axis=0)
            if outcome == "error":
                errors += count.sum(axis=0)
    return Requests(times, events, errors)
