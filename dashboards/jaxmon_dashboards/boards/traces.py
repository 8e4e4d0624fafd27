"""
From panels to traces: exemplars, and links to Explore.

What panels query has exemplars if it is a histogram that agents give trace ids, and is
queried as it is: what rules record has none. A Grafana without a data source of traces
shows the same panels; the links then lead to an Explore without one.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from jaxmon import catalog
from jaxmon_dashboards.boards.model import Dashboard, Link, Panel, Target


VARIABLE = "traces"
"""The variable with the data source of traces."""

PLUGIN = "tempo"

_TRACED = {
    catalog.REQUEST_SECONDS.name: "route",
    catalog.COMPILE_SECONDS.name: "function",
    catalog.STEP_SECONDS.name: "loop",
}
"""Histograms with trace ids, and what distinguishes them, as label and as attribute."""

_GRAFANAS = re.compile(r"(\$\{[^}]+\})")


def has_exemplars(target: Target) -> bool:
    """Return whether what *target* queries has exemplars."""
    return "_bucket" in str(target.expr) and bool(_TRACED.keys() & _names(target))


def links(panel: Panel) -> list[Link]:
    """Return links to the traces that *panel* is about: all of the service's."""
    labels = _labels(panel)
    if not labels or panel.kind == "table":
        return []
    wanted = " || ".join(f"span.jaxmon.{one} != nil" for one in labels)
    return [Link("Traces", explore(wanted))]


def series_links(panel: Panel) -> list[Link]:
    """Return links from a series of *panel* to its own traces."""
    if panel.kind != "timeseries":
        return []
    return [
        Link(f"Traces of this {one}", explore(_of(one, f"__field.labels.{one}")))
        for one in _labels(panel)
        if all(one in (target.expr.shape.labels or ()) for target in panel.targets)
    ]


def cell_links(panel: Panel) -> dict[str, Link]:
    """Return links from the cells of a table to their traces, by label."""
    if panel.kind != "table":
        return {}
    return {
        one: Link(f"Traces of this {one}", explore(_of(one, "__value.text")))
        for one in _labels(panel)
        if one in panel.labels
    }


def linked(dashboard: Dashboard) -> bool:
    """Return whether a panel of *dashboard* leads to traces."""
    return any(_labels(panel) for panel in dashboard.panels)


def explore(wanted: str) -> str:
    """Return the address of Explore with the traces that have spans as *wanted*."""
    source = f"${{{VARIABLE}}}"
    query = f'{{ resource.service.name =~ "${{job:pipe}}" && ({wanted}) }}'
    pane = {
        "datasource": source,
        "queries": [
            {
                "refId": "A",
                "datasource": {"type": PLUGIN, "uid": source},
                "queryType": "traceql",
                "query": query,
            }
        ],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    text = json.dumps({"traces": pane}, separators=(",", ":"))
    # Grafana fills in its variables before the browser reads the address.
    parts = [
        part if _GRAFANAS.fullmatch(part) else quote(part, safe="")
        for part in _GRAFANAS.split(text)
    ]
    return f"/explore?schemaVersion=1&panes={''.join(parts)}"


def _of(label: str, value: str) -> str:
    return f'span.jaxmon.{label} = "${{{value}:percentencode}}"'


def _names(target: Target) -> set[str]:
    return set(target.expr.shape.metrics)


def _labels(panel: Panel) -> list[str]:
    # What rules have recorded of a histogram has its name in theirs.
    names = " ".join(name for one in panel.targets for name in _names(one))
    return [label for name, label in _TRACED.items() if name in names]
