"""
Budgets that burn in known ways, and whether alerts fire when arithmetic says so.

For the arithmetic, no rule is evaluated and nothing is scraped: the sums of the windows
are differences of exact counts. This is what the multiwindow, multi-burn-rate alerts of
the SRE workbook promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from jaxmon import catalog
from jaxmon.host.formats import durations
from jaxmon_alerts import slo
from jaxmon_alerts.slo import Slo
from jaxmon_alerts.slo.model import Pair
from tools import markdown
from tools.fleet import layout
from tools.fleet.layout import DAY, Fault, Pod
from tools.fleet.remote import Floats
from tools.fleet.replay import SCRAPE_SECONDS, Firing, span_text
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


HOUR = 3600.0
TOLERANCE = 120.0
_DAYS = 30
_FIRST_DAY = 5
_CLUSTER = "c0"
_OBJECTIVE = "request-error"


@dataclass(frozen=True)
class Burn:
    """
    What happens to the requests of one service within 30 days, from the sixth on.

    Args:
        kind: of the faults.
        amount: see `Fault`.
        hours: how long each lasts.
        times: how many there are, one every *every* hours.
        speed: of all requests, relative to those recorded.
    """

    text: str
    amount: float
    hours: float
    times: int = 1
    every: float = 24.0
    speed: float = 1.0
    kind: str = "errors"

    def faults(self, job: str, start: float) -> Iterator[Fault]:
        """Yield the faults of *job* in a simulation that starts at *start*."""
        for number in range(self.times):
            begins = start + _FIRST_DAY * DAY + number * self.every * HOUR
            ends = begins + self.hours * HOUR
            yield Fault(self.kind, _CLUSTER, job, begins, ends, self.amount)


BURNS = (
    Burn("all requests fail for 20 minutes", 1.0, 1 / 3),
    Burn("all requests fail for 2 minutes", 1.0, 1 / 30),
    Burn("2 % fail for 2 hours", 0.02, 2),
    Burn("0.8 % fail for 12 hours", 0.008, 12),
    Burn("0.4 % fail for a day", 0.004, 24),
    Burn("0.15 % fail for 4 days", 0.0015, 96),
    Burn("0.05 % fail for 20 days, half the budget", 0.0005, 480),
    Burn("all fail for 1 minute a day, 20 times", 1.0, 1 / 60, 20),
    Burn("3 % fail for 10 minutes every 2 hours, for 2 days", 0.03, 1 / 6, 24, 2),
    Burn("4 requests a minute, all fail for 40 minutes", 1.0, 2 / 3, speed=0.002),
    Burn("4 requests a minute, one in 20 fails for 5 days", 0.05, 120, speed=0.002),
    Burn("no request finishes for an hour", 1.0, 1, kind="hang"),
    Burn("nothing happens", 0.0, 1),
)


def burning(start: float) -> tuple[list[Pod], list[Fault], dict[str, Burn]]:
    """Return a service for each of `BURNS`, their faults, and which is whose."""
    jobs = 2 * len(BURNS)
    shape = layout.Shape(
        processes=layout.WORKERS * jobs, clusters=1, jobs=jobs, churn=False
    )
    by_job = {f"serve-{2 * index}": burn for index, burn in enumerate(BURNS)}
    pods = []
    for pod in layout.pods(shape, start, start + _DAYS * DAY):
        if burn := by_job.get(pod.job):
            lives = tuple(
                replace(one, speed=one.speed * burn.speed) for one in pod.lives
            )
            pods.append(replace(pod, lives=lives))
    faults = [one for job, burn in by_job.items() for one in burn.faults(job, start)]
    return pods, faults, by_job


Condition: TypeAlias = tuple[str, str]
"""Name and severity of an alert."""


@dataclass(frozen=True)
class Outcome:
    """
    When one condition fires for one burn: first, and for the last time resolves.

    Args:
        what: the condition.
        found, due: by the rules and by arithmetic, as seconds after the burn began and
            after it was over; `None` if it never fires.
        times: how often the rules fired.
    """

    burn: Burn
    what: Condition
    found: tuple[float, float] | None
    due: tuple[float, float] | None
    times: int

    @property
    def right(self) -> bool:
        """
        Return whether rules and arithmetic agree within `TOLERANCE` seconds.

        Where nothing finishes there are no errors to count; another alert has to say
        it.
        """
        if self.burn.kind == "hang":
            return self.found is not None
        if self.found is None or self.due is None:
            return self.found is self.due
        pairs = zip(self.found, self.due, strict=True)
        return all(abs(one - other) <= TOLERANCE for one, other in pairs)


def outcomes(
    firings: Sequence[Firing], fleet: Fleet, by_job: dict[str, Burn], start: float
) -> list[Outcome]:
    """Return what fired and what should have, in a simulation from *start*."""
    objective = next(one for one in slo.load().slos if one.name == _OBJECTIVE)
    times = np.arange(start, start + _DAYS * DAY, SCRAPE_SECONDS)
    results = []
    for job, burn in by_job.items():
        begins = start + _FIRST_DAY * DAY
        over = begins + ((burn.times - 1) * burn.every + burn.hours) * HOUR
        found: dict[Condition, list[tuple[float, float]]] = {}
        for one in firings:
            labels = dict(one.labels)
            if labels.get("job") == job and one.severity != "info":
                spans = found.setdefault((one.alert, one.severity), [])
                spans.append((one.start, one.end or float("inf")))
        due: dict[Condition, list[tuple[float, float]]] = {}
        pods = [pod for pod in fleet.pods if pod.job == job]
        for each in requests(fleet, pods, times).expected(objective):
            spans = due.setdefault((objective.alert, str(each.pair.severity)), [])
            spans.extend(each.spans)
        for what in sorted(found.keys() | due.keys()):
            mine, others = (
                (min(spans)[0] - begins, max(end for _, end in spans) - over)
                if spans
                else None
                for spans in (found.get(what), due.get(what))
            )
            results.append(Outcome(burn, what, mine, others, len(found.get(what, ()))))
        if not found and not due:
            results.append(Outcome(burn, ("none", ""), None, None, 0))
    return results


def table(results: Sequence[Outcome]) -> str:
    """Return *results* as Markdown."""
    rows = []
    for one in results:
        found, due = ((span or (None, None)) for span in (one.found, one.due))
        moments = [_moment(of[which]) for which in (0, 1) for of in (found, due)]
        wrong = "" if one.right else "differs"
        rows.append((one.burn.text, *one.what, str(one.times), *moments, wrong))
    times = ("times", "fires", "due", "resolves", "due")
    head = ("burn", "alert", "severity", *times, "")
    return markdown.table(head, rows, "lllrrrrr") + "\n"


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return span_text(seconds) if seconds < float("inf") else "never"
