"""
A dashboard as JSON of Grafana's classic model, for Grafana 10.4 and later, or of its v2
model.

The same dashboard gives the same bytes: no ids that Grafana assigns, no versions, keys
in order.
"""

from __future__ import annotations

import json

from jaxmon_dashboards.boards import panels
from jaxmon_dashboards.boards.model import WIDTH, Annotation, Dashboard, Notes, Row
from jaxmon_dashboards.boards.panels import DATASOURCE, Json
from jaxmon_dashboards.boards.v2 import resource
from jaxmon_dashboards.boards.variables import DependentVariable, Variable


TAG = "jaxmon"
"""Identifies our dashboards, which link to each other by it."""

# Grafana 11.0's. Every later Grafana migrates it; the new API of 12.0 refuses what
# is newer than itself.
SCHEMA_VERSION = 39

# What annotations read is recorded each minute; between two, nothing can change.
_ANNOTATION_STEP = "1m"
_SIBLINGS = {
    "title": "jaxmon",
    "type": "dashboards",
    "tags": [TAG],
    "icon": "external link",
    "tooltip": "",
    "includeVars": True,
    "keepTime": True,
    "asDropdown": False,
    "targetBlank": False,
}
# Grafana's numbers: values are found again with each time range, and sorted by letters;
# a variable is not shown; all graphs show the cursor of one.
_ON_TIME_RANGE, _ALPHABETICAL, _NOT_SHOWN, _CROSSHAIR = 2, 5, 2, 1


def render(dashboard: Dashboard, *, runbooks: str, datasource: str, v2: bool) -> str:
    """Return *dashboard* as JSON, keys sorted, with a final newline."""
    classic = _classic(dashboard, runbooks, datasource)
    model = resource(classic) if v2 else classic
    return json.dumps(model, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def _classic(dashboard: Dashboard, runbooks: str, datasource: str) -> Json:
    text = "The Prometheus that scrapes agents or sidecars."
    source = _datasource("datasource", "Data source", "prometheus", text)
    if datasource:
        source["current"] = _selected(datasource, datasource)
    variables = [source, *map(_variable, dashboard.variables)]
    if panels.leads_to_traces(dashboard):
        text = "The Tempo that links lead to; none is needed."
        variables.append(_datasource(panels.TRACES, "Traces", panels.TEMPO, text))
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "editable": False,
        "schemaVersion": SCHEMA_VERSION,
        "timezone": "browser",
        "time": {"from": dashboard.since, "to": "now"},
        "fiscalYearStartMonth": 0,
        "refresh": "30s",
        "graphTooltip": _CROSSHAIR,
        "links": [_SIBLINGS],
        "templating": {"list": variables},
        "annotations": {"list": [*map(_annotation, dashboard.annotations)]},
        "panels": _rows(dashboard.rows, runbooks),
    }


def _rows(rows: tuple[Row, ...], runbooks: str) -> list[Json]:
    placed: list[Json] = []
    y = 0
    for row in rows:
        heading: Json = {
            "type": "row",
            "id": row.id,
            "title": row.title,
            "collapsed": row.collapsed,
            "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
            "panels": [],
        }
        placed.append(heading)
        y += 1
        below = y
        inside: list[Json] = heading["panels"] if row.collapsed else placed
        for line in row.lines:
            x = 0
            for panel, width in zip(line.panels, line.widths, strict=True):
                place = {"h": line.height, "w": width, "x": x, "y": below}
                rendered = panels.render(panel, runbooks=runbooks)
                inside.append({**rendered, "gridPos": place})
                x += width
            below += line.height
        if not row.collapsed:
            y = below
    return placed


def _datasource(name: str, label: str, plugin: str, text: str) -> Json:
    made = _any_variable("datasource", name, label, text)
    return {**made, "query": plugin, "regex": ""}


def _variable(variable: Variable | DependentVariable) -> Json:
    name = variable.label if isinstance(variable, Variable) else variable.name
    made = {
        **_any_variable("query", name, variable.title, variable.text),
        "datasource": DATASOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": f"{name}-values"},
        "refresh": _ON_TIME_RANGE,
        "sort": _ALPHABETICAL,
        "multi": True,
        "includeAll": True,
        "current": _selected("All", "$__all"),
    }
    if isinstance(variable, DependentVariable):
        made["regex"] = variable.pattern
        if variable.hidden:
            made["hide"] = _NOT_SHOWN
    if variable.all_value:
        made["allValue"] = variable.all_value
    return made


def _any_variable(kind: str, name: str, label: str, text: str) -> Json:
    """Return what variables of each kind have, those of intervals included."""
    flags = dict.fromkeys(("auto", "includeAll", "multi", "skipUrlSync"), False)
    intervals = {"auto_count": 30, "auto_min": "10s"}
    names = {"type": kind, "name": name, "label": label, "description": text}
    return {**flags, **intervals, **names, "allowCustomValue": True}


def _selected(text: str, value: str) -> Json:
    return {"selected": True, "text": text, "value": value}


def _annotation(annotation: Annotation | Notes) -> Json:
    made: Json = {
        "name": annotation.name,
        "builtIn": 0,
        "enable": True,
        "hide": False,
        "iconColor": annotation.color,
    }
    if isinstance(annotation, Notes):
        made["datasource"] = {"type": "grafana", "uid": "-- Grafana --"}
        tags = {"tags": [*annotation.tags], "matchAny": False}
        return {**made, "target": {"type": "tags", "limit": 100, **tags}}
    return {
        **made,
        "datasource": DATASOURCE,
        "expr": str(annotation.expr),
        "step": _ANNOTATION_STEP,
        "titleFormat": annotation.title,
        "textFormat": annotation.text,
    }
