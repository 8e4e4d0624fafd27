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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from jaxmon import catalog, promql
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, RecordedSeries
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


def recording(record: RecordedSeries, **labels: str) -> Rule:
    """Return the rule that records it, with *labels*."""
    rule = {"record": record.name, "expr": record.expr, "sentence": record.sentence}
    return {**rule, "labels": labels} if labels else rule


_INFO = "sloth_slo_info"
_WHAT = {EVENTS: "Events within", ERRORS: "Bad events within"}
_SENTENCES = {
    EVENTS: "Events since the last evaluation.",
    ERRORS: "Bad events since the last evaluation.",
    CURRENT_BURN_RATE: f"Error ratio within {WINDOW}, divided by what it may be.",
    PERIOD_BURN_RATE: "Error ratio within the period, divided by what it may be.",
    BUDGET_REMAINING: "Fraction of the error budget of the period that is left.",
    OBJECTIVE: "Fraction of events that must be good.",
    BUDGET: "Fraction of events that may be bad.",
    PERIOD_DAYS: "Length of the period.",
    _INFO: "The objective, and who owns it.",
}
_HOUR, _DAY = 3600, 86400

# What never pages may take a while: per-function counts are the most expensive.
_FAST, _SLOW = "30s", "2m"
# Often enough for a month. Prometheus takes a series for stale after five minutes.
_PERIOD = "4m"


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules that Prometheus evaluates one after the other, with typed expressions."""

    name: str
    interval: str
    rules: tuple[Rule, ...]

    def recording(self, homes: Mapping[str, str]) -> Self:
        """Return it with rules for what is recorded here, by the *homes* of names."""
        rules: list[Rule] = []
        left = [name for name in self.records if homes[name] == self.name]
        for rule in self.rules:
            needed = promql.records([rule["expr"]])
            for name in [name for name in left if name in needed]:
                left.remove(name)
                rules.append(recording(needed[name]))
            rules.append(rule)
        return replace(self, rules=tuple(rules))

    def identified(self, identity: Identity) -> Self:
        """Return it with rules that keep the labels of *identity*."""
        rules = ({**rule, "expr": rule["expr"].at(identity)} for rule in self.rules)
        return replace(self, rules=tuple(rules))

    @property
    def alerting(self) -> bool:
        """Whether it has alerts."""
        return any("alert" in rule for rule in self.rules)

    @property
    def records(self) -> dict[str, RecordedSeries]:
        """What must be recorded for its rules."""
        return promql.records(rule["expr"] for rule in self.rules)

    def document(self) -> dict[str, Any]:
        """Return the group in rule-file form."""
        return {
            "name": self.name,
            "interval": self.interval,
            "rules": [
                {
                    key: str(value) if key == "expr" else value
                    for key, value in rule.items()
                    if key != "sentence"
                }
                for rule in self.rules
            ],
        }


def complete(groups: Sequence[RuleGroup]) -> list[RuleGroup]:
    """
    Return the groups with rules that record what their rules read. Each stands before
    the first rule that reads it, so that both see the same moment, in the group that is
    evaluated most often. Raises `ValueError`: a name has two meanings.
    """
    promql.records(rule["expr"] for group in groups for rule in group.rules)
    often = sorted(groups, key=lambda group: durations.seconds(group.interval))
    homes: dict[str, str] = {}
    for group in often:
        for name in group.records:
            homes.setdefault(name, group.name)
    return [group.recording(homes) for group in groups]


def recording_groups(
    slos: Iterable[Slo], *, when: Evaluation | None = None, scale: float = 1
) -> Iterator[RuleGroup]:
    """Yield the rules of each objective: short windows, long ones, the period."""
    for slo in slos:
        # Scaled apart, delay and interval add up to whole seconds.
        fast = _FAST if slo.page else _SLOW
        evaluation = replace(
            when or Evaluation(), interval=fast, group=slo.series
        ).scaled(scale)
        slow = durations.scaled(_SLOW, scale)
        period = durations.scaled(_PERIOD, scale)
        windows = slo.windows[:-1]
        short = [window for window in windows if durations.seconds(window) <= _HOUR]
        name = f"jaxmon-slo-{slo.name}"
        counts = (*_counts(slo.scaled(scale), evaluation), *_windows(slo, short, scale))
        burning = slo.recording(WINDOW).max(*slo.by) / slo.budget
        current = _rule(slo, CURRENT_BURN_RATE, burning)
        yield RuleGroup(f"{name}-short", evaluation.interval, (*counts, current))
        long = windows[len(short) :]
        yield RuleGroup(f"{name}-long", slow, tuple(_windows(slo, long, scale)))
        yield RuleGroup(f"{name}-period", period, tuple(_period(slo, scale)))


def _counts(slo: Slo, when: Evaluation) -> Iterator[Rule]:
    if not slo.indicator.timed:
        ours = {
            metric.name for metric in slo.indicator.metrics
        } <= catalog.BY_NAME.keys()
        for found in conditions(when, ours=ours):
            yield recording(found)
    yield _rule(slo, EVENTS, slo.events(when))
    yield _rule(slo, ERRORS, slo.errors(when))


def _windows(slo: Slo, windows: Iterable[str], scale: float) -> Iterator[Rule]:
    for window in windows:
        actual = durations.scaled(window, scale)
        for name in (EVENTS, ERRORS):
            counts = slo.counts(name, actual)
            yield _rule(slo, increase(name, window), counts, f"{_WHAT[name]} {window}.")
        errors = slo.increase(ERRORS, window).sum(*slo.by)
        events = slo.increase(EVENTS, window).sum(*slo.by)
        yield _ratio(slo, window, promql.ratio(errors, events))


def _ratio(slo: Slo, window: str, ratio: Expr) -> Rule:
    sentence = f"Fraction of events within {window} that were bad."
    return _rule(slo, f"{RATIO}{window}", ratio, sentence, sloth_window=window)


def _period(slo: Slo, scale: float) -> Iterator[Rule]:
    actual = durations.scaled(slo.window, scale)
    ratio = promql.ratio(slo.counts(ERRORS, actual), slo.counts(EVENTS, actual))
    burnt = slo.recording(slo.window).max(*slo.by) / slo.budget
    days = durations.seconds(slo.window) / _DAY
    yield _ratio(slo, slo.window, ratio)
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


def _rule(slo: Slo, name: str, expr: Expr, sentence: str = "", **labels: str) -> Rule:
    record = RecordedSeries(name, expr, sentence or _SENTENCES[name])
    return recording(record, **slo.labels, **labels)


def _constant(value: float) -> Expr:
    return promql.call("vector", promql.number(value))
