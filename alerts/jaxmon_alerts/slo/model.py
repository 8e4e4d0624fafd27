"""An objective and the queries that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Self

from jaxmon import promql
from jaxmon.host.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, Matcher
from jaxmon.promql.counting import Evaluation
from jaxmon.symptoms.alert import ExpectedRun
from jaxmon_alerts.slo.burn import POLICY, Condition, Pair, pairs, windows
from jaxmon_alerts.slo.indicators import Indicator, LatencyIndicator
from jaxmon_alerts.slo.site import LocalLimits, Override, Site


EVENTS, ERRORS = "slo:events:delta", "slo:errors:delta"
"""Recorded number of events, and of bad ones, since the previous evaluation."""

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

    Events of an *indicator* are counted for each combination of the labels *by*,
    ``job`` first; *objective* is the fraction that must be good over the *window*, a
    period. A fast burn pages if *page*. With *deploy_noise*, deployments burn the
    budget, and tickets are then inhibited. Below *minimum_events* in the long window no
    burn rate alerts, below *minimum_errors* nothing. *service* is Sloth's label, which
    distinguishes the files of several teams.
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
    policy: tuple[Condition, ...] = POLICY

    @property
    def budget(self) -> float:
        """The fraction of events that may be bad; 0.001 for an objective of 0.999."""
        return float(1 - Decimal(str(self.objective)))

    @property
    def alert(self) -> str:
        """The name of its burn-rate alert, which is that of its runbook."""
        words = "".join(word.capitalize() for word in self.name.split("-"))
        return f"Jaxmon{words}BudgetBurn"

    @property
    def threshold_seconds(self) -> float | None:
        """Maximum latency of an event, `None` for objectives not about latency."""
        if isinstance(self.indicator, LatencyIndicator):
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

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of windows that its alerts compare."""
        found = pairs(self.window, self.policy)
        if self.page and not self.indicator.timed:
            return found
        # What never pages needs no urgency, and what is time has no little traffic.
        return tuple(pair for pair in found if pair.factor is not None)

    @property
    def windows(self) -> tuple[str, ...]:
        """Every window that its rules record, the shortest first, the period last."""
        return windows(self.window, self.policy)

    def events(self, when: Evaluation) -> Expr:
        """Return the number of events since the previous evaluation."""
        return self.indicator.events(self.by, when)

    def errors(self, when: Evaluation) -> Expr:
        """Return the number of bad events of those recorded last, 0 if none."""
        return self.indicator.errors(self.by, when, self.recorded(EVENTS).sum(*self.by))

    def counts(self, name: str, window: str) -> Expr:
        """Return what `EVENTS` or `ERRORS` add up to over the actual *window*."""
        series = self.recorded(name)
        # Across the shards of a sharded Prometheus, too.
        return promql.recorded_over("sum", series, durations.seconds(window)).sum(
            *self.by
        )

    def recorded(self, name: str, *matchers: Matcher) -> Expr:
        """Return the series that the rule *name* records for this objective."""
        of_slo = (promql.eq(label, value) for label, value in self.labels.items())
        labels = (*self.by, *self.labels, "sloth_window")
        return promql.recorded(name, *of_slo, *matchers, labels=labels)

    def recording(self, window: str, *matchers: Matcher) -> Expr:
        """Return the recorded error ratio over *window*, one of the rules' windows."""
        return self.recorded(f"{RATIO}{window}", *matchers)

    def increase(self, name: str, window: str, *matchers: Matcher) -> Expr:
        """Return the recorded sum of `EVENTS` or `ERRORS` over a nominal *window*."""
        return self.recorded(increase(name, window), *matchers)

    def scaled(self, scale: float) -> Self:
        """Return it with the durations of its indicator divided by *scale*."""
        return replace(self, indicator=self.indicator.scaled(scale))


def increase(name: str, window: str) -> str:
    """Return the name of the sum of `EVENTS` or `ERRORS` over a nominal *window*."""
    return f"{name.removesuffix('delta')}increase{window}"


@dataclass(frozen=True, slots=True)
class Slos:
    """Contents of ``slo.yaml``."""

    slos: tuple[Slo, ...]
    limits: Limits = field(default_factory=Limits)
    site: Site = field(default_factory=Site)
    local: tuple[LocalLimits, ...] = ()
    overrides: tuple[Override, ...] = ()
    runs: tuple[ExpectedRun, ...] = ()

    def __iter__(self) -> Iterator[Slo]:
        return iter(self.slos)

    def __getitem__(self, name: str) -> Slo:
        for slo in self.slos:
            if slo.name == name:
                return slo
        raise KeyError(name)
