"""
Writes docs/symptoms.md: everything that can be wrong, who says it, and by which limits.

    python tools/write_symptoms.py           write the page
    python tools/write_symptoms.py --check   fail unless it is up to date

The limits of an alert are those that are read as it is built, and those of a finding
the ones that its rule mentions, and what this calls in its module.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from jaxmon.artifacts import slo
from jaxmon.artifacts.alerts.burn import burn_alerts
from jaxmon.artifacts.alerts.causes import cause_alerts
from jaxmon.artifacts.alerts.model import Alert
from jaxmon.artifacts.reference import page, table
from jaxmon.limits import LIMITS, Limits
from jaxmon.symptoms import SYMPTOMS, Symptom
from jaxmon.symptoms.program import PROGRAM
from jaxmon.symptoms.symptom import MODES


ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "symptoms.md"
FINDINGS = ROOT / "jaxmon" / "report" / "findings"
ANSWER = ROOT / "jaxmon" / "report" / "status" / "answer.py"

INTRODUCTION = """\
# What can be wrong

Everything that jaxmon says of a program, a host or a job, once, by kind of failure.
*Finding* is the topic in `jaxmon explain --json`, *page* what the answer of the live
page, `ps` and `top` counts as a reason. Alerts have a runbook of their name. Limits
have these names in [`slo.yaml`](alerting.md), for screens and alerts alike."""


class Reads(dict[str, Any]):
    """Changed limits, none, which remembers what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        """Return *default*."""
        self.names.append(name)
        return default


def alerts() -> Iterator[tuple[Alert, list[str]]]:
    """Yield each alert with the limits that were read to build it."""
    limits, reads = Limits(), Reads()
    limits.changed = reads
    for one in cause_alerts(limits):
        yield one, list(dict.fromkeys(reads.names))
        reads.names.clear()
    for objective in slo.load():
        for one in burn_alerts(objective, 1):
            yield one, []


class Mentions(NamedTuple):
    """What a function mentions: limits, topics of findings, texts, and other names."""

    limits: set[str]
    topics: set[str]
    texts: set[str]
    names: set[str]


@cache
def mentions(path: Path) -> Mapping[str, Mentions]:
    """Return what each function of a module mentions."""
    return {
        node.name: Mentions(
            {x.attr for x in ast.walk(node) if is_limit(x)},
            {text for x in ast.walk(node) for text in topic_of(x)},
            {str(x.value) for x in ast.walk(node) if isinstance(x, ast.Constant)},
            {x.id for x in ast.walk(node) if isinstance(x, ast.Name)},
        )
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }


def is_limit(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Return whether *node* is an attribute of ``limits``."""
    if not isinstance(node, ast.Attribute):
        return False
    return getattr(node.value, "id", getattr(node.value, "attr", "")) == "limits"


def topic_of(node: ast.AST) -> list[str]:
    """Return the topic of the finding that *node* makes, if it is a constant."""
    made = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"
    first = node.args[0] if made and node.args else None  # type: ignore[attr-defined]
    return [str(first.value)] if isinstance(first, ast.Constant) else []


def reach(name: str, of: Mapping[str, Mentions], seen: set[str]) -> Iterator[Mentions]:
    """Yield what the function *name* mentions, and those of its module it calls."""
    if name in of and name not in seen:
        seen.add(name)
        yield of[name]
        for other in of[name].names:
            yield from reach(other, of, seen)


def judged() -> dict[str, list[str]]:
    """Return the limits of each finding, and of each reason of the answer."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    modules = [mentions(path) for path in FINDINGS.glob("*.py")]
    made = {t for module in modules for one in module.values() for t in one.topics}
    # Some are chosen from a table.
    chosen = {one.name for one in PROGRAM} - made
    for module in modules:
        for name in module:
            if not name.startswith("_"):
                whole = list(reach(name, module, set()))
                limits = {one for of in whole for one in of.limits}
                for of in whole:
                    for topic in of.topics | (chosen & of.texts):
                        found[topic] |= limits
    kinds = {kind for one in SYMPTOMS.values() for kind in one.kinds}
    answer = mentions(ANSWER)
    for name in answer:
        for kind in kinds & answer[name].texts:
            for of in reach(name, answer, set()):
                found[kind] |= of.limits
    return {name: [one for one in LIMITS if one in of] for name, of in found.items()}


def written() -> str:
    """Return the page."""
    built: defaultdict[str, list[str]] = defaultdict(list)
    severities: defaultdict[str, list[str]] = defaultdict(list)
    for alert, limits in alerts():
        built[alert.name] += limits
        severities[alert.name].append(alert.severity)
    screens = judged()

    def row(one: Symptom) -> list[str]:
        finding = f"finding `{one.name}`" if one in PROGRAM else ""
        shown = ", ".join(filter(None, (finding, "page" * bool(one.kinds))))
        tier = " or ".join(dict.fromkeys(severities[one.alert]))
        alert = f"[{one.alert}](../runbooks/{one.alert}.md), {tier}"
        missing = f"none: {one.missing}" if one.missing else ""
        names = [*screens.get(one.name, ()), *built[one.alert]]
        names += [limit for kind in one.kinds for limit in screens.get(kind, ())]
        limits = [f"`{name}`" for name in dict.fromkeys(names)]
        return [
            one.sentence,
            shown or missing,
            alert if one.alert else missing,
            ", ".join(limits),
            "" if one.metric is None else f"`{one.metric.name}`",
            one.panel,
        ]

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
