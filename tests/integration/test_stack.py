"""The Prometheus and Alertmanager that a command starts."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxmon_alerts.gameday import stack
from jaxmon_alerts.gameday.children import Children
from jaxmon_alerts.gameday.stack import MonitoringPrograms
from tests.helpers.processes import free_port, http_get, require_program, until


@pytest.fixture
def programs() -> MonitoringPrograms:
    """Return both programs; skip where one is missing."""
    return MonitoringPrograms(
        require_program("prometheus"), require_program("prometheus-alertmanager")
    )


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    """Return what ends all that is started."""
    with Children(os.environ, tmp_path) as running:
        yield running


def firing(prometheus: str) -> set[str]:
    """Return the alerts of *prometheus* that fire."""
    alerts = stack.alerts_of(prometheus)
    return {a["labels"]["alertname"] for a in alerts if a["state"] == "firing"}


def test_alerts_of_the_rules_are_told(programs, children, tmp_path):
    """The rules are evaluated in quick motion, on a target that does not answer."""
    targets = {"demo": f"127.0.0.1:{free_port()}"}
    found = stack.start(programs, children, tmp_path, targets=targets, webhook=None)

    assert firing(found.prometheus) <= {"JaxmonWatchdog"}
    rules = http_get(f"{found.prometheus}/api/v1/rules")
    assert "JaxmonTrainingStalled" in rules
    assert "jaxmon-overviews" in rules
    assert '"duration":5,' in rules  # five minutes for a target that is down
    asked = f"{found.prometheus}/api/v1/targets"
    until(lambda: '"health":"down"' in http_get(asked), "a scrape")
    known = f"{found.prometheus}/api/v1/alertmanagers"
    until(lambda: found.alertmanager in http_get(known), "Alertmanager to be known")


def test_overviews_are_recorded_for_dashboards_only(programs, children, tmp_path):
    """Without any, all rules that alerts read are there, and no others."""
    found = stack.start(
        programs, children, tmp_path, targets={}, webhook=None, drawn=False
    )

    rules = http_get(f"{found.prometheus}/api/v1/rules")
    assert "JaxmonTrainingStalled" in rules
    assert "jaxmon-slo-request-error-short" in rules
    assert "jaxmon-overviews" not in rules


def test_both_programs_are_needed(tmp_path, monkeypatch):
    """One of them alone is as good as none; Alertmanager has two names."""
    monkeypatch.setenv("PATH", str(tmp_path))
    answers = [MonitoringPrograms.installed()]
    for name in ("prometheus", "alertmanager"):
        program = tmp_path / name
        shutil.copy("/bin/true", program)
        answers.append(MonitoringPrograms.installed())

    assert answers[:2] == [None, None]
    assert answers[2] == MonitoringPrograms(
        str(tmp_path / "prometheus"), str(tmp_path / "alertmanager")
    )
