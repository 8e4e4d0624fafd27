"""Panels as elements of the v2 model."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import dashboardv2 as v2

from jaxmon.artifacts.dashboards.v2.carrying import as_json, carried, members, query


_PANEL = (
    *("type", "id", "title", "description", "datasource", "targets", "gridPos"),
    *("links", "repeat", "repeatDirection", "maxPerRow", "transformations"),
    *("options", "fieldConfig", "transparent"),
    *("maxDataPoints", "interval", "timeFrom", "timeShift", "hideTimeOverride"),
)
_LINK = ("title", "type", "url", "targetBlank")
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
            links=[_link(one) for one in panel.links or ()],
            data=v2.QueryGroupKind(
                spec=v2.QueryGroupSpec(
                    queries=[_query(panel, one) for one in panel.targets or ()],
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


def _link(link: d.DashboardLink) -> v2.DataLink:
    members(link, known=_LINK)
    return v2.DataLink(
        title=link.title, url=link.url or "", target_blank=link.target_blank
    )


def _query(panel: d.Panel, target: object) -> v2.PanelQueryKind:
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
