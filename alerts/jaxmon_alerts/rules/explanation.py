"""What an alert compares, in words, with the limits of a site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxmon.catalog import BY_NAME
from jaxmon.limits import LIMITS
from jaxmon.promql import Expr
from jaxmon.symptoms.alert import Alert, SiteLimits
from jaxmon.symptoms.findings import SYMPTOMS
from jaxmon_alerts.rules.build import RuleOptions, all_alerts, all_groups
from jaxmon_alerts.slo import Slos


class ReadLimits(dict[str, Any]):
    """Changed limits, which remember what was asked for."""

    def __init__(self, changed: Mapping[str, Any]) -> None:
        super().__init__(changed)
        self.names: dict[str, None] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """Return the changed limit, or *default*."""
        self.names[name] = None
        return super().get(name, default)


class ExplainedSeries(NamedTuple):
    """A series that an alert reads, or what it reads is made of, and what it is."""

    name: str
    sentence: str
    expr: Expr | None = None


class ExplainedAlert(NamedTuple):
    """An alert, its expression at the site, and series, those that it reads first."""

    alert: Alert
    expr: Expr
    series: tuple[ExplainedSeries, ...]


class ExplainedLimit(NamedTuple):
    """A limit that an alert depends on, with its value at the site."""

    name: str
    value: Any
    meaning: str


def explain(name: str, slos: Slos) -> list[ExplainedAlert]:
    """Return the alerts of a *name*, the most urgent first; none has an unknown one."""
    rules = [rule for group in all_groups(slos, RuleOptions()) for rule in group.rules]
    identity = slos.site.identity

    def read(expr: Expr) -> Iterator[ExplainedSeries]:
        for metric in sorted(expr.shape.metrics):
            if metric in BY_NAME:
                yield ExplainedSeries(metric, BY_NAME[metric].help)
            # Objectives record theirs under the same names.
            for rule in rules:
                labels = rule.get("labels", {}).get("sloth_id", "")
                if rule.get("record") == metric and labels in str(expr):
                    yield ExplainedSeries(metric, rule["sentence"], rule["expr"])
                    break

    def series(expr: Expr) -> Iterator[ExplainedSeries]:
        direct = tuple(read(expr))
        yield from direct
        yield from (part for of in direct if of.expr for part in read(of.expr))

    return [
        ExplainedAlert(
            *(alert, alert.expr.at(identity)),
            tuple({part.name: part for part in series(alert.expr)}.values()),
        )
        for alert in all_alerts(slos)
        if alert.name == name
    ]


def limits_of(name: str, slos: Slos) -> list[ExplainedLimit]:
    """Return the limits that the alerts of a *name* depend on; objectives have none."""
    limits = SiteLimits.of(slos.limits, 1, slos.runs, slos.site.severity("page"))
    limits.changed = reads = ReadLimits(limits.changed)
    for symptom in SYMPTOMS.values():
        if symptom.alert == name:
            symptom.alerts(limits)
    return [
        ExplainedLimit(limit, getattr(limits, limit), LIMITS[limit].meaning)
        for limit in tuple(reads.names)
    ]
