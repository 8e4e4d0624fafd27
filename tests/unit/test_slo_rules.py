"""What follows from an objective: factors, error ratios, recorded series."""

from __future__ import annotations

import re

import pytest

from jaxmon.artifacts import slo
from jaxmon.artifacts.slo import burn
from jaxmon.artifacts.slo.rules import recording_groups


@pytest.mark.parametrize(
    ("period", "factors"),
    [
        ("30d", [14.4, 6, 3, 1, 3]),
        ("28d", [13.44, 5.6, 2.8, 0.9333, 3]),
        ("90d", [43.2, 18, 9, 3, 3]),
    ],
)
def test_factors_follow_from_the_period(period, factors):
    """The same share of the budget is gone when an alert fires, whatever the period."""
    assert [pair.factor for pair in burn.pairs(period)] == factors


def test_the_ratio_is_0_without_errors_and_absent_without_events():
    """The query adds zeros where error series are missing and drops empty divisors."""
    increase = "sum by (job, route) (increase(jaxmon_requests_total{{outcome{}}}[5m]))"
    total, bad = increase.format('!="client_error"'), increase.format('="error"')

    query = slo.load()["request-error"].error_ratio("5m")

    assert str(query) == f"({bad} or {total} * 0) / ({total} > 0)"


def test_recorded_series_have_sloths_names():
    """Dashboards made for Sloth find every window and the figures derived from them."""
    [first, *_] = slo.load()
    names = [
        rule["record"] for group in recording_groups([first]) for rule in group.rules
    ]

    windows = ("5m", "30m", "1h", "2h", "6h", "1d", "3d", "30d")
    assert {name for name in names if "sli_error" in name} == {
        f"slo:sli_error:ratio_rate{window}" for window in windows
    }
    assert {
        "slo:objective:ratio",
        "slo:error_budget:ratio",
        "slo:time_period:days",
        "slo:current_burn_rate:ratio",
        "slo:period_burn_rate:ratio",
        "slo:period_error_budget_remaining:ratio",
        "sloth_slo_info",
    } < set(names)
    assert len(names) == len(set(names))
    assert str(first.recording("1h")) == (
        'slo:sli_error:ratio_rate1h{sloth_id="jaxmon-request-error",'
        'sloth_service="jaxmon",sloth_slo="request-error"}'
    )


def test_scaled_rules_keep_their_names():
    """In a demonstration windows shrink; what is recorded is called as ever."""
    usual = list(recording_groups(slo.load()))
    scaled = list(recording_groups(slo.load(), scale=60))

    assert labels(usual) == labels(scaled)
    expressions = str([rule["expr"] for group in scaled for rule in group.rules])
    assert "[5s]" in expressions
    assert "[12h]" in expressions
    assert not re.search(r"\[(1h|3d|30d)\]", expressions)


def labels(groups):
    """Return name and labels of every rule."""
    return [
        (rule["record"], rule["labels"]) for group in groups for rule in group.rules
    ]
