"""
Evaluates rules over days of a fleet's life, as Prometheus would have, within minutes.

Hours are written and evaluated at a time, each rule after those that record what it
reads, by range queries of a real Prometheus at the interval of the rule's group. What
is evaluated at a moment is the same, only that many moments are asked for at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tools.fleet import remote
from tools.fleet.history import moments, pieces
from tools.fleet.remote import Floats, Writer
from tools.fleet.rules import Group, Rule, ordered
from tools.fleet.series import Fleet
from tools.fleet.server import Matrix, Server


SCRAPE_SECONDS = 30.0
# What does not change is written every two minutes: no window of a rule is so short
# that it misses that, and most series do not change.
_SPARSE = 4
# With blocks of a day in memory, Prometheus takes samples that are half a day old: what
# is recorded of a piece is written after all of it.
HEAD = "1d"
_SETTLING_SECONDS = 3600.0
_PIECE_SECONDS = 12 * 3600.0 - 60

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Firing:
    """
    An alert from the moment it fires until it resolves.

    Args:
        labels: of the alert, its name excluded.
        start, end: seconds since the epoch; `None` if it still fires at the end.
    """

    alert: str
    labels: Labels
    start: float
    end: float | None = None

    @property
    def severity(self) -> str:
        """Return ``page``, ``ticket`` or ``info``."""
        return dict(self.labels).get("severity", "")


def settled(found: Iterable[Firing], start: float) -> list[Firing]:
    """
    Return what still fired an hour after the *start* of a replay, or later.

    A new Prometheus sees the counters of running processes for the first time. Rules
    that count what happened before the first sample take all that for news.
    """
    after = start + _SETTLING_SECONDS
    return [one for one in found if one.end is None or one.end > after]


class Alert:
    """The state of an alerting rule, which is pending before it fires."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._since: dict[Labels, float] = {}
        self._last: dict[Labels, float] = {}
        self._firing: dict[Labels, Firing] = {}

    def step(self, now: float, active: Iterable[Labels]) -> list[Firing]:
        """Take what the expression yields *now*; return what resolved."""
        holds = set(active)
        for labels in holds:
            since = self._since.setdefault(labels, now)
            self._last[labels] = now
            if now - since >= self._rule.pending and labels not in self._firing:
                self._firing[labels] = Firing(self._rule.name, labels, now)
        resolved = []
        for labels in [one for one in self._since if one not in holds]:
            kept = labels in self._firing and now - self._last[labels] < self._rule.keep
            if kept:
                continue
            del self._since[labels]
            if labels in self._firing:
                resolved.append(replace(self._firing.pop(labels), end=now))
        return resolved

    @property
    def firing(self) -> list[Firing]:
        """Return what fires."""
        return list(self._firing.values())


def select(groups: Sequence[Group], pattern: str) -> list[Group]:
    """Return the alerts whose name matches *pattern*, and all that they read."""
    rules = [rule for group in groups for rule in group.rules]
    kept = {r.name for r in rules if r.alert and re.fullmatch(pattern, r.name)}
    before = 0
    while before != len(kept):
        before = len(kept)
        words = {word for rule in rules if rule.name in kept for word in rule.words}
        kept |= {rule.name for rule in rules if not rule.alert and rule.name in words}
    return [
        replace(group, rules=tuple(rule for rule in group.rules if rule.name in kept))
        for group in groups
    ]


def replay(  # noqa: PLR0913, PLR0917 - a simulation has that many parts
    server: Server,
    fleet: Fleet,
    groups: Sequence[Group],
    span: tuple[float, float],
    names: set[str],
    progress: Callable[[float], object] = lambda _: None,
) -> list[Firing]:
    """
    Return what fires in *span*, by start.

    A rule that reads ``ALERTS`` sees them half a day late: what was found for one
    piece of time is there for the next.

    Args:
        server: empty, with `HEAD`.
        fleet: what exists, and what goes wrong.
        groups: of rules.
        span: seconds since the epoch.
        names: of the series to write.
        progress: called with each moment reached.
    """
    first, last = (SCRAPE_SECONDS * (moment // SCRAPE_SECONDS) for moment in span)
    rules = ordered(groups)
    alerts = {index: Alert(rule) for index, (_, rule) in enumerate(rules) if rule.alert}
    present: dict[int, set[Labels]] = {index: set() for index in range(len(rules))}
    found: list[Firing] = []
    scrapes = moments(last, last - first, SCRAPE_SECONDS)
    for times in pieces(scrapes, _PIECE_SECONDS):
        with Writer(server.url) as writer:
            fleet.write(writer, times, names, _SPARSE)
        for index, (group, rule) in enumerate(rules):
            step = max(group.interval, SCRAPE_SECONDS)
            grid = np.arange(-(-times[0] // step), times[-1] // step + 1) * step
            if not len(grid):
                continue
            matrix = server.range(rule.expression, grid[0], grid[-1], step)
            series, name = _labelled(matrix, rule), rule.name
            if rule.alert:
                resolved, series = _fires(alerts[index], series, grid)
                found += resolved
                name = "ALERTS"
            with Writer(server.url) as writer:
                present[index] = _write(writer, name, series, grid, present[index])
        progress(times[-1])
    found += [one for alert in alerts.values() for one in alert.firing]
    return sorted(found, key=lambda one: (one.start, one.alert))


Series = dict[Labels, dict[float, float]]


def _labelled(matrix: Matrix, rule: Rule) -> Series:
    more = dict(rule.labels)
    found: Series = {}
    for labels, samples in matrix:
        own = {n: v for n, v in {**labels, **more}.items() if n != "__name__" and v}
        found.setdefault(frozenset(own.items()), {}).update(samples)
    return found


def _fires(alert: Alert, series: Series, times: Floats) -> tuple[list[Firing], Series]:
    """Return what resolved, and the series ``ALERTS`` of what fired."""
    resolved: list[Firing] = []
    states: Series = {}
    by_time: dict[float, list[Labels]] = {}
    for labels, samples in series.items():
        for at in samples:
            by_time.setdefault(at, []).append(labels)
    for at in times:
        resolved += alert.step(at, by_time.get(at, ()))
        for one in alert.firing:
            own = {("alertname", one.alert), ("alertstate", "firing")}
            states.setdefault(one.labels | own, {})[at] = 1.0
    return resolved, states


def _write(
    writer: Writer, name: str, series: Series, times: Floats, before: set[Labels]
) -> set[Labels]:
    """Write *series* and where they end; return which exist at the end of *times*."""
    laid = remote.samples(times)
    last = set()
    for labels in series.keys() | before:
        samples = series.get(labels, {})
        values = np.array([samples.get(at, np.nan) for at in times])
        there = np.array([at in samples for at in times])
        earlier = np.concatenate([[labels in before], there[:-1]])
        ended = earlier & ~there
        values[ended] = remote.STALE
        encoded = remote.series((("__name__", name), *labels))
        writer.add(encoded, laid, values, there | ended)
        if there[-1]:
            last.add(labels)
    return last


def span_text(seconds: float) -> str:
    """Return a length of time such as ``1d 2h 3m``."""
    minutes = round(seconds / 60)
    sign, minutes = ("-" if minutes < 0 else ""), abs(minutes)
    days, minutes = divmod(minutes, 1440)
    hours, minutes = divmod(minutes, 60)
    parts = [
        f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n
    ]
    return sign + (" ".join(parts) or "0m")
