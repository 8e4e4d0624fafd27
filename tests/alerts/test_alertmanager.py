"""Routing and inhibition, asked of the real amtool and tried on a real Alertmanager."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from tests.helpers.processes import require_program, until
from tests.helpers.prometheus import Alertmanager, Webhook


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "alertmanager.yaml"
    path.write_text(alerts.render()["alertmanager.yaml"])
    return path


@pytest.fixture
def alertmanager(tmp_path: Path, webhook: Webhook) -> Iterator[Alertmanager]:
    """Return a real Alertmanager with the generated configuration, in quick motion."""
    path = tmp_path / "quick.yaml"
    options = alerts.RuleOptions(scale=60)
    path.write_text(alerts.render(at(webhook.url), options)["alertmanager.yaml"])
    with Alertmanager(tmp_path, path) as running:
        yield running


def at(webhook):
    """Return the default objectives of a site that sends notifications to *webhook*."""
    return replace(slo.load(), site=slo.Site(webhook=webhook))


def amtool(*arguments):
    return subprocess.run(
        [require_program("amtool"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_configuration_is_valid(config):
    """Alertmanager's own tool accepts the default file."""
    done = amtool("check-config", config)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("receiver", "labels"),
    [
        ("page", "severity=page job=web alertname=JaxmonAcceleratorLost"),
        ("ticket", "severity=ticket job=web alertname=JaxmonTimeLost"),
        ("ticket", "alertname=SomebodyElses"),
        ("nobody", "severity=info alertname=JaxmonDeployInProgress"),
    ],
)
def test_routing_is_by_severity(receiver, labels, config):
    """Pages, tickets and alerts that only mute others go their own ways."""
    arguments = ("config", "routes", "test", f"--config.file={config}")
    right = amtool(*arguments, f"--verify.receivers={receiver}", *labels.split())
    wrong = amtool(*arguments, "--verify.receivers=other", *labels.split())

    assert right.returncode == 0, right.stderr
    assert wrong.returncode == 1


def alert(name, severity, **labels):
    """Return the labels of an alert of job web."""
    return {"alertname": name, "severity": severity, "job": "web", **labels}


BURN = "JaxmonRequestErrorBudgetBurn"
SLO = {"slo": "request-error", "route": "/a"}


def until_states(alertmanager, expected):
    """
    Wait until these alerts are in these states, and no other is known.

    What mutes is noticed a moment after it is reported.
    """

    def seen():
        return alertmanager.states() == expected

    until(seen, f"the states {expected}, not {alertmanager.states()}")


NOISE = {"deploy": "expected"}
LATE = {"slo": "step-freshness", "loop": "main"}
FRESHNESS = "JaxmonStepFreshnessBudgetBurn"
# Alerts that are reported, and whether they are muted.
MUTED = {
    "a page mutes tickets of its objective, not those of others": [
        (alert(BURN, "page", **SLO), False),
        (alert(BURN, "ticket", **SLO), True),
        (alert("OtherRoute", "ticket", slo="request-error", route="/b"), False),
        (alert("OtherSlo", "ticket", slo="warm-latency", route="/a"), False),
        ({**alert("OtherJob", "ticket", **SLO), "job": "train"}, False),
        (alert("JaxmonOutOfMemory", "ticket", function="step"), False),
    ],
    "a deployment mutes its noise, and no page": [
        (alert("JaxmonDeployInProgress", "info"), False),
        (alert("JaxmonRecompileStorm", "ticket", function="step", **NOISE), True),
        (alert("JaxmonColdStartBudgetBurn", "ticket", route="/a", **NOISE), True),
        (alert("Slow", "ticket", slo="warm-latency", **NOISE), True),
        (alert("Slow", "page", slo="warm-latency", route="/x"), False),
        (alert("NoisyPage", "page", **NOISE), False),
        (alert("JaxmonOutOfMemory", "ticket", function="step"), False),
        ({**alert("OtherJob", "ticket", **NOISE), "job": "train"}, False),
    ],
    "a stalled loop is late as well; only the cause is notified": [
        (alert("JaxmonTrainingStalled", "page", **LATE), False),
        (alert(FRESHNESS, "page", **LATE), True),
        (alert(FRESHNESS, "ticket", **LATE), True),
    ],
}


@pytest.mark.parametrize("found", MUTED.values(), ids=MUTED.keys())
def test_what_mutes_what(found, alertmanager):
    """A real Alertmanager suppresses these, and no other."""
    alertmanager.post(*(labels for labels, _ in found))

    expected = {
        f"{labels['alertname']}/{labels['severity']}": "suppressed"
        if muted
        else "active"
        for labels, muted in found
    }
    until_states(alertmanager, expected)


