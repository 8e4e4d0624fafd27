"""
A dashboard as a resource of Grafana's v2 model, for Grafana 13 and later.

It is made from the classic dashboard, in the way in which Grafana converts one, so that
both show the same: a row holds the panels below its heading, and a panel is an element
that the layout refers to.
"""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders.resource import named
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import dashboardv2 as v2
from grafana_foundation_sdk.models.resource import Manifest

from jaxmon.artifacts.dashboards.v2 import elements, variables
from jaxmon.artifacts.dashboards.v2.carrying import LostError, members


API_VERSION = "dashboard.grafana.app/v2"

_DASHBOARD = (
    *("uid", "title", "description", "tags", "editable", "schemaVersion"),
    *("timezone", "time", "refresh", "graphTooltip", "fiscalYearStartMonth"),
    *("panels", "templating", "annotations", "links"),
)
_ROW = ("type", "id", "title", "collapsed", "gridPos", "panels")
_LINK = (
    *("title", "type", "icon", "tooltip", "url", "tags"),
    *("asDropdown", "targetBlank", "includeVars", "keepTime"),
)
_CURSOR = {
    d.DashboardCursorSync.OFF: v2.DashboardCursorSync.OFF,
    d.DashboardCursorSync.CROSSHAIR: v2.DashboardCursorSync.CROSSHAIR,
    d.DashboardCursorSync.TOOLTIP: v2.DashboardCursorSync.TOOLTIP,
}


def resource(classic: d.Dashboard) -> Manifest:
    """
    Return *classic* as a v2 resource; its uid is the resource's name.

    Raises:
        LostError: it has something that is not carried over yet.
    """
    members(classic, known=_DASHBOARD)
    rows = list(_rows(classic))
    spec = v2.Dashboard(
        title=classic.title or "",
        description=classic.description,
        tags=classic.tags or [],
        editable=bool(classic.editable),
        cursor_sync=_CURSOR[classic.graph_tooltip or d.DashboardCursorSync.OFF],
        preload=False,
        time_settings=_time(classic),
        links=[_link(one) for one in classic.links or ()],
        variables=[
            variables.variable(one) for one in classic.templating.list_val or ()
        ],
        annotations=[
            variables.annotation(one) for one in classic.annotations.list_val or ()
        ],
        elements={
            elements.name(panel): elements.element(panel)
            for _, panels in rows
            for panel in panels
        },
        layout=v2.RowsLayoutKind(
            spec=v2.RowsLayoutSpec(rows=[_row(row, panels) for row, panels in rows])
        ),
    )
    return Manifest(
        api_version=API_VERSION,
        kind="Dashboard",
        metadata=named(classic.uid or "").build(),
        spec=spec,
    )


def _rows(classic: d.Dashboard) -> Iterator[tuple[d.RowPanel, list[d.Panel]]]:
    """Yield each row with its panels; those of an open row follow it."""
    heading: d.RowPanel | None = None
    below: list[d.Panel] = []
    for one in classic.panels or ():
        if isinstance(one, d.RowPanel):
            if heading is not None:
                yield heading, below
            heading, below = one, list(one.panels or ())
        elif heading is None:
            msg = f"panel {one.id_val} is above all rows; put it into one"
            raise LostError(msg)
        else:
            below.append(one)
    if heading is not None:
        yield heading, below


def _row(row: d.RowPanel, panels: list[d.Panel]) -> v2.RowsLayoutRowKind:
    members(row, known=_ROW)
    top = (row.grid_pos or d.GridPos()).y + 1
    return v2.RowsLayoutRowKind(
        spec=v2.RowsLayoutRowSpec(
            title=row.title,
            collapse=row.collapsed,
            layout=v2.GridLayoutKind(
                spec=v2.GridLayoutSpec(
                    items=[elements.item(one, top=top) for one in panels]
                )
            ),
        )
    )


def _time(classic: d.Dashboard) -> v2.TimeSettingsSpec:
    time = classic.time or d.DashboardDashboardTime()
    return v2.TimeSettingsSpec(
        timezone=classic.timezone,
        from_val=time.from_val,
        to=time.to,
        auto_refresh=classic.refresh or "",
        fiscal_year_start_month=classic.fiscal_year_start_month or 0,
    )


def _link(link: d.DashboardLink) -> v2.DashboardLink:
    members(link, known=_LINK)
    return v2.DashboardLink(
        title=link.title,
        type_val=v2.DashboardLinkType(link.type_val),
        icon=link.icon,
        tooltip=link.tooltip,
        url=link.url,
        tags=link.tags,
        as_dropdown=link.as_dropdown,
        target_blank=link.target_blank,
        include_vars=link.include_vars,
        keep_time=link.keep_time,
    )
