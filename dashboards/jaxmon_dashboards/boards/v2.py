"""
Dashboards in Grafana's v2 model, for Grafana 13 and later: a resource, made from the
classic dashboard in the way in which Grafana converts one, so that both show the same.

A row holds the panels below its heading, and a panel is an element that the layout
refers to. What is alike in both models is carried over, and nothing is lost on the way:
what the v2 model has no place for is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from grafana_foundation_sdk.builders.resource import named
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import dashboardv2 as v2
from grafana_foundation_sdk.models.resource import Manifest


if TYPE_CHECKING:
    from grafana_foundation_sdk.models.common import DataSourceRef


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
        variables=[variable(one) for one in classic.templating.list_val or ()],
        annotations=[annotation(one) for one in classic.annotations.list_val or ()],
        elements={
            name(panel): element(panel) for _, panels in rows for panel in panels
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
                spec=v2.GridLayoutSpec(items=[item(one, top=top) for one in panels])
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


_PANEL = (
    *("type", "id", "title", "description", "datasource", "targets", "gridPos"),
    *("links", "repeat", "repeatDirection", "maxPerRow", "transformations"),
    *("options", "fieldConfig", "transparent"),
    *("maxDataPoints", "interval", "timeFrom", "timeShift", "hideTimeOverride"),
)
_PANEL_LINK = ("title", "type", "url", "targetBlank")
_TARGET_OWN = ("refId", "hide", "datasource")


def name(panel: d.Panel) -> str:
    """Return the name of *panel* among the elements, as Grafana itself gives it."""
    return f"panel-{panel.id_val}"


def element(panel: d.Panel) -> v2.PanelKind:
    """
    Return *panel*, without its place.

    Raises:
        LostError: it has something that the v2 model does not get.
    """
    members(panel, known=_PANEL)
    return v2.PanelKind(
        spec=v2.PanelSpec(
            id_val=panel.id_val or 0,
            title=panel.title or "",
            description=panel.description or "",
            links=[_panel_link(one) for one in panel.links or ()],
            data=v2.QueryGroupKind(
                spec=v2.QueryGroupSpec(
                    queries=[_panel_query(panel, one) for one in panel.targets or ()],
                    transformations=[
                        _transformation(one) for one in panel.transformations or ()
                    ],
                    query_options=v2.QueryOptionsSpec(
                        max_data_points=_whole(panel.max_data_points),
                        interval=panel.interval,
                        time_from=panel.time_from,
                        time_shift=panel.time_shift,
                        hide_time_override=panel.hide_time_override,
                    ),
                )
            ),
            viz_config=v2.VizConfigKind(
                group=panel.type_val,
                spec=v2.VizConfigSpec(
                    options=as_json(panel.options) or {},
                    field_config=carried(
                        v2.FieldConfigSource.from_json,
                        panel.field_config or d.FieldConfigSource(),
                    ),
                ),
            ),
            transparent=panel.transparent or None,
        )
    )


def item(panel: d.Panel, *, top: int) -> v2.GridLayoutItemKind:
    """Return where *panel* is in a row whose first line is at *top*."""
    place = panel.grid_pos or d.GridPos()
    return v2.GridLayoutItemKind(
        spec=v2.GridLayoutItemSpec(
            x=place.x,
            y=place.y - top,
            width=place.w,
            height=place.h,
            element=v2.ElementReference(name=name(panel)),
            repeat=_repeat(panel),
        )
    )


def _repeat(panel: d.Panel) -> v2.RepeatOptions | None:
    if not panel.repeat:
        return None
    return v2.RepeatOptions(
        value=panel.repeat,
        direction=panel.repeat_direction,
        max_per_row=_whole(panel.max_per_row),
    )


def _panel_link(link: d.DashboardLink) -> v2.DataLink:
    members(link, known=_PANEL_LINK)
    return v2.DataLink(
        title=link.title, url=link.url or "", target_blank=link.target_blank
    )


def _panel_query(panel: d.Panel, target: object) -> v2.PanelQueryKind:
    found = as_json(target)
    spec = {key: value for key, value in found.items() if key not in _TARGET_OWN}
    own = getattr(target, "datasource", None)
    return v2.PanelQueryKind(
        spec=v2.PanelQuerySpec(
            query=query(spec, own or panel.datasource),
            ref_id=found["refId"],
            hidden=bool(found.get("hide")),
        )
    )


def _transformation(one: d.DataTransformerConfig) -> v2.TransformationKind:
    found = members(one, known=("id", "options", "disabled"))
    return v2.TransformationKind(
        group=found["id"],
        spec=v2.TransformationSpec(
            options=found["options"], disabled=found.get("disabled")
        ),
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


_COMMON = ("type", "name", "label", "description", "hide", "skipUrlSync")
_CHOICE = ("current", "multi", "includeAll", "allValue", "allowCustomValue", "regex")
# The SDK writes those of intervals for every variable.
_INTERVAL = ("auto", "auto_count", "auto_min")
_ANNOTATION = (
    *("name", "datasource", "enable", "hide", "iconColor"),
    *("expr", "step", "titleFormat", "textFormat"),
)
_NOTES = ("name", "datasource", "enable", "hide", "iconColor", "target")
_ALL_HIDE = {
    d.VariableHide.DONT_HIDE: v2.VariableHide.DONT_HIDE,
    d.VariableHide.HIDE_LABEL: v2.VariableHide.HIDE_LABEL,
    d.VariableHide.HIDE_VARIABLE: v2.VariableHide.HIDE_VARIABLE,
}
_REFRESH = {
    d.VariableRefresh.NEVER: v2.VariableRefresh.NEVER,
    d.VariableRefresh.ON_DASHBOARD_LOAD: v2.VariableRefresh.ON_DASHBOARD_LOAD,
    d.VariableRefresh.ON_TIME_RANGE_CHANGED: v2.VariableRefresh.ON_TIME_RANGE_CHANGED,
}


def variable(classic: d.VariableModel) -> v2.VariableKind:
    """
    Return *classic* in the v2 model.

    Raises:
        LostError: it is of a kind, or has something, that is not carried over yet.
    """
    if classic.type_val == d.VariableType.DATASOURCE:
        return _datasource(classic)
    if classic.type_val == d.VariableType.QUERY:
        return _query(classic)
    msg = f"variable {classic.name} is of type {classic.type_val}; carry that type over"
    raise LostError(msg)


def annotation(classic: d.AnnotationQuery) -> v2.AnnotationQueryKind:
    """
    Return *classic* in the v2 model.

    Raises:
        LostError: it has something that is not carried over yet.
    """
    if classic.target is not None:
        return _notes(classic)
    found = members(classic, known=_ANNOTATION)
    # Grafana reads these from the query if they are there, but has no place for the
    # formats of Prometheus other than the options of old.
    spec = {"expr": found["expr"], "interval": found["step"], "refId": "Anno"}
    formats = {name: found[name] for name in ("titleFormat", "textFormat")}
    return v2.AnnotationQueryKind(
        spec=v2.AnnotationQuerySpec(
            name=classic.name,
            query=query(spec, classic.datasource),
            enable=classic.enable,
            hide=bool(classic.hide),
            icon_color=classic.icon_color,
            legacy_options=formats,
        )
    )


def _notes(classic: d.AnnotationQuery) -> v2.AnnotationQueryKind:
    spec: dict[str, object] = members(classic, known=_NOTES)["target"]
    return v2.AnnotationQueryKind(
        spec=v2.AnnotationQuerySpec(
            name=classic.name,
            query=query(spec, classic.datasource),
            enable=classic.enable,
            hide=bool(classic.hide),
            icon_color=classic.icon_color,
        )
    )


def _datasource(classic: d.VariableModel) -> v2.DatasourceVariableKind:
    members(classic, known=(*_COMMON, *_CHOICE, *_INTERVAL, "query"))
    return v2.DatasourceVariableKind(
        spec=v2.DatasourceVariableSpec(
            name=classic.name,
            plugin_id=str(classic.query),
            regex=classic.regex or "",
            current=_current(classic),
            multi=bool(classic.multi),
            include_all=bool(classic.include_all),
            all_value=classic.all_value,
            label=classic.label,
            hide=_hide(classic),
            skip_url_sync=bool(classic.skip_url_sync),
            description=classic.description,
            allow_custom_value=bool(classic.allow_custom_value),
        )
    )


def _query(classic: d.VariableModel) -> v2.QueryVariableKind:
    known = ("query", "definition", "datasource", "refresh", "sort")
    found = members(classic, known=(*_COMMON, *_CHOICE, *_INTERVAL, *known))
    return v2.QueryVariableKind(
        spec=v2.QueryVariableSpec(
            name=classic.name,
            current=_current(classic),
            label=classic.label,
            hide=_hide(classic),
            refresh=_REFRESH[classic.refresh or d.VariableRefresh.NEVER],
            skip_url_sync=bool(classic.skip_url_sync),
            description=classic.description,
            query=query(found["query"], classic.datasource),
            regex=classic.regex or "",
            sort=_sort(classic),
            definition=classic.definition,
            multi=bool(classic.multi),
            include_all=bool(classic.include_all),
            all_value=classic.all_value,
            allow_custom_value=bool(classic.allow_custom_value),
        )
    )


def _current(classic: d.VariableModel) -> v2.VariableOption:
    if classic.current is None:
        return v2.VariableOption(text="", value="")
    return carried(v2.VariableOption.from_json, classic.current)


def _hide(classic: d.VariableModel) -> v2.VariableHide:
    return _ALL_HIDE[classic.hide or d.VariableHide.DONT_HIDE]


def _sort(classic: d.VariableModel) -> v2.VariableSort:
    # Both models have the same names in the same order.
    return v2.VariableSort[(classic.sort or d.VariableSort.DISABLED).name]


_T = TypeVar("_T")


class LostError(ValueError):
    """Something of a classic dashboard has no place in the v2 model."""


def as_json(model: object) -> Any:
    """Return a model of the SDK as what its JSON holds."""
    return json.loads(JSONEncoder().encode(model))


def members(model: object, *, known: Collection[str]) -> dict[str, Any]:
    """
    Return the members of a classic *model*, as JSON has them.

    Raises:
        LostError: one that says something is not among the *known*.
    """
    found: dict[str, Any] = as_json(model)
    unknown = [name for name, value in found.items() if value and name not in known]
    if unknown:
        msg = f"{type(model).__name__} has {unknown}, which v2 does not get; carry it"
        raise LostError(msg)
    return found


def carried(read: Callable[[Any], _T], classic: object) -> _T:
    """
    Return what *read* makes of the JSON of *classic*, which is the same in both models.

    Raises:
        LostError: it is not the same.
    """
    before = as_json(classic)
    model = read(before)
    if as_json(model) != before:
        msg = f"{type(classic).__name__} is not the same in v2: {before}"
        raise LostError(msg)
    return model


def query(
    spec: dict[str, object], datasource: DataSourceRef | None
) -> v2.DataQueryKind:
    """Return a query of *datasource*."""
    if datasource is None or not (datasource.type_val and datasource.uid):
        msg = f"a query without a data source: {spec}"
        raise LostError(msg)
    return v2.DataQueryKind(
        group=datasource.type_val,
        datasource=v2.Dashboardv2DataQueryKindDatasource(name=datasource.uid),
        spec=spec,
    )
