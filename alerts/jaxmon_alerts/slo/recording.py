"""
Recording rules of the objectives, under the names that Sloth uses.

A first group counts events and bad events between its evaluations, exactly, and is the
only one that reads what processes export. Everything else adds up these counts: bad,
total and ratio of each window, and the budget over the period, in which a busy hour
weighs more than a quiet one. Alerts and dashboards read only what is recorded.

With *scale*, windows and intervals shrink, names and labels do not: dashboards and
alerts work unchanged in a demonstration that shows a month in half a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from jaxmon import catalog, promql
from jaxmon.host.formats import durations
from jaxmon.promql import Expr
from jaxmon.promql.events import Evaluation, conditions
from jaxmon.promql.expressions import Identity
from jaxmon_alerts.slo.model import (
    BUDGET,
    BUDGET_REMAINING,
    CURRENT_BURN_RATE,
    ERRORS,
    EVENTS,
    OBJECTIVE,
    PERIOD_BURN_RATE,
    PERIOD_DAYS,
    RATIO,
    WINDOW,
    Slo,
    increase,
)


Rule = dict[str, Any]

_INFO = "sloth_slo_info"
_HOUR, _DAY = 3600, 86400

# What never pages may take a while: per-function counts are the most expensive.
_FAST, _SLOW = "30s", "2m"
# Often enough for a month. Prometheus takes a series for stale after five minutes.
_PERIOD = "4m"


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules that Prometheus evaluates one after the other."""

    name: str
    interval: str
    rules: tuple[Rule, ...]

    def identified(self, identity: Identity) -> Self:
        """Return it with rules that keep the labels of *identity*."""
        rules = ({**rule, "expr": rule["expr"].at(identity)} for rule in self.rules)
        return replace(self, rules=tuple(rules))

    def document(self) -> dict[str, Any]:
        """Return the group in rule-file form."""
        return {
            "name": self.name,
            "interval": self.interval,
            "rules": [{**rule, "expr": str(rule["expr"])} for rule in self.rules],
        }


def recording_groups(
    slos: Iterable[Slo], *, when: Evaluation | None = None, scale: float = 1
) -> Iterator[RuleGroup]:
    """Yield the rules of each objective: short windows, long ones, the period."""
    for slo in slos:
        # Scaled apart, delay and interval add up to whole seconds.
        fast = _FAST if slo.page else _SLOW
        evaluation = replace(
            when or Evaluation(), interval=fast, group=slo.labels["sloth_id"]
        ).scaled(scale)
        slow, period = (
            durations.scaled(interval, scale) for interval in (_SLOW, _PERIOD)
        )
        windows = slo.windows[:-1]
        short = [window for window in windows if durations.seconds(window) <= _HOUR]
        name = f"jaxmon-slo-{slo.name}"
        counts = (*_counts(slo.scaled(scale), evaluation), *_windows(slo, short, scale))
        yield RuleGroup(f"{name}-short", evaluation.interval, (*counts, _current(slo)))
        long = windows[len(short) :]
        yield RuleGroup(f"{name}-long", slow, tuple(_windows(slo, long, scale)))
        yield RuleGroup(f"{name}-period", period, tuple(_period(slo, scale)))


def _counts(slo: Slo, when: Evaluation) -> Iterator[Rule]:
    if not slo.indicator.timed:
        ours = {
            metric.name for metric in slo.indicator.metrics
        } <= catalog.BY_NAME.keys()
        for name, expr in conditions(when, ours=ours):
            yield _rule(slo, name, expr)
    yield _rule(slo, EVENTS, slo.events(when))
    yield _rule(slo, ERRORS, slo.errors(when))


def _windows(slo: Slo, windows: Iterable[str], scale: float) -> Iterator[Rule]:
    for window in windows:
        actual = durations.scaled(window, scale)
        for name in (EVENTS, ERRORS):
            yield _rule(slo, increase(name, window), slo.counts(name, actual))
        errors, events = (
            slo.increase(name, window).sum(*slo.by) for name in (ERRORS, EVENTS)
        )
        ratio = promql.ratio(errors, events)
        yield _rule(slo, f"{RATIO}{window}", ratio, sloth_window=window)


def _current(slo: Slo) -> Rule:
    burning = slo.recording(WINDOW).max(*slo.by) / slo.budget
    return _rule(slo, CURRENT_BURN_RATE, burning)


def _period(slo: Slo, scale: float) -> Iterator[Rule]:
    actual = durations.scaled(slo.window, scale)
    ratio = promql.ratio(slo.counts(ERRORS, actual), slo.counts(EVENTS, actual))
    burnt = slo.recording(slo.window).max(*slo.by) / slo.budget
    days = durations.seconds(slo.window) / _DAY
    yield _rule(slo, f"{RATIO}{slo.window}", ratio, sloth_window=slo.window)
    yield _rule(slo, PERIOD_BURN_RATE, burnt)
    yield _rule(
        slo, BUDGET_REMAINING, promql.number(1) - slo.recorded(PERIOD_BURN_RATE)
    )
    yield _rule(slo, OBJECTIVE, _constant(slo.objective))
    yield _rule(slo, BUDGET, _constant(slo.budget))
    yield _rule(slo, PERIOD_DAYS, _constant(days))
    yield _rule(
        slo,
        _INFO,
        _constant(1),
        sloth_mode="jaxmon",
        sloth_objective=f"{slo.objective * 100:.6g}",
        owner=slo.owner,
        title=slo.title,
    )


def _rule(slo: Slo, name: str, expr: Expr, **labels: str) -> Rule:
    return {"record": name, "expr": expr, "labels": {**slo.labels, **labels}}


def _constant(value: float) -> Expr:
    return promql.call("vector", promql.number(value))
