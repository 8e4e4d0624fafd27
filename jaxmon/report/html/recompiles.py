"""What was recompiled, and what differed from the calls before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from jaxmon.facts.events import Recompile
from jaxmon.facts.functions import Function
from jaxmon.facts.process import Snapshot
from jaxmon.formats.layout import ago, counted, duration
from jaxmon.report.html.elements import NOTHING, Html, element, folded, text


_MOST_FUNCTIONS, _FEW = 30, 5
_MOST = 5


def recompiles(snapshot: Snapshot) -> Html:
    """Return the functions that were recompiled, those that took longest first."""
    found = [one for one in snapshot.functions if one.recompiles and not one.internal]
    if not found:
        return NOTHING
    items = [
        _function(one, [r for r in snapshot.recompiles if r.function == one.name], now)
        for now in (snapshot.process.now,)
        for one in found[:_MOST_FUNCTIONS]
    ]
    few = _FEW if len(items) > _FEW + 1 else len(items)
    shown = element("ol", *items[:few], class_="findings")
    rest = element("ol", *items[few:], class_="findings")
    title = element("h2", text("Recompiles"))
    note = element("span", text("What differed from the calls before, latest first"))
    return element(
        "section",
        element("div", title, note, class_="head"),
        element("div", folded(shown, rest, len(items) - few), class_="card"),
    )


def _function(one: Function, known: Sequence[Recompile], now: float) -> Html:
    causes = sorted(one.recompiles.items(), key=lambda item: (-item[1], item[0]))
    said = ", ".join(f"{cause.replace('_', ' ')} {n:,}" for cause, n in causes)
    newest = sorted(known, key=lambda found: -found.time)
    groups = [list(g) for _, g in groupby(newest, key=lambda r: (r.cause, r.texts))]
    shown = [_group(group, now) for group in groups[:_MOST]]
    left = len(groups) - _MOST
    if left > 0:
        shown.append(element("small", text(f"and {counted(left, 'earlier one')}")))
    return element(
        "li",
        element("p", element("strong", text(one.name)), text(f": {said}")),
        element("small", text(one.place)) if one.place else NOTHING,
        *shown,
    )


def _group(same: Sequence[Recompile], now: float) -> Html:
    """Return recompiles that differ in nothing but their time."""
    latest = same[0]
    facts = [f"{len(same)} identical"] if len(same) > 1 else []
    if latest.seconds is not None:
        facts.append(duration(latest.seconds))
    facts.append(ago(now - latest.time))
    if latest.place:
        facts.append(f"called at {latest.place}")
    reasons = list(latest.texts) or [latest.cause.replace("_", " ")]
    if latest.omitted:
        reasons.append(f"and {latest.omitted} more")
    lines = [element("code", text(one)) for one in reasons]
    return element("div", *lines, element("small", text(" · ".join(facts))))
