"""What follows from an objective: factors, error ratios, recorded series."""

import re

import pytest

from jaxmon.catalog import BY_NAME
from jaxmon.host.formats import durations
from jaxmon.promql import records
from jaxmon.promql.events import Evaluation
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.slo.recording import recording_groups
from tests.helpers.processes import ROOT


@pytest.mark.parametrize(
    ("period", "factors"),
    [
        ("30d", [14.4, 6, 3, None, None, 3, 1]),
        ("28d", [13.44, 5.6, 3, None, None, 2.8, 0.9333]),
        ("90d", [43.2, 18, 3, None, None, 9, 3]),
    ],
)
def test_factors_follow_from_the_period(period, factors):
    """The same share of the budget is gone when an alert fires, whatever the period."""
    policy = slo.load().slos[0].policy

    assert [condition.over(period).factor for condition in policy] == factors


def test_errors_are_0_where_nothing_failed():
    """What has no error series has no errors, and what has no events has no ratio."""
    [first, *_] = slo.load()

    errors = str(first.errors(Evaluation()))

    assert errors.endswith(
        " or sum by (job, route) "
        '(slo:events:delta{sloth_id="jaxmon-request-error"}) * 0'
    )


def test_only_counts_read_raw_series():
    """Windows, ratios and budgets follow from what is recorded, and so do alerts."""
    groups = list(recording_groups(slo.load()))
    raw = [
        rule["record"]
        for group in groups
        for rule in group.document()["rules"]
        if re.search("jaxmon_", rule["expr"])
    ]

    processes = {name for name in raw if re.search(":(restarted|returned)$", name)}
    assert set(raw) - processes == {"slo:events:delta", "slo:errors:delta"}
    burning = {one.alert for one in slo.load()}
    for alert in alerts.all_alerts():
        if alert.name in burning and "symptom" not in dict(alert.labels):
            found = [alert.expr, *(it.expr for it in records([alert.expr]).values())]
            assert "jaxmon_" not in re.sub(r"slo:\w+:", "", " ".join(map(str, found)))


INCREASES = {
    # The cgroup counts them, whichever processes it has.
    "jaxmon_container_oom_kills_total",
    # All the time; alerts wait until none arrives, or very many are dropped.
    "jaxmon_otlp_exports_total",
    "jaxmon_dropped_total",
    # Whether a process has answered any; those that are new are another expression.
    "jaxmon_requests_total",
}


def test_events_of_processes_are_counted_in_one_way():
    """`increase`, which misses first counts, is for a sidecar's counters alone."""
    texts = [
        path.read_text()
        for where, pattern in (
            ("alerts", "*.yaml"),
            ("dashboards", "*.json"),
            ("runbooks", "*.md"),
            ("docs", "*.md"),
        )
        for path in sorted((ROOT / where).glob(pattern))
    ]
    found = set(re.findall(r"increase\((jaxmon_\w+)", "".join(texts)))
    counters = {one for one in found if one in BY_NAME}

    assert len(found) > len(counters) > len(INCREASES)
    assert {one for one in counters if "agent" in BY_NAME[one].sources} == INCREASES


def test_counts_look_back_by_the_interval_of_their_group():
    """A count that overlaps its neighbour, or leaves a gap, would not be exact."""
    for scale in (1, 60):
        for group in recording_groups(slo.load(), scale=scale):
            for rule in group.document()["rules"]:
                if rule["record"] == "slo:events:delta" and "offset" in rule["expr"]:
                    now, before, *_ = re.findall(r"offset (\w+)", rule["expr"])
                    gap = durations.seconds(before) - durations.seconds(now)
                    assert gap == durations.seconds(group.interval)


def test_recorded_series_have_sloths_names():
    """Dashboards made for Sloth find every window and the figures derived from them."""
    [first, *_] = slo.load()
    names = [
        rule["record"]
        for group in recording_groups([first])
        for rule in group.document()["rules"]
    ]

    windows = ("5m", "10m", "30m", "1h", "2h", "6h", "1d", "3d", "30d")
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
        'slo:sli_error:ratio_rate1h{sloth_id="jaxmon-request-error"}'
    )


def test_scaled_rules_keep_their_names():
    """In a demonstration windows shrink; what is recorded is called as ever."""
    usual = list(recording_groups(slo.load()))
    scaled = list(recording_groups(slo.load(), scale=60))

    assert labels(usual) == labels(scaled)
    expressions = str(
        [rule["expr"] for group in scaled for rule in group.document()["rules"]]
    )
    # Of 5 minutes and of 30 days.
    assert "[4s999ms]" in expressions
    assert "[11h59m59s999ms]" in expressions
    assert "59m59s999ms]" not in expressions.replace("[11h59m59s999ms]", "")


def labels(groups):
    """Return name and labels of every rule."""
    return [
        (rule["record"], rule.get("labels"))
        for group in groups
        for rule in group.document()["rules"]
    ]
