"""Rule files: what is evaluated, how often, and which series that reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from jaxmon.errors import JaxmonError


_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_RANGE = re.compile(r"\[([0-9a-z]+)")
_OFFSET = re.compile(r"offset ([0-9a-z]+)")
_LOOKBACK = 900.0
_UNITS = {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
    "y": 31536000,
}


class RulesError(JaxmonError):
    """A directory has no rules to evaluate."""


@dataclass(frozen=True)
class Rule:
    """
    A recording or an alerting rule.

    Args:
        name: of the series or the alert.
        alert: which of the two.
        pending: seconds that an alert's expression must hold.
        keep: seconds that an alert stays after its expression ceased to hold.
    """

    name: str
    expression: str
    labels: tuple[tuple[str, str], ...]
    alert: bool
    pending: float = 0.0
    keep: float = 0.0

    @property
    def words(self) -> frozenset[str]:
        """Return all words of the expression that may be names of series."""
        return frozenset(_NAME.findall(_STRING.sub('""', self.expression)))


@dataclass(frozen=True)
class Group:
    """Rules that are evaluated together; *interval* in seconds."""

    name: str
    file: str
    interval: float
    rules: tuple[Rule, ...]


def read(directory: Path) -> list[Group]:
    """
    Return the groups of all rule files in *directory*; other YAML files have none.

    Raises:
        RulesError: there are none at all.
    """
    found: list[Group] = []
    for path in sorted(directory.glob("*.y*ml")):
        document = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        if isinstance(document, dict) and isinstance(document.get("groups"), list):
            found += (_group(path.name, one) for one in document["groups"])
    if not found:
        msg = f"no rule files in {directory}; write some: jaxmon alerts build --out DIR"
        raise RulesError(msg)
    return found


def files(directory: Path) -> list[Path]:
    """Return the files that `read` reads groups from."""
    return sorted({directory.resolve() / group.file for group in read(directory)})


def ordered(groups: Iterable[Group]) -> list[tuple[Group, Rule]]:
    """Return all rules so that each follows those that record what it reads."""
    left = [(group, rule) for group in groups for rule in group.rules]
    found: list[tuple[Group, Rule]] = []
    while left:
        missing = {rule.name for _, rule in left if not rule.alert}
        ready = [one for one in left if not one[1].words & missing - {one[1].name}]
        # Rules that read each other: as in the file.
        ready = ready or left[:1]
        found += ready
        left = [one for one in left if one not in ready]
    return found


def windows(groups: Iterable[Group], known: Collection[str]) -> dict[str, float]:
    """
    Return how far back rules read each of the series names in *known*, in seconds.

    A rule reads all its series for its longest window and offset; more than it needs,
    if it has several.
    """
    found: dict[str, float] = {}
    for group in groups:
        for rule in group.rules:
            text = _STRING.sub('""', rule.expression)
            reach = _LOOKBACK + max(map(seconds, _RANGE.findall(text)), default=0.0)
            reach += max(map(seconds, _OFFSET.findall(text)), default=0.0)
            for name in rule.words & set(known):
                found[name] = max(found.get(name, 0.0), reach)
    return found


def seconds(text: str) -> float:
    """Return a duration such as ``1h30m`` in seconds."""
    parts = re.findall(r"(\d+)(ms|[smhdwy])", text)
    return float(sum(int(number) * _UNITS[unit] for number, unit in parts))


def _group(file: str, document: dict[str, object]) -> Group:
    rules = document["rules"]
    assert isinstance(rules, list)  # noqa: S101 - for the type checker
    return Group(
        str(document["name"]),
        file,
        seconds(str(document.get("interval", "1m"))),
        tuple(
            Rule(
                one.get("record") or one["alert"],
                one["expr"],
                tuple((n, str(v)) for n, v in one.get("labels", {}).items()),
                "alert" in one,
                seconds(str(one.get("for", "0s"))),
                seconds(str(one.get("keep_firing_for", "0s"))),
            )
            for one in rules
        ),
    )
