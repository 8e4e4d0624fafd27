"""Variables and annotations of the v2 model."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import dashboardv2 as v2

from jaxmon.artifacts.dashboards.v2.carrying import LostError, carried, members, query


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
