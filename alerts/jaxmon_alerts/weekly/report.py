"""The report on objectives as data: what Prometheus knows about the last days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from jaxmon.host.formats import durations
from jaxmon.promql import Expr
from jaxmon_alerts.prometheus import Prometheus, PrometheusSeries, QueryError
from jaxmon_alerts.weekly import queries
from jaxmon_alerts.weekly.queries import Fired, service


DAY = 86400.0
_HOUR = 3600.0
# Prometheus returns at most 11,000 points of a series.
_MOST_STEPS = 10_000
_MINUTE = 60.0


class Day(NamedTuple):
    """A calendar day, or the part of it that is reported, in Unix time."""

    start: float
    end: float

    @property
    def is_partial(self) -> bool:
        """Whether it begins or ends with the report."""
        return self.end - self.start < DAY


def calendar(start: float, end: float, zone: tzinfo) -> list[Day]:
    """Return the days from *start* to *end*; *zone* has one offset."""
    midnight = datetime.fromtimestamp(start, zone).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    cuts, cut = [start], midnight.timestamp() + DAY
    while cut < end:
        cuts.append(cut)
        cut += DAY
    return [Day(*bounds) for bounds in zip(cuts, [*cuts[1:], end], strict=True)]


@dataclass(frozen=True, slots=True)
class Objective:
    """How one objective fared in one service, in the window and by day."""

    name: str
    title: str
    service: str
    objective: float | None
    events: float
    errors: float
    remaining: float | None
    days: Mapping[Day, float]

    @property
    def attainment(self) -> float | None:
        """The fraction of good events; `None` without events."""
        return 1 - self.errors / self.events if self.events > 0 else None

    @property
    def burn(self) -> float | None:
        """The error ratio as a multiple of what the objective allows."""
        if self.objective is None or self.events <= 0 or self.objective >= 1:
            return None
        return self.errors / self.events / (1 - self.objective)

    @property
    def is_met(self) -> bool | None:
        """Return whether it was met; `None` if that is unknown."""
        if self.attainment is None or self.objective is None:
            return None
        # As exact as the ratio of two sums of floating-point numbers can be.
        return self.attainment >= self.objective - 1e-12

    @property
    def worst_day(self) -> tuple[Day, float] | None:
        """The first day with the highest error ratio, and that ratio."""
        if not self.days:
            return None
        return max(self.days.items(), key=lambda item: (item[1], -item[0].start))


@dataclass(frozen=True, slots=True)
class Ranked:
    """One line of a ranking: its labels without the service's, and a value."""

    service: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """What accelerators of a service cost; `None` if Prometheus does not know."""

    service: str
    accelerator_hours: float
    busy: float | None
    kilowatt_hours: float | None
    dollars: float | None

    @property
    def mean_watts(self) -> float | None:
        """Mean power of one accelerator."""
        if self.kilowatt_hours is None or not self.accelerator_hours:
            return None
        return self.kilowatt_hours * 1000 / self.accelerator_hours


@dataclass
class SloReport:
    """What is known of the days up to *end*, in Unix time, and what is *missing*."""

    end: float
    days: int
    zone: tzinfo = UTC
    objectives: list[Objective] = field(default_factory=list)
    fired: list[Fired] = field(default_factory=list)
    rankings: dict[str, list[Ranked]] = field(default_factory=dict)
    costs: list[ServiceCost] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def start(self) -> float:
        """Unix time from which it reports."""
        return self.end - self.days * DAY


RANKINGS: Mapping[str, tuple[str, Callable[[str], Expr]]] = {
    "lost": ("Wall time lost, in hours", queries.lost_seconds),
    "compiles": ("Longest compiles, in seconds", queries.compile_seconds),
    "recompiles": ("Most recompiles", queries.recompiles),
    "slower": ("Slower than a week before, times as long", queries.slower),
    "idle": ("Accelerators held and idle, in hours", queries.idle),
    "oom": ("Out of device memory", queries.out_of_memory),
    "oom_kills": ("Killed for host memory", queries.oom_kills),
}
"""Title and query by key."""

_UNITS = {"lost": _HOUR, "idle": _HOUR / queries.RESOLUTION}


