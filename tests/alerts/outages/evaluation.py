"""
When alerts fire in worlds: promtool evaluates the rules, all worlds at once.

promtool evaluates every group at one interval. Groups that are evaluated every few
minutes are the dearest, so they get a run of their own. Rules that count since their
previous evaluation are rewritten to the run's interval, which changes no count. Whether
an alert's condition holds is read at each evaluation; that it must hold `for` a while,
and that its group is evaluated less often, is applied here, as Prometheus does.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmon.host.formats import durations
from tests.alerts.outages.world import STEP, World
from tests.alerts.promtool import Groups, Rules, pruned
from tests.helpers.processes import require_program


_TIME = re.compile(r'expr: "ALERTS", time: (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?,')
_SAMPLE = re.compile(r"\{(__name__=\"ALERTS\"[^{}]*)\}")
_READ = re.compile(r'alertname=~?\\?"([\w|]+)')
_SELDOM = 120
"""Groups with this interval, or a longer one, are evaluated that often."""
_PAIR = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Firing:
    """
    An alert that fires, from one second to another.

    Args:
        labels: all of them.
        start: when it begins.
        end: when it is resolved, or the world ends.
    """

    labels: Labels
    start: int
    end: int

    def __getitem__(self, label: str) -> str:
        return dict(self.labels).get(label, "")


@dataclass(frozen=True)
class Condition:
    """How an alert's rule waits: its group's *interval*, *after* and *keep* seconds."""

    interval: int
    after: int
    keep: int

    @property
    def step(self) -> int:
        """The interval of the run that its group is in."""
        return STEP if self.interval < _SELDOM else _SELDOM

    def firings(self, labels: Labels, held: set[int], end: int) -> Iterable[Firing]:
        """Yield when it fires, whose expression *held* at these seconds."""
        since: int | None = None
        seen: int | None = None
        started: int | None = None
        for now in range(0, end + 1, self.interval):
            if now in held:
                since = now if since is None else since
                seen = now
                if started is None and now - since >= self.after:
                    started = now
                continue
            kept = started is not None and seen is not None and now - seen < self.keep
            if not kept:
                if started is not None:
                    yield Firing(labels, started, now)
                since = seen = started = None
        if started is not None:
            yield Firing(labels, started, end)


def firings(worlds: Iterable[World], rules: Rules) -> list[Firing]:
    """Return what fires in *worlds*, in order of time."""
    found = list(worlds)
    end = round(max(world.minutes for world in found) * 60)
    series = {
        name: values for world in found for name, values in world.series().items()
    }
    conditions = _conditions(rules)
    held = {
        labels: times
        for step in (STEP, _SELDOM)
        for labels, times in _holding(series, _groups(rules, step), step, end).items()
        if conditions[_rule(labels, conditions)].step == step
    }
    ends = {world.cluster: round(world.minutes * 60) for world in found}
    firing = [
        firing
        for labels, times in held.items()
        for firing in conditions[_rule(labels, conditions)].firings(
            labels, times, ends.get(dict(labels).get("cluster", ""), end)
        )
    ]
    return sorted(firing, key=lambda one: (one.start, sorted(one.labels)))


def _conditions(rules: Rules) -> dict[Labels, Condition]:
    """Return how each alert waits, by its name and own labels."""
    return {
        frozenset({"alertname": rule["alert"], **rule["labels"]}.items()): Condition(
            _seconds(group["interval"]),
            _seconds(rule.get("for", "")),
            _seconds(rule.get("keep_firing_for", "")),
        )
        for group in rules.alerting
        for rule in group["rules"]
        if "alert" in rule
    }


def _rule(labels: Labels, conditions: dict[Labels, Condition]) -> Labels:
    return max((one for one in conditions if one <= labels), key=len)


def _groups(rules: Rules, step: int) -> Groups:
    """Return the groups that are evaluated every *step* seconds, and what they read."""
    every = [*rules.recording, *rules.alerting]
    mine = [
        group["name"]
        for group in rules.alerting
        if (_seconds(group["interval"]) < _SELDOM) is (step < _SELDOM)
    ]
    read = {
        name
        for group in every
        if group["name"] in mine
        for names in _READ.findall(str(group["rules"]))
        for name in names.split("|")
    }
    found = [
        {
            "name": group["name"],
            "rules": [
                {
                    **{key: rule[key] for key in rule if key != "keep_firing_for"},
                    "expr": evaluated_at(step, rule["expr"], group["interval"]),
                }
                for rule in group["rules"]
                if "record" in rule or group["name"] in mine or rule["alert"] in read
            ],
        }
        for group in every
    ]
    return pruned(found, "") if mine else []


def evaluated_at(step: int, expr: str, interval: str) -> str:
    """Return what counts since the evaluation *interval* ago, to count since *step*."""
    seconds = _seconds(interval)

    def moved(found: re.Match[str]) -> str:
        offset = _seconds(found[1]) - seconds
        return f"offset {offset + step}s" if offset >= 0 else found[0]

    # Counts, and what they compare with.
    if not re.search(rf"\[{interval}\] offset|\[5m\] offset \d+s|:there offset", expr):
        return expr
    expr = expr.replace(f"[{interval}] offset", f"[{step}s] offset")
    return re.sub(r"offset (\w+)", moved, expr)


def _seconds(duration: str) -> int:
    return round(durations.seconds(duration)) if duration else 0


def _holding(
    series: dict[str, str], groups: Groups, step: int, end: int
) -> dict[Labels, set[int]]:
    """Return the seconds at which the condition of each alert holds."""
    if not groups:
        return {}
    times = range(0, end + 1, step)
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{step}s",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [
            {
                "interval": f"{STEP}s",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in series.items()
                ],
                "promql_expr_test": [
                    {"expr": "ALERTS", "eval_time": f"{at}s", "exp_samples": []}
                    for at in times
                ],
            }
        ],
    }
    with tempfile.TemporaryDirectory(prefix="outages-") as directory:
        _write(Path(directory, "rules.yaml"), {"groups": groups})
        _write(Path(directory, "test.yaml"), document)
        done = subprocess.run(
            [require_program("promtool"), "test", "rules", "test.yaml"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
    return _parsed(done.stdout + done.stderr)


def _parsed(printed: str) -> dict[Labels, set[int]]:
    """Return the alerts that promtool *printed* as unexpected, by second."""
    held: dict[Labels, set[int]] = {}
    at: int | None = None
    for line in printed.splitlines():
        if found := _TIME.search(line):
            hours, minutes, seconds = (int(part or 0) for part in found.groups())
            at = hours * 3600 + minutes * 60 + seconds
        for sample in _SAMPLE.finditer(line) if "alertname=" in line else ():
            assert at is not None, line
            labels = dict(_PAIR.findall(sample[1]))
            labels.pop("alertstate")
            labels.pop("__name__", None)
            held.setdefault(frozenset(labels.items()), set()).add(at)
    assert held or "SUCCESS" in printed, printed[:4000]
    return held


def _write(path: Path, document: dict[str, Any]) -> None:
    # JSON is YAML, and written much faster.
    path.write_text(json.dumps(document))
