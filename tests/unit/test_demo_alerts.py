"""Alerts that are active now."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from jaxmon.errors import CommandError
from jaxmon_alerts.gameday.stack import active


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
    """Another severity or route is another matter."""
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


def test_time_without_a_zone_is_of_utc(monkeypatch):
    """An alert is as old as it is, wherever the demo runs."""
    given = described("Old", age=60)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        ages = [
            active([{**given, "activeAt": moment}])[0].age()
            for moment in (given["activeAt"], given["activeAt"].removesuffix("Z"))
        ]
    finally:
        monkeypatch.undo()
        time.tzset()

    assert abs(ages[0] - ages[1]) < 3600


def test_alerts_that_only_mute_are_left_out():
    """Severity info is never shown."""
    assert active([described("JaxmonDeployInProgress", "info")]) == []


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
    with pytest.raises(CommandError, match="returned an invalid alert"):
        active([described])