class ReportCollector:
    """
    Collects a report; a query that fails leaves its part out, and says why. Reported
    are all objectives, or those with *titles*; *price* is in dollars per accelerator
    hour.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        *,
        end: datetime,
        days: int,
        titles: Mapping[str, str],
        price: float | None,
    ) -> None:
        self._prometheus = prometheus
        self._window = f"{days}d"
        self._titles = titles
        self._price = price
        # Windows of sums have whole seconds.
        self._report = SloReport(float(int(end.timestamp())), days, end.tzinfo or UTC)

    def collect(self) -> SloReport:
        """Return the report; `MonitoringError` if it is no Prometheus."""
        self._add_objectives()
        self._add_alerts()
        for key, (title, query) in RANKINGS.items():
            unit = _UNITS.get(key, 1.0)
            found = []
            for series in self._instant(title, query(self._window)):
                labels = {
                    name: value
                    for name, value in sorted(series.labels.items())
                    if name not in queries.SERVICE
                }
                where = service(series.labels)
                found.append(Ranked(where, labels, series.value / unit))
            found.sort(key=lambda ranked: (-ranked.value, ranked.service))
            self._report.rankings[key] = found
        self._add_costs()
        return self._report

    def _add_objectives(self) -> None:
        report, what = self._report, "Objectives"
        events = self._by_objective(what, queries.events(self._window))
        errors = self._by_objective(what, queries.errors(self._window))
        remaining = self._by_objective(what, queries.budget_remaining())
        goals = {
            series.labels.get("sloth_slo", ""): series.value
            for series in self._instant(what, queries.objective())
        }
        days = self._days(what)
        names = list(self._titles) or sorted({name for name, _ in events})
        for name in names:
            services = sorted(where for objective, where in events if objective == name)
            for where in services or [""]:
                key = (name, where)
                report.objectives.append(
                    Objective(
                        name=name,
                        title=self._titles.get(name, name),
                        service=where,
                        objective=goals.get(name),
                        events=events.get(key, 0.0),
                        errors=errors.get(key, 0.0),
                        remaining=remaining.get(key),
                        days=days.get(key, {}),
                    )
                )
        if not events and what not in report.missing:
            report.missing[what] = (
                "Prometheus has none of their recorded series; load the rules of "
                "`jaxmon alerts build` of this release"
            )

    def _days(self, what: str) -> dict[tuple[str, str], dict[Day, float]]:
        bad = self._daily(what, queries.errors)
        every = self._daily(what, queries.events)
        return {
            key: {
                day: bad.get(key, {}).get(day, 0.0) / count
                for day, count in counts.items()
                if count > 0
            }
            for key, counts in every.items()
        }

    def _add_alerts(self) -> None:
        report, what = self._report, "Alerts"
        step = max(_MINUTE, report.days * DAY / _MOST_STEPS)
        try:
            sampled = self._prometheus.between(
                str(queries.firing()), report.start, report.end, step=step
            )
        except QueryError as error:
            report.missing[what] = str(error)
            return
        at_all = self._instant(what, queries.fired_within(self._window))
        report.fired = queries.fired(sampled, at_all, step=step)

    def _add_costs(self) -> None:

        def read(query: Expr) -> dict[str, float]:
            return {
                service(series.labels): series.value
                for series in self._instant("Cost", query)
            }

        # Of each sample, the hours that it stands for.
        share = queries.RESOLUTION / _HOUR
        held, busy = read(queries.held(self._window)), read(queries.busy(self._window))
        watts = read(queries.watts(self._window))
        dollars: Mapping[str, float] = {}
        if self._price is None and held:
            dollars = read(queries.dollars_per_hour(self._window))
        for where, samples in held.items():
            hours = samples * share
            cost = dollars[where] * share if where in dollars else None
            if self._price is not None:
                cost = hours * self._price
            energy = watts[where] * share / 1000 if where in watts else None
            self._report.costs.append(
                ServiceCost(where, hours, busy.get(where), energy, cost)
            )
        self._report.costs.sort(key=lambda of: (-of.accelerator_hours, of.service))

    def _by_objective(self, what: str, query: Expr) -> dict[tuple[str, str], float]:
        return {
            _objective(series): series.value for series in self._instant(what, query)
        }

    def _instant(self, what: str, query: Expr) -> list[PrometheusSeries]:
        try:
            return self._prometheus.instant(str(query), self._report.end)
        except QueryError as error:
            self._report.missing[what] = str(error)
            return []

    def _daily(
        self, what: str, query: Callable[[str], Expr]
    ) -> dict[tuple[str, str], dict[Day, float]]:
        report = self._report
        days = calendar(report.start, report.end, report.zone)
        found: dict[tuple[str, str], dict[Day, float]] = {}
        whole = {day.end: day for day in days if not day.is_partial}
        try:
            if whole:
                for series in self._prometheus.between(
                    str(query("1d")), min(whole), max(whole), step=DAY
                ):
                    found[_objective(series)] = {
                        whole[at]: n for at, n in series.points
                    }
            for day in days:
                if day.is_partial:
                    text = str(query(durations.text(day.end - day.start)))
                    for series in self._prometheus.instant(text, day.end):
                        found.setdefault(_objective(series), {})[day] = series.value
        except QueryError as error:
            report.missing[what] = str(error)
        return found


def _objective(series: PrometheusSeries) -> tuple[str, str]:
    return series.labels.get("sloth_slo", ""), service(series.labels)
