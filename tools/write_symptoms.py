"""
Writes docs/symptoms.md: everything that can be wrong, who says it, and by which limits.

    python tools/write_symptoms.py           write the page
    python tools/write_symptoms.py --check   fail unless it is up to date

The limits of an alert are those that are read as it is built, and those of a judgement
the ones that its function mentions, and what this calls in its module, unless that
judges other symptoms. What agents decide while they measure is in `BY_AGENTS`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from jaxmon.cli.reference import page, table
from jaxmon.limits import LIMITS
from jaxmon.symptoms.alert import Severity, SiteLimits
from jaxmon.symptoms.symptom import MODES, Symptom
from jaxmon.symptoms.table import SYMPTOMS
from jaxmon_alerts import slo
from jaxmon_alerts.rules.build import burn_alerts


ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "symptoms.md"
BY_AGENTS = {"slower": "slower"}
"""The limits by which agents decide that something is a fact, by symptom."""
MAKERS = ("Finding", "reason", "_of_route", "_costs")

INTRODUCTION = """\
# What can be wrong

Everything that jaxmon says of a program, a host or a job, once, by kind of failure.
*Finding* is the topic in `jaxmon explain --json`, *page* what the answer of the live
page, `ps` and `top` counts as a reason, whose `kind` is the same name. Alerts have a
runbook of their name. Limits have these names in [`slo.yaml`](alerting.md), for screens
and alerts alike."""


class Reads(dict[str, Any]):
    """Changed limits, none, which remembers what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        """Return *default*."""
        self.names.append(name)
        return default


def built(symptom: Symptom) -> tuple[list[Severity], list[str]]:
    """Return the severities of the alert of *symptom*, and the limits that it reads."""
    if symptom.rule[1] is None:
        budgets = (one for one in slo.load() if one.alert == symptom.alert)
        return [one.severity for slo in budgets for one in burn_alerts(slo, 1)], []
    limits, reads = SiteLimits(), Reads()
    limits.changed = reads
    severities = [one.severity for one in symptom.alerts(limits)]
    return severities, list(dict.fromkeys(reads.names))


class Mentions(NamedTuple):
    """What a function mentions: limits, symptoms that it finds, and other names."""

    limits: set[str]
    symptoms: set[str]
    names: set[str]


@cache
def mentions(path: str) -> Mapping[str, Mentions]:
    """Return what each function and method of a module mentions."""
    return {
        node.name: Mentions(
            {x.attr for x in ast.walk(node) if is_limit(x)},
            {text for x in ast.walk(node) for text in made_by(x)},
            {name for x in ast.walk(node) if (name := called(x))},
        )
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, ast.FunctionDef)
    }


def called(node: ast.AST) -> str:
    """Return the function, or the method of its own, that *node* may be."""
    if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_limit(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Return whether *node* is an attribute of ``limits``."""
    if not isinstance(node, ast.Attribute):
        return False
    return getattr(node.value, "id", getattr(node.value, "attr", "")) == "limits"


def made_by(node: ast.AST) -> list[str]:
    """Return what the finding or reason that *node* makes is about, if a constant."""
    if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in MAKERS:
        return []
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Starred) and isinstance(first.value, ast.Tuple):
        first = first.value.elts[0]
    return [str(first.value)] if isinstance(first, ast.Constant) else []


def reach(
    name: str, about: str, of: Mapping[str, Mentions], seen: set[str]
) -> Iterator[str]:
    """Yield the limits by which the function *name* judges *about*."""
    if name not in of or name in seen:
        return
    seen.add(name)
    if of[name].symptoms <= {about} or about in of[name].symptoms or len(seen) == 1:
        yield from of[name].limits
        for other in of[name].names:
            yield from reach(other, about, of, seen)


def judged(symptom: Symptom) -> Iterator[str]:
    """Yield the limits of a finding, and of a reason of the answer."""
    if limit := BY_AGENTS.get(symptom.name):
        yield limit
    judges: list[Callable[..., Any] | None]
    judges = [symptom.finding, symptom.together, symptom.reason]
    for judge in [one for one in judges if one]:
        of = mentions(inspect.getfile(judge))
        found = set(reach(judge.__name__, symptom.name, of, set()))
        yield from (one for one in LIMITS if one in found)


def row(one: Symptom) -> list[str]:
    """Return the row of the page."""
    finding = f"finding `{one.name}`" if one.finding or one.together else ""
    named = "page" if finding else f"page `{one.name}`"
    shown = ", ".join(filter(None, (finding, named * bool(one.reason))))
    severities, limits = built(one)
    tier = " or ".join(dict.fromkeys(severities))
    alert = f"[{one.alert}](../runbooks/{one.alert}.md), {tier}"
    missing = f"none: {one.missing}" if one.missing else ""
    observed = [one.observed] if one.observed else []
    names = dict.fromkeys([*observed, *judged(one), *limits])
    return [
        one.sentence,
        shown or missing,
        alert if one.alert else missing,
        ", ".join(f"`{name}`" for name in names),
        "" if one.metric is None else f"`{one.metric.name}`",
        one.panel,
    ]


def written() -> str:
    """Return the page."""
    head = ("What", "Screens", "Alert", "Limits", "Metric", "Panel")
    parts = ["<!-- Generated by `make generate`; do not edit. -->", INTRODUCTION]
    for mode, title in MODES.items():
        rows = [row(one) for one in SYMPTOMS.values() if one.mode == mode]
        parts += [f"## {title}{f' ({mode})' if mode else ''}", table(head, rows)]
    return page(*parts)


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    text = written()
    if arguments == ["--check"]:
        if PAGE.read_text() != text:
            print("docs/symptoms.md is not up to date: run make generate")
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
