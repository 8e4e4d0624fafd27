"""
docs/symptoms.md: everything that can be wrong, who says it, and by which limits.

It begins with what newcomers see (complaints.yaml), as does the guide in runbooks/.

The limits of an alert are those that are read as it is built, and those of a judgement
the ones that its function mentions, and what this calls in its module or in that of
estimates, unless that judges other symptoms; likewise its facts. What agents and
`jaxmon.job` judge by, symptoms say themselves. Metrics are those that are judged, by
alerts or for the page.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple, TypeGuard

import yaml

from jaxmon import catalog
from jaxmon.catalog import BY_NAME
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.limits import LIMITS
from jaxmon.promql import records
from jaxmon.symptoms import estimates
from jaxmon.symptoms.alert import Alert, SiteLimits
from jaxmon.symptoms.findings import SYMPTOMS
from jaxmon.symptoms.symptom import MODES, Symptom
from jaxmon_alerts import slo
from jaxmon_alerts.rules.build import burn_alerts
from jaxmon_alerts.rules.explanation import ReadLimits
from jaxmon_dashboards.boards import all_dashboards
from jaxmon_dashboards.boards.model import Dashboard
from tools.markdown import page, table
from tools.reference import HEADER


COMPLAINTS = yaml.safe_load(Path(__file__).with_name("complaints.yaml").read_text())
MAKERS = ("Finding", "reason", "_of_route", "_costs")

WIDTH = 100
FIRST = """\
Find what you see, run the command, and look for what it says in the second column.
Causes link to runbooks. `jaxmon runbook show symptoms` prints this in a terminal."""
TASKS = """\
To [mute alerts at night](alerting.md#receivers), to compare a
[canary, or two releases](dashboards.md#two-releases), and for all other tasks, see the
[index](README.md)."""
INTRODUCTION = """\
## Everything that can be wrong

All that jaxmon says of a program, a host or a job, by kind of failure. In the first
column,

- *finding* has the topic in `jaxmon explain --json`;
- *page* means that the live page, `ps` and `top` give it as a reason for their answer
  (`kind` has the same name);
- *job* means that `jaxmon job why` says it.

A process, its host or a job [reports](contributors/architecture.md#the-life-of-a-fact)
the facts. [`slo.yaml`](alerting.md) sets the limits, for screens and alerts alike. Only
the weekly report and boards use `accelerator_idle`."""
# Of a fact in the code, what it is called in JSON; the rest is no fact of its own.
FIELDS = {name: name for name in (*Snapshot.fields, *HostFacts._fields)} | {
    "of_kind": "events",
    "users": "functions",
    "compile_time": "functions",
    "load_time": "functions",
    "spans": "functions",
    "busy_seconds": "time",
    "saves_blocked": "checkpoints",
    **dict.fromkeys(("process", "limits", "now", "recent", "lately"), ""),
    "requests_lately": "requests",
    "verdict": "",
}


def built(symptom: Symptom) -> tuple[list[Alert], list[str]]:
    """Return the rules of the alert of *symptom*, and the limits that these read."""
    if symptom.rule[1] is None:
        budgets = (one for one in slo.load() if one.alert == symptom.alert)
        return [one for slo in budgets for one in burn_alerts(slo, 1)], []
    limits, reads = SiteLimits(), ReadLimits({})
    limits.changed = reads
    return symptom.alerts(limits), list(reads.names)


def queried(alerts: Iterable[Alert]) -> Iterator[str]:
    """Yield the metrics that the queries of *alerts* name, as such or as recorded."""
    expressions = [one.expr for one in alerts]
    recorded = (series.expr for series in records(expressions).values())
    text = " ".join(map(str, (*expressions, *recorded)))
    for name in re.findall(r"(?:jaxmon|process)_\w+", text):
        stem = re.sub("_(sum|count|bucket)$", "", name)
        yield from (one for one in (name, f"{name}_total", stem) if one in BY_NAME)


class Mentions(NamedTuple):
    """What a function mentions: limits, facts, metrics, symptoms, other names."""

    limits: set[str]
    facts: set[str]
    metrics: set[str]
    symptoms: set[str]
    names: set[str]


@cache
def mentions(path: str) -> Mapping[str, Mentions]:
    """Return what each function and method of a module mentions, and its estimates."""
    tree = ast.parse(Path(path).read_text())
    modules = {x.module for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)}
    uses = estimates.__name__ in modules
    return {**(mentions(inspect.getfile(estimates)) if uses else {})} | {
        node.name: Mentions(
            {x.attr for x in ast.walk(node) if is_of(x, "limits")},
            {x.attr for x in ast.walk(node) if is_of(x, "snapshot", "facts")},
            {x.attr for x in ast.walk(node) if is_of(x, "catalog")},
            {text for x in ast.walk(node) for text in made_by(x)},
            {name for x in ast.walk(node) if (name := called(x))},
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


def called(node: ast.AST) -> str:
    """Return the function, or the method of this module, that *node* may be."""
    if isinstance(node, ast.Attribute):
        ours = node.attr == "judge" or getattr(node.value, "id", "") == "self"
        return node.attr if ours else ""
    return node.id if isinstance(node, ast.Name) else ""


def is_of(node: ast.AST, *names: str) -> TypeGuard[ast.Attribute]:
    """Return whether *node* is an attribute of one of *names*."""
    if not isinstance(node, ast.Attribute):
        return False
    return getattr(node.value, "id", getattr(node.value, "attr", "")) in names


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
) -> Iterator[Mentions]:
    """Yield what the function *name* mentions, and what it calls, to judge *about*."""
    if name not in of or name in seen:
        return
    seen.add(name)
    if of[name].symptoms <= {about} or about in of[name].symptoms or len(seen) == 1:
        yield of[name]
        for other in sorted(of[name].names):
            yield from reach(other, about, of, seen)


def judged(symptom: Symptom) -> Iterator[Mentions]:
    """Yield what the judges of a finding, and of a reason of the answer, mention."""
    judges: list[Callable[..., Any] | None]
    judges = [symptom.finding, symptom.together, symptom.reason]
    for judge in [one for one in judges if one]:
        of = mentions(inspect.getfile(inspect.unwrap(judge)))
        yield from reach(judge.__name__, symptom.name, of, set())


def row(one: Symptom) -> list[str]:
    """Return the row of the page."""
    finding = f"finding `{one.name}`" if one.finding or one.together else ""
    named = "page" if finding else f"page `{one.name}`"
    # What has an alert is on the page at the latest when that fires.
    on_page = one.reason or one.severity or (finding and one.alert)
    job = "job" if one.ranks else ""
    shown = ", ".join(filter(None, (finding, named if on_page else "", job)))
    alerts, limits = built(one)
    tier = " or ".join(dict.fromkeys(alert.severity for alert in alerts))
    missing = f"none: {one.missing}" if one.missing else ""
    found = [*judged(one)]
    mentioned = {limit for of in found for limit in of.limits}
    facts = {FIELDS.get(fact, "") for of in found for fact in of.facts} - {""}
    facts |= {"time" for of in found if "Period" in of.names}
    read = [getattr(catalog, name).name for of in found for name in sorted(of.metrics)]
    shows = [] if one.metric is None else [one.metric.name]
    # What only metrics judge needs no facts; an objective has limits of its own.
    budget = "those of the objective" if one.alert and one.rule[1] is None else ""
    advice = "none: the finding has the advice" if finding else "none: `job why` has it"
    book = f"[{one.runbook}](../runbooks/{one.runbook}.md)" if one.runbook else advice
    panel = one.panel or next(panels(one.alert), "") or "none: no metric has it"
    parts = {
        "facts": listed([*sorted(facts), *(["ranks"] if one.ranks else [])])
        or ("none: metrics have it" if one.reason or not finding else ""),
        "metrics": listed([*shows, *read, *queried(alerts)])
        or budget
        or "none: only facts have it",
        "limits": listed(
            [
                *(*one.observed, *one.ranks),
                *(name for name in LIMITS if name in mentioned),
                *limits,
            ]
        )
        or budget
        or "none: once is enough",
    }
    alert = f"{one.alert}, {tier}" if one.alert else missing
    return [
        f"{one.sentence}<br>{shown or missing}",
        "<br>".join(f"{name}: {text}" for name, text in parts.items()),
        f"alert: {alert}<br>runbook: {book}<br>panel: {panel}",
    ]


@cache
def boards() -> tuple[Dashboard, ...]:
    """Return all dashboards; to build them takes a while."""
    return all_dashboards()


def panels(alert: str) -> Iterator[str]:
    """Yield the panels that show the cause of *alert*, with their dashboards."""
    for board in boards():
        title = board.title.removeprefix("jaxmon / ")
        yield from (f"{title}: {p.title}" for p in board.panels if alert in p.alerts)


def listed(names: Iterable[str]) -> str:
    """Return *names*, each once."""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def may_be(cause: Mapping[str, Any]) -> str:
    """Return the sentences of the symptoms of *cause*; a name that is none fails."""
    return " ".join(SYMPTOMS[name].sentence for name in cause["symptoms"])


def linked(cause: Mapping[str, Any]) -> str:
    """Return the same with links to the runbooks."""
    symptoms = [SYMPTOMS[name] for name in cause["symptoms"]]
    return " ".join(
        f"[{s.sentence}](../runbooks/{s.runbook}.md)" if s.runbook else s.sentence
        for s in symptoms
    )


def complaint(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the rows of what a newcomer sees, one for each cause."""
    commands = "<br>".join(f"`{command}`" for command in found["commands"])
    first = [f"**{found['text']}**<br>{commands} [More]({found['page']})"]
    for cause in found["causes"]:
        yield [*first, linked(cause), cause["remedy"]]
        first = [""]


def guide() -> str:
    """Return the same rows for a terminal, with the runbooks."""
    parts = ["# By symptom"]
    for found in COMPLAINTS:
        commands = "\n".join(f"    {command}" for command in found["commands"])
        items = []
        for cause in found["causes"]:
            runbooks = (SYMPTOMS[name].runbook for name in cause["symptoms"])
            known = dict.fromkeys(filter(None, runbooks))
            more = f" See {', '.join(known)}." if known else ""
            # A terminal shows marks of code as they are.
            text = f"- {may_be(cause)} {cause['remedy']}{more}".replace("`", "")
            items.append(fill(text, WIDTH, subsequent_indent="  "))
        parts += [f"## {found['text']}", commands, "\n".join(items)]
    return page(*parts)


def written() -> str:
    """Return the page."""
    head = ("What, and which screen has it", "Judged by", "Alert and panel")
    seen = ("What you see, and the command", "What it is", "Remedy")
    newcomers = table(seen, chain.from_iterable(map(complaint, COMPLAINTS)))
    parts = [HEADER, "# By symptom", f"{FIRST}\n{TASKS}", newcomers, INTRODUCTION]
    for mode, title in MODES.items():
        rows = [row(one) for one in SYMPTOMS.values() if one.mode == mode]
        parts += [f"### {title}{f' ({mode})' if mode else ''}", table(head, rows)]
    return page(*parts)


def render() -> dict[str, str]:
    """Return the page and the guide, by path."""
    return {"docs/symptoms.md": written(), "runbooks/symptoms.md": guide()}
