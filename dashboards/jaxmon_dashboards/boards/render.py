"""
A dashboard as JSON of Grafana's classic model, for Grafana 10.4 and later, or of its v2
model.

The same dashboard gives the same bytes: no ids that Grafana assigns, no versions, keys
in order.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as classic
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as d

from jaxmon_dashboards.boards import panels, traces
from jaxmon_dashboards.boards.build import Format
from jaxmon_dashboards.boards.model import (
    Annotation,
    Dashboard,
    Notes,
    Row,
)
from jaxmon_dashboards.boards.v2 import resource
from jaxmon_dashboards.boards.variables import DependentVariable, Variable


TAG = "jaxmon"
"""Identifies our dashboards, which link to each other by it."""

# Grafana 11.0's. Every later Grafana migrates it; the new API of 12.0 refuses what
# is newer than itself, as the SDK's own 42 is.
SCHEMA_VERSION = 39

# What annotations read is recorded each minute; between two, nothing can change.
_ANNOTATION_STEP = "1m"


def render(
    dashboard: Dashboard, *, runbooks: str, datasource: str, form: Format
) -> str:
    """Return *dashboard* as JSON, keys sorted, with a final newline."""
    built = _classic(dashboard, runbooks, datasource)
    model = built if form == "classic" else resource(built)
    encoder = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False)
    return f"{encoder.encode(model)}\n"


def _classic(dashboard: Dashboard, runbooks: str, datasource: str) -> d.Dashboard:
    builder = (
        classic.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags([TAG])
        .timezone("browser")
        .time(dashboard.since, "now")
        .refresh("30s")
        .tooltip(d.DashboardCursorSync.CROSSHAIR)
        .readonly()
    )
    text = "The Prometheus that scrapes agents or sidecars."
    source = _datasource("datasource", "Data source", "prometheus", text)
    if datasource:
        source.current(
            d.VariableOption(selected=True, text=datasource, value=datasource)
        )
    builder.with_variable(source)
    for variable in dashboard.variables:
        builder.with_variable(_variable(variable))
    if traces.linked(dashboard):
        text = "The Tempo that links lead to; none is needed."
        builder.with_variable(
            _datasource(traces.VARIABLE, "Traces", traces.PLUGIN, text)
        )
    built = builder.build()
    built.schema_version = SCHEMA_VERSION
    built.links = [_siblings()]
    built.annotations = d.AnnotationContainer(
        [_annotation(a) for a in dashboard.annotations]
    )
    # Placed by hand: the builder lets a panel overlap the edge of the grid.
    built.panels = _rows(dashboard.rows, runbooks)
    return built


def _rows(rows: tuple[Row, ...], runbooks: str) -> list[d.Panel | d.RowPanel]:
    placed: list[d.Panel | d.RowPanel] = []
    y = 0
    for row in rows:
        heading = d.RowPanel(
            collapsed=row.collapsed,
            title=row.title,
            grid_pos=d.GridPos(h=1, w=24, x=0, y=y),
            id_val=row.id,
        )
        placed.append(heading)
        y += 1
        below = y
        inside: list[d.Panel] = []
        for line in row.lines:
            x = 0
            for panel, width in zip(line.panels, line.widths, strict=True):
                one = panels.render(panel, runbooks=runbooks)
                one.grid_pos = d.GridPos(h=line.height, w=width, x=x, y=below)
                inside.append(one)
                x += width
            below += line.height
        if row.collapsed:
            heading.panels = inside
        else:
            placed += inside
            y = below
    return placed


def _datasource(
    name: str, label: str, kind: str, text: str
) -> classic.DatasourceVariable:
    variable = classic.DatasourceVariable(name).label(label).description(text)
    return variable.type(kind).regex("")


def _variable(variable: Variable | DependentVariable) -> classic.QueryVariable:
    name = variable.label if isinstance(variable, Variable) else variable.name
    builder = (
        classic.QueryVariable(name)
        .label(variable.title)
        .description(variable.text)
        .datasource(panels.DATASOURCE)
        .definition(variable.query)
        .query({"query": variable.query, "refId": f"{name}-values"})
        .refresh(d.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(d.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .current(d.VariableOption(selected=True, text="All", value="$__all"))
    )
    if isinstance(variable, DependentVariable):
        builder.regex(variable.pattern)
        if variable.hidden:
            builder.hide(d.VariableHide.HIDE_VARIABLE)
    if variable.all_value:
        builder.all_value(variable.all_value)
    return builder


def _annotation(annotation: Annotation | Notes) -> d.AnnotationQuery:
    builder = (
        classic.AnnotationQuery()
        .name(annotation.name)
        .enable(enable=True)
        .hide(hide=False)
        .icon_color(annotation.color)
    )
    if isinstance(annotation, Notes):
        built = builder.datasource(panels.GRAFANA).build()
        tags = [*annotation.tags]
        # The SDK wants a query there, which this data source has none of.
        built.target = d.AnnotationTarget(  # type: ignore[assignment]
            limit=100, match_any=False, tags=tags, type_val="tags"
        )
    else:
        builder.datasource(panels.DATASOURCE).expr(str(annotation.expr)).step(
            _ANNOTATION_STEP
        )
        builder.title_format(annotation.title).text_format(annotation.text)
        built = builder.build()
    built.placement = None  # type: ignore[assignment]  # as in panels.placed
    return built


def _siblings() -> d.DashboardLink:
    builder = (
        classic.DashboardLink("jaxmon")
        .type(d.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .icon("external link")
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
    )
    return panels.placed(builder.build())
