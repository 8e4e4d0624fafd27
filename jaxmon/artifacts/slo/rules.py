"""
Recording rules of the objectives, under the names that Sloth uses.

Error ratios are computed from raw counters, window by window. Only the period's is
added up from the recordings of the shortest window, errors and events separately, so
that a busy hour weighs more than a quiet one.

With *scale*, windows and intervals shrink, names and labels do not: dashboards and
alerts work unchanged in a demonstration that shows a month in half a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from jaxmon.artifacts import promql
from jaxmon.artifacts.promql import Expr
from jaxmon.artifacts.slo import burn, durations
from jaxmon.artifacts.slo.model import (
    BUDGET,
    BUDGET_REMAINING,
    CURRENT_BURN_RATE,
    OBJECTIVE,
    PERIOD_BURN_RATE,
    PERIOD_DAYS,
    RATIO,
    Slo,
)


Rule = dict[str, Any]

_ERRORS, _EVENTS = "slo:errors:increase5m", "slo:events:increase5m"
_INFO = "sloth_slo_info"
_HOUR, _DAY = 3600, 86400


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that Prometheus evaluates one after the other."""

    name: str
    interval: str
    rules: tuple[Rule, ...]

    def document(self) -> dict[str, Any]:
        """Return the group in rule-file form."""
        return {
            "name": self.name,
            "interval": self.interval,
            "rules": list(self.rules),
        }


def recording_groups(slos: Iterable[Slo], *, scale: float = 1) -> Iterator[Group]:
    """
    Yield the rules of each objective: error ratios, then what derives from them.

    Long windows cost more and change slowly, so they are evaluated less often, yet well
    within the five minutes after which Prometheus considers a series stale.
    """
    fast, slow = (durations.scaled(interval, scale) for interval in ("30s", "2m"))
    for slo in slos:
        windows = burn.windows(slo.window)[:-1]
        short = [one for one in windows if durations.seconds(one) <= _HOUR]
        name = f"jaxmon-slo-{slo.name}"
        yield Group(
            f"{name}-short",
            fast,
            (*_ratios(slo, short, scale), _current(slo, short[0])),
        )
        yield Group(
            f"{name}-long",
            slow,
            (
                *_ratios(slo, windows[len(short) :], scale),
                # Often enough to miss nothing, but no more often: the period adds up
                # every sample of every series.
                *_counts(slo, short[0], scale),
            ),
        )
        yield Group(f"{name}-period", slow, tuple(_period(slo, scale)))


def _ratios(slo: Slo, windows: Iterable[str], scale: float) -> Iterator[Rule]:
    for window in windows:
        expr = slo.scaled(scale).error_ratio(durations.scaled(window, scale))
        yield _rule(slo, f"{RATIO}{window}", expr, sloth_window=window)


def _current(slo: Slo, window: str) -> Rule:
    burning = slo.recording(window).max(*slo.by) / slo.budget
    return _rule(slo, CURRENT_BURN_RATE, burning)


def _counts(slo: Slo, window: str, scale: float) -> Iterator[Rule]:
    actual = durations.scaled(window, scale)
    yield _rule(slo, _ERRORS, slo.scaled(scale).errors(actual))
    yield _rule(slo, _EVENTS, slo.scaled(scale).events(actual))


def _period(slo: Slo, scale: float) -> Iterator[Rule]:
    actual = durations.scaled(slo.window, scale)
    own = tuple(promql.eq(label, value) for label, value in slo.labels.items())
    errors = promql.recorded_sum(_ERRORS, actual, *own)
    events = promql.recorded_sum(_EVENTS, actual, *own)
    ratio = promql.ratio(errors, events)
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
    return {"record": name, "expr": str(expr), "labels": {**slo.labels, **labels}}


def _constant(value: float) -> Expr:
    return promql.call("vector", promql.number(value))
