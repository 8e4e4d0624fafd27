"""An objective and the queries that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Self

from jaxmon.artifacts import promql
from jaxmon.artifacts.promql import Expr, Matcher
from jaxmon.artifacts.slo.indicators import Indicator, Latency
from jaxmon.artifacts.slo.thresholds import Thresholds


RATIO = "slo:sli_error:ratio_rate"
"""Recorded error ratio, followed by its nominal window (``5m``, ``30d``)."""

CURRENT_BURN_RATE = "slo:current_burn_rate:ratio"
PERIOD_BURN_RATE = "slo:period_burn_rate:ratio"
BUDGET_REMAINING = "slo:period_error_budget_remaining:ratio"
OBJECTIVE = "slo:objective:ratio"
BUDGET = "slo:error_budget:ratio"
PERIOD_DAYS = "slo:time_period:days"


@dataclass(frozen=True, slots=True)
class Slo:
    """
    One objective.

    Args:
        name: identifier in kebab case; the name of its alert derives from it.
        title: a few words for a panel or a table.
        description: the objective, as a sentence.
        owner: who is responsible.
        objective: fraction of events that must be good, between 0 and 1.
        window: period over which the objective holds, such as ``30d``.
        service: Sloth's service label; distinguishes the files of several teams.
        by: labels whose combinations each have their own budget, ``job`` first.
        indicator: what is counted.
        page: whether a fast burn pages.
        deploy_noise: whether deployments burn the budget; tickets are then inhibited.
        minimum_events: events in the long window below which no alert fires.
        minimum_errors: errors in the long window below which no alert fires.
    """

    name: str
    title: str
    description: str
    owner: str
    objective: float
    window: str
    service: str
    by: tuple[str, ...]
    indicator: Indicator
    page: bool = True
    deploy_noise: bool = False
    minimum_events: float = 1
    minimum_errors: float = 1

    @property
    def budget(self) -> float:
        """
        The fraction of events that may be errors; 0.001 for an objective of 0.999.
        """
        return float(1 - Decimal(str(self.objective)))

    @property
    def alert(self) -> str:
        """The name of its burn-rate alert, which is that of its runbook."""
        words = "".join(word.capitalize() for word in self.name.split("-"))
        return f"Jaxmon{words}BudgetBurn"

    @property
    def threshold_seconds(self) -> float | None:
        """Maximum latency of an event, `None` for objectives not about latency."""
        if isinstance(self.indicator, Latency):
            return self.indicator.threshold
        return None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its recorded series; Sloth's names."""
        return {
            "sloth_id": f"{self.service}-{self.name}",
            "sloth_service": self.service,
            "sloth_slo": self.name,
        }

    def events(self, window: str, *matchers: Matcher) -> Expr:
        """Return the number of events within *window*."""
        return self.indicator.events(window, self.by, *matchers)

    def errors(self, window: str, *matchers: Matcher) -> Expr:
        """Return the number of bad events, 0 if none."""
        return self.indicator.errors(window, self.by, *matchers)

    def error_ratio(self, window: str, *matchers: Matcher) -> Expr:
        """Return errors / events within *window*; nothing if there were no events."""
        return promql.ratio(
            self.errors(window, *matchers), self.events(window, *matchers)
        )

    def recorded(self, name: str, *matchers: Matcher) -> Expr:
        """
        Return the series that the recording rule *name* records for this objective.
        """
        own = (promql.eq(label, value) for label, value in self.labels.items())
        labels = (*self.by, *self.labels, "sloth_window")
        return promql.recorded(name, *own, *matchers, labels=labels)

    def recording(self, window: str, *matchers: Matcher) -> Expr:
        """Return the recorded error ratio over *window*, one of the rules' windows."""
        return self.recorded(f"{RATIO}{window}", *matchers)

    def scaled(self, scale: float) -> Self:
        """Return it with the durations of its indicator divided by *scale*."""
        return replace(self, indicator=self.indicator.scaled(scale))


@dataclass(frozen=True, slots=True)
class Slos:
    """Contents of ``slo.yaml``."""

    slos: tuple[Slo, ...]
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __iter__(self) -> Iterator[Slo]:
        return iter(self.slos)

    def __getitem__(self, name: str) -> Slo:
        for slo in self.slos:
            if slo.name == name:
                return slo
        raise KeyError(name)
