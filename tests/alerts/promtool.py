"""Unit tests of alerting rules, run by the real promtool."""

import json
import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import yaml

from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from jaxmon_alerts.slo import Slos
from tests.helpers.processes import require_program


RUNBOOKS = "https://runbooks.example.com"

_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \| urlquery \}\}")


Groups = list[dict[str, Any]]

# What lasts for hours is evaluated as often as those tickets are that may wait.
_LONG, _SELDOM = 400, "4m"


@dataclass(frozen=True)
class Rules:
    """The groups of both rule files."""

    recording: Groups
    alerting: Groups


@dataclass(frozen=True)
class Firing:
    """An alert that is expected: all its labels, and its summary."""

    labels: dict[str, str]
    summary: str


def ticket(summary: str, named: str = "", **labels: str) -> list[Firing]:
    """Return a firing ticket with *labels*, and those *named*, such as ``job=a``."""
    return [_firing("ticket", summary, named, labels)]


def page(summary: str, named: str = "", **labels: str) -> list[Firing]:
    """Return a firing page, likewise."""
    return [_firing("page", summary, named, labels)]


def _firing(severity: str, summary: str, named: str, labels: dict[str, str]) -> Firing:
    found = dict(pair.split("=", 1) for pair in named.split())
    return Firing({"severity": severity, **found, **labels}, summary)


@dataclass(frozen=True)
class Case:
    """
    Series with one sample a minute, and what one alert makes of them.

    Args:
        alert: its name, or the name and the symptom of one of its conditions, as in
            ``JaxmonGpuFault/xid``, if the others do not matter; nothing after the slash
            stands for those of an objective.
        series: values by series, in promtool's notation: ``a+bxn`` stands for a, a+b,
            … (n+1 samples), ``_xn`` for none.
        quiet: when nothing of that name fires.
        firing: what fires, and nothing else of that name, by time.
    """

    alert: str
    series: dict[str, str]
    quiet: tuple[str, ...] = ()
    firing: dict[str, list[Firing]] = field(default_factory=dict)

    @property
    def lasts(self) -> int:
        """Return for how many minutes it is evaluated."""
        times = (re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?", of) for of in self.times)
        return max(60 * int(of[1] or 0) + int(of[2] or 0) for of in times if of)

    @property
    def times(self) -> tuple[str, ...]:
        """Return when something is expected of it."""
        return (*self.quiet, *self.firing)


def run(
    case: Case,
    directory: Path,
    slos: Slos | None = None,
    *,
    queries: Collection[dict[str, Any]] = (),
) -> None:
    """
    Have promtool evaluate the rules that *case* needs, and its tests of *queries*.

    Raises:
        AssertionError: promtool saw something else; shows what.
    """
    groups, asked = _question(case, shipped() if slos is None else rules(slos))
    evaluate(
        *(directory, groups, case.series),
        alert_rule_test=asked,
        promql_expr_test=[*queries],
    )


def run_each(cases: dict[str, Case], directory: Path) -> dict[str, str]:
    """
    Have promtool evaluate *cases*, each by itself; return what it prints of each.

    One process for all: of a small case, the start is a third of the time.
    """
    files = {}
    for number, (name, case) in enumerate(cases.items()):
        groups, asked = _question(case, shipped())
        files[name] = _written(
            *(directory, f"{number}-", groups, case.series),
            every=_SELDOM if case.lasts > _LONG else "",
            alert_rule_test=asked,
        )
    printed = _promtool(directory, *files.values()).stdout
    found = dict(re.findall(r"(?ms)^Unit Testing: +(\S+)$(.*?)(?=^Unit|\Z)", printed))
    return {name: found[file] for name, file in files.items()}


def _question(case: Case, from_: Rules) -> tuple[Groups, list[dict[str, Any]]]:
    """Return the rules that *case* needs, and promtool's tests of the alert."""
    name, *symptom = case.alert.split("/")
    groups = needed((name,), from_, *symptom)
    found = [one for group in groups for one in group["rules"] if "alert" in one]
    assert found, f"no rule makes {case.alert}"
    tests: list[dict[str, Any]] = [
        {"eval_time": at, "alertname": name} for at in case.quiet
    ]
    for at, firing in case.firing.items():
        expected = [expectation(one, found) for one in firing]
        tests.append({"eval_time": at, "alertname": name, "exp_alerts": expected})
    return groups, tests


def evaluate(
    directory: Path,
    groups: Groups,
    series: dict[str, str],
    *,
    sampled: str = "1m",
    **tests: list[dict[str, Any]],
) -> None:
    """
    Have promtool evaluate *groups* in their order, and compare.

    All are evaluated at the interval of those that count events, or every minute;
    promtool knows only one interval. What no alert and no test refers to is omitted.

    Args:
        directory: to write to.
        groups: as in a rule file.
        series: values by series, in promtool's notation.
        sampled: interval of the values.
        tests: lists of promtool's tests, by their kind.

    Raises:
        AssertionError: promtool saw something else; shows what.
    """
    file = _written(directory, "", groups, series, sampled=sampled, every="", **tests)
    done = _promtool(directory, file)
    assert done.returncode == 0, done.stdout


def _written(
    directory: Path,
    prefix: str,
    groups: Groups,
    series: dict[str, str],
    *,
    sampled: str = "1m",
    every: str = "",
    **tests: list[dict[str, Any]],
) -> str:
    """Write files of rules and tests, and return the name of the second."""
    used = pruned(groups, str(tests))
    _write(directory / f"{prefix}rules.yaml", {"groups": used})
    document = {
        "rule_files": [f"{prefix}rules.yaml"],
        "evaluation_interval": every or interval(groups),
        "group_eval_order": [group["name"] for group in used],
        "tests": [
            {
                "interval": sampled,
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in series.items()
                ],
                **tests,
            }
        ],
    }
    _write(directory / f"{prefix}test.yaml", document)
    return f"{prefix}test.yaml"


