"""Active alerts as a list for a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from jaxmon.cli.active import active, lines
from jaxmon.cli.overview import Style
from jaxmon.errors import CommandError


PLAIN = Style(colour=False)


def described(name, severity="ticket", *, state="firing", age=0.0, **labels):
    """Return an alert as Prometheus describes it."""
    since = datetime.now(UTC) - timedelta(seconds=age)
    return {
        "labels": {"alertname": name, "severity": severity, "job": "demo", **labels},
        "annotations": {},
        "state": state,
        # With nanoseconds, as Prometheus writes it.
        "activeAt": since.strftime("%Y-%m-%dT%H:%M:%S.%f") + "789Z",
    }


def test_the_most_urgent_alert_comes_first():
    """What fires precedes what may, a page precedes a ticket, the oldest its like."""
    found = active(
        [
            described("Young", age=1),
            described("Pending", "page", state="pending", age=99),
            described("Old", age=60),
            described("Page", "page", age=1),
        ]
    )

    assert [one.name for one in found] == ["Page", "Old", "Young", "Pending"]


def test_conditions_of_one_objective_are_one_alert():
    """
    Windows differ, what is wrong does not; another severity is another matter, as is
    another route.
    """
    found = active(
        [
            described("Burn", "page", state="pending", route="/a", long="6h"),
            described("Burn", "page", route="/a", long="1h", age=5),
            described("Burn", "ticket", route="/a", long="3d"),
            described("Burn", "ticket", route="/b", long="3d"),
        ]
    )

    assert [(one.severity, one.subject, one.firing) for one in found] == [
        ("page", "route=/a", True),
        ("ticket", "route=/a", True),
        ("ticket", "route=/b", True),
    ]


def test_alerts_that_only_mute_are_left_out():
    """Nobody is told of severity info, here neither."""
    assert active([described("JaxmonDeployInProgress", "info")]) == []


def test_an_alert_is_told_with_its_age_and_runbook():
    """A row has all that matters within 80 columns, and what to read comes below."""
    found = active(
        [
            described("JaxmonCacheHitRateBudgetBurn", age=75, function=f"m.{'x' * 99}"),
            described("JaxmonTargetDown", state="pending", instance="host:1"),
        ]
    )
    heading, first, second, hint = lines(found, width=80, style=PLAIN)

    assert heading.split() == ["ALERT", "STATE", "SEVERITY", "ABOUT", "SINCE"]
    assert first.split()[:3] == ["JaxmonCacheHitRateBudgetBurn", "firing", "ticket"]
    assert re.search(r" …x+ +0:01:1\d$", first)
    assert second.split()[:4] == ["JaxmonTargetDown", "pending", "ticket", "host:1"]
    assert hint == "  what to do: jaxmon runbook show JaxmonCacheHitRateBudgetBurn"
    assert {len(one) for one in (heading, first, second)} == {80}


def test_a_long_list_is_cut():
    """Alerts that find no room are counted."""
    found = active([described(f"Alert{number}") for number in range(9)])
    shown = lines(found, width=80, style=PLAIN, most=4)

    assert len(shown) == 1 + 4 + 1 + 1
    assert shown[-2] == "  5 more"


def test_quiet_is_told_as_such():
    """No alerts is a message, not an empty space."""
    assert lines([], width=80, style=PLAIN) == ["  no alerts"]


@pytest.mark.parametrize(
    "described",
    [
        5,
        None,
        {},
        {"labels": []},
        {"labels": {}},
        {"labels": {"alertname": "A"}},
        {"labels": {"alertname": "A"}, "state": "firing", "activeAt": None},
        {"labels": {"alertname": "A"}, "state": "firing", "activeAt": "soon"},
    ],
)
def test_what_is_no_alert(described):
    """Something else than Prometheus may answer there: that is said, in a line."""
    with pytest.raises(CommandError, match="not described as it should be"):
        active([described])
