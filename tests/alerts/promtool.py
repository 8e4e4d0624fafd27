"""Unit tests of alerting rules, run by the real promtool."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from jaxmon.artifacts import alerts, slo
from jaxmon.artifacts.slo import Slos
from tests.support import require_program


RUNBOOKS = "https://runbooks.example.com/"


Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class Rules:
    """The groups of both rule files."""

    recording: Groups
    alerting: Groups


@dataclass(frozen=True)
class Firing:
    """An alert that is expected: all its labels, and its description."""

    labels: dict[str, str]
    description: str


def ticket(description: str, **labels: str) -> list[Firing]:
    """Return a firing ticket."""
    return [Firing({"severity": "ticket", **labels}, description)]


def page(description: str, **labels: str) -> list[Firing]:
    """Return a firing page."""
    return [Firing({"severity": "page", **labels}, description)]


@dataclass(frozen=True)
class Case:
    """
    Series with one sample a minute, and what one alert makes of them.

    Args:
        alert: its name.
        series: values by series, in promtool's notation: ``a+bxn`` stands for a, a+b,
            … (n+1 samples), ``_xn`` for none.
        quiet: when nothing of that name fires.
        firing: what fires, and nothing else of that name, by time.
    """

    alert: str
    series: dict[str, str]
    quiet: tuple[str, ...] = ()
    firing: dict[str, list[Firing]] = field(default_factory=dict)


def run(case: Case, directory: Path, slos: Slos | None = None) -> None:
    """
    Have promtool evaluate the rules that *case* needs.

    Raises:
        AssertionError: promtool saw something else; shows what.
    """
    groups = needed(case.alert, shipped() if slos is None else _rules(slos))
    summaries = {
        one["labels"].get("factor"): one["annotations"]["summary"]
        for group in groups
        for one in group["rules"]
        if one.get("alert") == case.alert
    }
    assert summaries, f"no rule makes {case.alert}"
    tests: list[dict[str, Any]] = [
        {"eval_time": at, "alertname": case.alert} for at in case.quiet
    ]
    for at, firing in case.firing.items():
        expected = [expectation(case.alert, one, summaries) for one in firing]
        tests.append({"eval_time": at, "alertname": case.alert, "exp_alerts": expected})
    evaluate(directory, groups, case.series, alert_rule_test=tests)


def evaluate(
    directory: Path,
    groups: Groups,
    series: dict[str, str],
    **tests: list[dict[str, Any]],
) -> None:
    """
    Have promtool evaluate *groups* every minute, in their order, and compare.

    Args:
        directory: to write to.
        groups: as in a rule file.
        series: values by series, one a minute, in promtool's notation.
        tests: lists of promtool's tests, by their kind.

    Raises:
        AssertionError: promtool saw something else; shows what.
    """
    program = require_program("promtool")
    _write(directory / "rules.yaml", {"groups": groups})
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in series.items()
                ],
                **tests,
            }
        ],
    }
    _write(directory / "test.yaml", document)
    done = subprocess.run(
        [program, "test", "rules", "test.yaml"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def shipped() -> Rules:
    """Return the rules that jaxmon ships; do not change them."""
    return _rules(slo.load())


def needed(alert: str, rules: Rules) -> Groups:
    """Return the groups with rules of *alert*, after those that record for them."""
    found: Groups = []
    for group in rules.alerting:
        mine = [rule for rule in group["rules"] if rule["alert"] == alert]
        if mine:
            prefix = group["name"].removesuffix("alerts")
            found += [one for one in rules.recording if one["name"].startswith(prefix)]
            found.append({**group, "rules": mine})
    return found


def expectation(
    alert: str, firing: Firing, summaries: dict[str | None, str]
) -> dict[str, Any]:
    """Return what promtool should find; the summary is static, so the rule's own."""
    return {
        "exp_labels": firing.labels,
        "exp_annotations": {
            "summary": summaries[firing.labels.get("factor")],
            "description": firing.description,
            "runbook_url": f"{RUNBOOKS}{alert}.md",
        },
    }


def _rules(slos: Slos) -> Rules:
    files = alerts.render(slos, alerts.Options(runbook_base=RUNBOOKS))
    return Rules(_groups(files["recording.yaml"]), _groups(files["alerts.yaml"]))


def _groups(text: str) -> Groups:
    # The loader in Python takes longer than promtool.
    found: Groups = yaml.load(text, Loader=yaml.CSafeLoader)["groups"]
    return found


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))
