"""
A dashboard as JSON of Grafana's classic model, for Grafana 10.4 and later, or of its v2
model, for Grafana 13 and later. The same dashboard gives the same bytes: no ids that
Grafana assigns, no versions, keys in order.

The v2 resource is made from the classic dashboard in the way in which Grafana converts
one, so that both show the same: a row holds the panels below its heading, and a panel
is an element that the layout refers to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models.common import DataSourceRef

from jaxmon_dashboards.boards import panels
from jaxmon_dashboards.boards.model import (
    WIDTH,
    Annotation,
    Dashboard,
    DependentVariable,
    Notes,
    Row,
    Variable,
)
from jaxmon_dashboards.boards.panels import DATASOURCE, visible
from jaxmon_dashboards.grafana.content import API_VERSION, KIND


Json: TypeAlias = dict[str, Any]

# The v2 model has names for the numbers of the classic one.
_CURSOR = ("Off", "Crosshair", "Tooltip")
_HIDE = ("dontHide", "hideLabel", "hideVariable")
_REFRESH = ("never", "onDashboardLoad", "onTimeRangeChanged")
_SORT = (
    *("disabled", "alphabeticalAsc", "alphabeticalDesc"),
    *("numericalAsc", "numericalDesc"),
    *("alphabeticalCaseInsensitiveAsc", "alphabeticalCaseInsensitiveDesc"),
)
# Offered in the time picker; the classic model has none of its own.
_INTERVALS = ("5s", "10s", "30s", "1m", "5m", "15m", "30m", "1h", "2h", "1d")


def resource(classic: d.Dashboard) -> Json:
    """Return *classic* as a v2 resource."""
    found: Json = json.loads(JSONEncoder().encode(classic))
    rows = list(_rows_resource(found["panels"]))
    time = found["time"]
    settings = {
        "timezone": found["timezone"],
        "from": time["from"],
        "to": time["to"],
        "autoRefresh": found["refresh"],
        "autoRefreshIntervals": _INTERVALS,
        "fiscalYearStartMonth": found.get("fiscalYearStartMonth", 0),
        "hideTimepicker": False,
    }
    spec = {
        **_carried(found, "title", "description", "tags", "editable", "links"),
        "cursorSync": _CURSOR[found["graphTooltip"]],
        "preload": False,
        "timeSettings": settings,
        "variables": [*map(_variable_resource, found["templating"]["list"])],
        "annotations": [*map(_annotation_resource, found["annotations"]["list"])],
        "elements": {_name(of): _element(of) for _, panels in rows for of in panels},
        "layout": _kind("RowsLayout", {"rows": [row for row, _ in rows]}),
    }
    metadata = {"metadata": {"name": found["uid"]}}
    return {"apiVersion": API_VERSION, **metadata, **_kind(KIND, spec)}


def _rows_resource(panels: list[Json]) -> Iterator[tuple[Json, list[Json]]]:
    headings = [at for at, panel in enumerate(panels) if panel["type"] == "row"]
    for at, end in pairwise([*headings, len(panels)]):
        row = panels[at]
        inside = [*(row.get("panels") or ()), *panels[at + 1 : end]]
        items = {"items": [_item(panel, row["gridPos"]["y"] + 1) for panel in inside]}
        spec = {
            "title": row["title"],
            "collapse": row["collapsed"],
            "layout": _kind("GridLayout", items),
        }
        yield _kind("RowsLayoutRow", spec), inside


def _item(panel: Json, top: int) -> Json:
    place = panel["gridPos"]
    spec = {
        "x": place["x"],
        "y": place["y"] - top,
        "width": place["w"],
        "height": place["h"],
        "element": {"kind": "ElementReference", "name": _name(panel)},
    }
    return _kind("GridLayoutItem", spec)


def _name(panel: Json) -> str:
    return f"panel-{panel['id']}"


def _element(panel: Json) -> Json:
    # Each query names its data source; the panel's is not used.
    data = {
        "queries": [_panel_query(target) for target in panel["targets"]],
        "transformations": [
            {"group": step.pop("id"), **_kind("Transformation", step)}
            for step in panel.get("transformations", ())
        ],
        "queryOptions": _carried(panel, "maxDataPoints"),
    }
    viz = _kind("VizConfig", _carried(panel, "options", "fieldConfig"))
    spec = {
        **_carried(panel, "id", "title", "description"),
        "links": [
            _carried(link, "title", "url", "targetBlank")
            for link in panel.get("links", ())
        ],
        "data": _kind("QueryGroup", data),
        "vizConfig": {**viz, "group": panel["type"], "version": ""},
    }
    return _kind("Panel", spec)


def _panel_query(target: Json) -> Json:
    spec = {"refId": target.pop("refId"), "hidden": target.pop("hide", False)}
    source = target.pop("datasource")
    return _kind("PanelQuery", {**spec, "query": _query(target, source)})


def _query(spec: Json, source: Json) -> Json:
    return {
        **_kind("DataQuery", spec),
        "group": source["type"],
        "version": "v0",
        "datasource": {"name": source["uid"]},
    }


def _variable_resource(variable: Json) -> Json:
    spec = {
        "current": variable.get("current", {"text": "", "value": ""}),
        "hide": _HIDE[variable.get("hide", 0)],
        "refresh": _REFRESH[variable.get("refresh", 0)],
        "regex": variable.get("regex", ""),
        "options": [],
        **_carried(variable, "name", "label", "description", "allValue"),
    }
    for flag in ("multi", "includeAll", "skipUrlSync", "allowCustomValue"):
        spec[flag] = variable.get(flag, False)
    if variable["type"] == "datasource":
        return _kind("DatasourceVariable", {**spec, "pluginId": variable["query"]})
    spec |= {
        "sort": _SORT[variable.get("sort", 0)],
        "query": _query(variable["query"], variable["datasource"]),
        "regexApplyTo": "value",
        **_carried(variable, "definition"),
    }
    return _kind("QueryVariable", spec)


def _annotation_resource(annotation: Json) -> Json:
    spec = {
        "builtIn": False,
        "hide": annotation.get("hide", False),
        **_carried(annotation, "name", "enable", "iconColor"),
    }
    query = annotation.get("target")
    if query is None:
        # Grafana reads the query from here if it is there, but has no place for the
        # formats of Prometheus other than the options of old.
        query = {"expr": annotation["expr"], "interval": annotation["step"]}
        query["refId"] = "Anno"
        spec["legacyOptions"] = _carried(annotation, "titleFormat", "textFormat")
    return _kind(
        "AnnotationQuery", spec | {"query": _query(query, annotation["datasource"])}
    )


def _carried(found: Json, *names: str) -> Json:
    """Return the members *names*, which both models have, of what is *found*."""
    return {name: found[name] for name in names if name in found}


def _kind(kind: str, spec: Json) -> Json:
    return {"kind": kind, "spec": spec}


TAG = "jaxmon"
"""Identifies our dashboards, which link to each other by it."""

# Grafana 11.0's. Every later Grafana migrates it; the new API of 12.0 refuses what
# is newer than itself, as the SDK's 42 is.
SCHEMA_VERSION = 39

# What annotations read is recorded each minute; between two, nothing can change.
_ANNOTATION_STEP = "1m"
_SIBLINGS = visible(
    d.DashboardLink(
        title="jaxmon",
        type_val=d.DashboardLinkType.DASHBOARDS,
        icon="external link",
        tags=[TAG],
        include_vars=True,
        keep_time=True,
    )
)


def render(dashboard: Dashboard, *, runbooks: str, datasource: str, v2: bool) -> str:
    """Return *dashboard* as JSON, keys sorted, with a final newline."""
    classic = _classic(dashboard, runbooks, datasource)
    model = resource(classic) if v2 else classic
    encoder = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False)
    return f"{encoder.encode(model)}\n"


def _classic(dashboard: Dashboard, runbooks: str, datasource: str) -> d.Dashboard:
    text = "The Prometheus that scrapes agents or sidecars."
    source = _datasource("datasource", "Data source", "prometheus", text)
    if datasource:
        source.current = _selected(datasource, datasource)
    variables = [source, *map(_variable, dashboard.variables)]
    if any(map(panels.traced_labels, dashboard.panels)):
        text = "The Tempo that links lead to; none is needed."
        variables.append(_datasource(panels.TRACES, "Traces", panels.TEMPO, text))
    return d.Dashboard(
        uid=dashboard.uid,
        title=dashboard.title,
        description=dashboard.description,
        tags=[TAG],
        editable=False,
        schema_version=SCHEMA_VERSION,
        timezone="browser",
        time=d.DashboardDashboardTime(from_val=dashboard.since, to="now"),
        refresh="30s",
        graph_tooltip=d.DashboardCursorSync.CROSSHAIR,
        links=[_SIBLINGS],
        templating=d.DashboardDashboardTemplating(list_val=variables),
        annotations=d.AnnotationContainer(
            list_val=[*map(_annotation, dashboard.annotations)]
        ),
        panels=_rows(dashboard.rows, runbooks),
    )


def _rows(rows: tuple[Row, ...], runbooks: str) -> list[d.Panel | d.RowPanel]:
    placed: list[d.Panel | d.RowPanel] = []
    y = 0
    for row in rows:
        heading = d.RowPanel(
            id_val=row.id,
            title=row.title,
            collapsed=row.collapsed,
            grid_pos=d.GridPos(h=1, w=WIDTH, x=0, y=y),
        )
        placed.append(heading)
        y += 1
        below = y
        inside: list[d.Panel] = []
        for line in row.lines:
            x = 0
            for panel, width in zip(line.panels, line.widths, strict=True):
                rendered = panels.render(panel, runbooks=runbooks)
                rendered.grid_pos = d.GridPos(h=line.height, w=width, x=x, y=below)
                inside.append(rendered)
                x += width
            below += line.height
        if row.collapsed:
            heading.panels = inside
        else:
            placed += inside
            y = below
    return placed


def _datasource(name: str, label: str, plugin: str, text: str) -> d.VariableModel:
    return d.VariableModel(
        type_val=d.VariableType.DATASOURCE,
        name=name,
        label=label,
        description=text,
        query=plugin,
        regex="",
    )


def _variable(variable: Variable | DependentVariable) -> d.VariableModel:
    name = variable.label if isinstance(variable, Variable) else variable.name
    model = d.VariableModel(
        type_val=d.VariableType.QUERY,
        name=name,
        label=variable.title,
        description=variable.text,
        datasource=DATASOURCE,
        definition=variable.query,
        query={"query": variable.query, "refId": f"{name}-values"},
        refresh=d.VariableRefresh.ON_TIME_RANGE_CHANGED,
        sort=d.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC,
        multi=True,
        include_all=True,
        current=_selected("All", "$__all"),
        all_value=variable.all_value or None,
    )
    if isinstance(variable, DependentVariable):
        model.regex = variable.pattern
        if variable.hidden:
            model.hide = d.VariableHide.HIDE_VARIABLE
    return model


def _selected(text: str, value: str) -> d.VariableOption:
    return d.VariableOption(selected=True, text=text, value=value)


def _annotation(annotation: Annotation | Notes) -> d.AnnotationQuery:
    query = visible(
        d.AnnotationQuery(name=annotation.name, icon_color=annotation.color)
    )
    if isinstance(annotation, Notes):
        query.datasource = DataSourceRef(type_val="grafana", uid="-- Grafana --")
        # The SDK wants a query there, which this data source has none of.
        query.target = d.AnnotationTarget(  # type: ignore[assignment]
            limit=100, tags=[*annotation.tags], type_val="tags"
        )
    else:
        query.datasource = DATASOURCE
        query.expr = str(annotation.expr)
        query.step = _ANNOTATION_STEP
        query.title_format = annotation.title
        query.text_format = annotation.text
    return query