def _promtool(directory: Path, *files: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [require_program("promtool"), "test", "rules", *files],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )


def pruned(groups: Groups, text: str) -> Groups:
    """Return *groups* without rules that record what neither alerts nor *text* need."""
    rules = [rule for group in groups for rule in group["rules"]]
    used = [rule for rule in rules if "alert" in rule]
    text += str(used)
    while more := [
        rule
        for rule in rules
        if rule not in used and "record" in rule and rule["record"] in text
    ]:
        used += more
        text += str(more)
    found = [
        {**group, "rules": [rule for rule in group["rules"] if rule in used]}
        for group in groups
    ]
    return [group for group in found if group["rules"]]


@cache
def shipped() -> Rules:
    """Return the rules that jaxmon ships; do not change them."""
    return rules(slo.load())


def needed(alerts: Collection[str], rules: Rules, *symptoms: str) -> Groups:
    """
    Return the groups with rules of *alerts*, or those with *symptoms*, after those that
    record for them.
    """
    found: Groups = []
    for group in rules.alerting:
        # What it records, others may read; `evaluate` omits the rest.
        mine = [
            rule
            for rule in group["rules"]
            if rule.get("alert", "") in ("", *alerts)
            and (
                "record" in rule
                or not symptoms
                or rule["labels"].get("symptom", "") in symptoms
            )
        ]
        if any("alert" in rule for rule in mine):
            text = str(mine)
            prefix = group["name"].removesuffix("alerts")
            found += [
                one
                for one in rules.recording
                if one not in found
                and (
                    one["name"].startswith(prefix)
                    # The names of objectives are the same for all.
                    or any(
                        rule["record"] in text
                        for rule in one["rules"]
                        if not rule["record"].startswith(("slo:", "sloth"))
                    )
                )
            ]
        found.append({**group, "rules": mine})
    return found


def expectation(firing: Firing, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what promtool is to find; annotations without values are the rule's."""
    [rule] = [one for one in rules if one["labels"].items() <= firing.labels.items()]
    annotations = {
        name: _LABEL.sub(lambda one: quote_plus(firing.labels.get(one[1], "")), text)
        for name, text in rule["annotations"].items()
    }
    return {
        "exp_labels": firing.labels,
        "exp_annotations": {**annotations, "summary": firing.summary},
    }


def rules(slos: Slos) -> Rules:
    site = replace(slos.site, runbooks=RUNBOOKS)
    files = alerts.render(replace(slos, site=site))
    return Rules(_groups(files["recording.yaml"]), _groups(files["alerts.yaml"]))


def interval(groups: Groups) -> str:
    return next(
        (
            group["interval"]
            for group in groups
            for rule in group["rules"]
            if rule.get("record", "").endswith(":delta")
        ),
        "1m",
    )


def _groups(text: str) -> Groups:
    # The loader in Python takes longer than promtool.
    found: Groups = yaml.load(text, Loader=yaml.CSafeLoader)["groups"]
    return found


def _write(path: Path, document: dict[str, Any]) -> None:
    # JSON is YAML, and written much faster.
    path.write_text(json.dumps(document))