RUN = {"loop": "main"}
LATENCY = {"slo": "warm-latency", "route": "/a"}
# What fires in an outage, of which the first notifies.
ONCE = {
    "total": [
        alert(BURN, "page", **SLO),
        alert("JaxmonWarmLatencyBudgetBurn", "page", **LATENCY),
        alert("JaxmonServiceVanished", "page"),
        alert("JaxmonCrashLoop", "page"),
        alert(BURN, "ticket", **SLO),
        alert("JaxmonCrashLoop", "ticket", instance="a:1"),
    ],
    "every request hangs": [
        alert("JaxmonRequestsHang", "page", route="/a"),
        alert(BURN, "page", **SLO),
        alert("JaxmonRequestsHang", "ticket", route="/a"),
    ],
    "lost GPU host": [
        alert("JaxmonTrainingDied", "page", **RUN),
        alert("JaxmonTrainingDied", "ticket", **RUN, instance="a:1"),
        alert("JaxmonCrashLoop", "page"),
    ],
    "lost GPU": [
        alert("JaxmonAcceleratorLost", "page", uuid="GPU-1"),
        alert("JaxmonAcceleratorLost", "ticket", uuid="GPU-1"),
    ],
}


def test_an_outage_pages_once(alertmanager, webhook):
    """What follows from what has paged notifies no one; each is of its own cluster."""
    outages = [
        [{**labels, "cluster": cluster} for labels in found]
        for cluster, found in ONCE.items()
    ]
    first = [found[0] for found in outages]
    alertmanager.post(*first)
    until(lambda: len(webhook.alerts()) == len(first), "a page of each")
    alertmanager.post(*(labels for found in outages for labels in found))

    # Groups wait half a second, and are sent again after five.
    time.sleep(8)
    assert {path for path, _ in webhook.alerts()} == {"/page"}
    paged = [of["labels"]["cluster"] for _, of in webhook.alerts()]
    assert sorted(paged) == sorted(ONCE)


def test_windows_of_a_budget_are_one_alert():
    """As its window follows another, a budget does not notify again."""
    burning = [one for one in alerts.all_alerts() if one.name == BURN]

    assert [one.severity for one in burning] == ["page", "ticket"]
    assert {frozenset(dict(one.labels)) for one in burning} == {
        frozenset({"slo", "owner"})
    }


def test_notifications_arrive_grouped_and_in_their_place(alertmanager, webhook):
    """Pages go to the page receiver, tickets are grouped, inhibitors are not sent."""
    storm = [
        alert("JaxmonRecompileStorm", "ticket", function=function, cell=cell)
        for function in ("step", "eval")
        for cell in ("a", "b")
    ]
    alertmanager.post(
        alert("JaxmonDeployInProgress", "info", job="other"),
        alert("JaxmonAcceleratorLost", "page", uuid="GPU-1"),
        *storm,
    )

    path, page = webhook.until_alert("JaxmonAcceleratorLost")
    until(lambda: len(webhook.alerts()) == 5, "all tickets")
    tickets = webhook.notifications("/ticket")

    assert path == "/page"
    assert page["labels"] == alert("JaxmonAcceleratorLost", "page", uuid="GPU-1")
    assert sorted(one["groupLabels"]["function"] for one in tickets) == ["eval", "step"]
    assert [len(one["alerts"]) for one in tickets] == [2, 2]
    assert "JaxmonDeployInProgress" not in str(webhook.alerts())


def test_the_alerts_that_deployments_explain_are_marked():
    """The label that lets them be muted is on tickets about compiles, never a page."""
    marked = {
        (one.name, one.severity)
        for one in alerts.all_alerts()
        if ("deploy", "expected") in one.labels
    }

    assert marked == {
        ("JaxmonRecompileStorm", "ticket"),
        ("JaxmonColdStartBudgetBurn", "ticket"),
        ("JaxmonWarmLatencyBudgetBurn", "ticket"),
    }


def test_without_an_address_nobody_is_called(tmp_path):
    """Without a receiver, the configuration is valid and has no address."""
    path = tmp_path / "silent.yaml"
    path.write_text(alerts.render(at(""))["alertmanager.yaml"])
    done = amtool("check-config", path)

    assert done.returncode == 0, done.stderr
    assert "http" not in path.read_text()
