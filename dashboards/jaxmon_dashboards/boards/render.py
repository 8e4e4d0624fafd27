"""
A dashboard as JSON of Grafana's classic model, for Grafana 10.4 and later, or of its v2
model.

The same dashboard gives the same bytes: no ids that Grafana assigns, no versions, keys
in order.
"""

from __future__ import annotations

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models.common import DataSourceRef

from jaxmon_dashboards.boards import panels
from jaxmon_dashboards.boards.model import WIDTH, Annotation, Dashboard, Notes, Row
from jaxmon_dashboards.boards.panels import DATASOURCE, visible
from jaxmon_dashboards.boards.v2 import resource
from jaxmon_dashboards.boards.variables import DependentVariable, Variable


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
    if panels.leads_to_traces(dashboard):
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
