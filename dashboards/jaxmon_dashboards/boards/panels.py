"""Panels as Grafana's classic model has them, and what they say without data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as classic
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from jaxmon.catalog import BY_NAME
from jaxmon_dashboards.boards import traces
from jaxmon_dashboards.boards.model import (
    UNITS,
    Kind,
    Link,
    Mapping,
    Panel,
    Target,
    Thresholds,
)


# Chosen at the top of the dashboard; file provisioning and the API resolve no inputs.
DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

# Built in: annotations that Grafana keeps.
GRAFANA = DataSourceRef(type_val="grafana", uid="-- Grafana --")


def link(link: Link) -> d.DashboardLink:
    """Return a link that opens in a new tab."""
    built = classic.DashboardLink(link.title).type(d.DashboardLinkType.LINK)
    return placed(built.url(link.url).target_blank(target_blank=True).build())


def placed(link: d.DashboardLink) -> d.DashboardLink:
    """Return *link*, made visible: the SDK hides every link in a menu."""
    link.placement = None  # type: ignore[assignment]  # the encoder then leaves it out
    return link


def color(mode: d.FieldColorModeId) -> classic.FieldColor:
    """Return the colour mode of a series."""
    return classic.FieldColor().mode(mode)


def thresholds(thresholds: Thresholds) -> classic.ThresholdsConfig:
    """Return colours by absolute value."""
    steps = [(None, thresholds.base), *thresholds.steps]
    return (
        classic.ThresholdsConfig()
        .mode(d.ThresholdsMode.ABSOLUTE)
        .steps([d.Threshold(value=value, color=color) for value, color in steps])
    )


# Grafana's own names of queries: A to Z, then AA to ZZ.
_REFERENCES = (
    *ascii_uppercase,
    *(f"{one}{two}" for one in ascii_uppercase for two in ascii_uppercase),
)
_TITLES = {"alertname": "Alert", "jax": "JAX", "sloth_slo": "SLO"}
_HIDDEN = ("Time", "__name__")
_PLAIN = Thresholds("green", ())

_Builder = TypeVar(
    "_Builder",
    heatmap.Panel,
    stat.Panel,
    statetimeline.Panel,
    table.Panel,
    timeseries.Panel,
)


def render(panel: Panel, *, runbooks: str) -> d.Panel:
    """Return *panel*, not yet placed."""
    built = _KINDS[panel.kind](panel)
    built.id_val = panel.id
    found = [Link(f"Runbook {name}", f"{runbooks}{name}.md") for name in panel.alerts]
    found += traces.links(panel)
    if found:
        built.links = [*map(link, found)]
    series = traces.series_links(panel)
    if series and built.field_config is not None:
        # As the SDK's models have them: like those of dashboards.
        built.field_config.defaults.links = [*map(link, series)]
    return built


_NO_VALUE = "-"
# Labels with long values, of which the end tells as much as the beginning.
_LONG = ("alertname", "function")
_LONG_PIXELS = 260


def column_title(label: str) -> str:
    """Return the title of a table's column with the values of *label*."""
    return _TITLES.get(label, label.replace("_", " ").capitalize())


def _stat(panel: Panel) -> d.Panel:
    builder = (
        _common(stat.Panel(), panel)
        .color_scheme(color(d.FieldColorModeId.THRESHOLDS))
        .color_mode(_judged(panel))
        .graph_mode(c.BigValueGraphMode.NONE)
        .reduce_options(_last())
        .thresholds(thresholds(panel.thresholds or _PLAIN))
        .mappings([_unknown(_empty(panel))])
    )
    return builder.build()


def _judged(panel: Panel) -> c.BigValueColorMode:
    """Return no colour for a value of which no threshold says that it is good."""
    modes = c.BigValueColorMode
    return modes.NONE if panel.thresholds is None else modes.BACKGROUND


# Where an axis ends at least; of nothing but zeros, Grafana would go up to 100.
_LEAST_TOP = {"": 1.0, "per minute": 1.0, "per second": 1.0, "ratio": 0.01}


def _timeseries(panel: Panel) -> d.Panel:
    extreme = "min" if panel.lowest_first else "max"
    legend = (
        common.VizLegendOptions()
        .show_legend(show_legend=True)
        .display_mode(c.LegendDisplayMode.TABLE)
        .placement(c.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", extreme])
        .sort_by(extreme.capitalize())
        .sort_desc(sort_desc=not panel.lowest_first)
    )
    stacking = c.StackingMode(panel.stacked)
    builder = (
        _common(timeseries.Panel(), panel)
        .color_scheme(color(d.FieldColorModeId.PALETTE_CLASSIC))
        .line_width(1)
        .fill_opacity(_fill(panel))
        .show_points(c.VisibilityMode.NEVER)
        .stacking(common.StackingConfig().mode(stacking).group("A"))
        .legend(legend)
        .tooltip(_tooltip())
    )
    if panel.thresholds is not None:
        dashed = common.GraphThresholdsStyleConfig().mode(
            c.GraphThresholdsStyleMode.DASHED
        )
        builder.thresholds(thresholds(panel.thresholds)).thresholds_style(dashed)
    if panel.maximum is None and panel.unit in _LEAST_TOP:
        builder.axis_soft_max(_LEAST_TOP[panel.unit])
    return builder.build()


def _fill(panel: Panel) -> float:
    """Return the per cent below lines; of many series they add up to a wall."""
    if panel.stacked != "none":
        return 40
    return 0 if panel.ranked else 8


def _state_timeline(panel: Panel) -> d.Panel:
    legend = (
        common.VizLegendOptions()
        .show_legend(show_legend=False)
        .display_mode(c.LegendDisplayMode.LIST)
        .placement(c.LegendPlacement.BOTTOM)
        .calcs([])
    )
    builder = (
        _common(statetimeline.Panel(), panel)
        .color_scheme(color(d.FieldColorModeId.THRESHOLDS))
        .thresholds(thresholds(panel.thresholds or _PLAIN))
        .merge_values(merge_values=True)
        .show_value(c.VisibilityMode.NEVER)
        .fill_opacity(80)
        .line_width(0)
        .row_height(0.8)
        .legend(legend)
        .tooltip(_tooltip())
    )
    return builder.build()


def _heatmap(panel: Panel) -> d.Panel:
    # The SDK's colours have no steps, so that every cell would be black.
    color = (
        heatmap.HeatmapColorOptions()
        .mode(HeatmapColorMode.SCHEME)
        .scheme("Oranges")
        .fill("dark-orange")
        .exponent(0.5)
        .steps(64)
    )
    (metric,) = panel.metrics
    builder = (
        _common(heatmap.Panel(), panel, format_=PromQueryFormat.HEATMAP)
        .calculate(calculate=False)
        .y_axis(heatmap.YAxisConfig().unit(UNITS[BY_NAME[metric].unit]))
        .color(color)
        .hide_legend()
    )
    return builder.build()


def _table(panel: Panel) -> d.Panel:
    values = {
        "Value" if len(panel.targets) == 1 else f"Value #{reference}": target.legend
        for reference, target in zip(_REFERENCES, panel.targets, strict=False)
    }
    renamed = {label: column_title(label) for label in panel.labels} | values
    left = panel.values_after or panel.labels[-1]
    number = panel.labels.index(left) + 1
    order = (*panel.labels[:number], *values, *panel.labels[number:])
    organize = {
        "excludeByName": dict.fromkeys(_HIDDEN, True),
        "indexByName": {name: index for index, name in enumerate(order)},
        "renameByName": renamed,
    }
    builder = (
        _common(table.Panel(), panel, format_=PromQueryFormat.TABLE)
        .unit("short")
        .with_transformation(d.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            d.DataTransformerConfig(id_val="organize", options=organize)
        )
        .cell_height(c.TableCellHeight.SM)
    )
    if panel.sort:
        builder.sort_by(
            [common.TableSortByFieldState().display_name(panel.sort).desc(desc=True)]
        )
    # What is said of an empty table would stand in each of its empty cells.
    builder.override_by_regexp(".*", [d.DynamicConfigValue("noValue", _NO_VALUE)])
    for label in filter(_LONG.__contains__, panel.labels):
        # With a least width instead, Grafana would push the last column out.
        width = d.DynamicConfigValue("custom.width", _LONG_PIXELS)
        builder.override_by_name(column_title(label), [width])
    for target in panel.targets:
        builder.override_by_name(target.legend, _column(target))
    if panel.mappings:
        text = d.DynamicConfigValue("custom.cellOptions", {"type": "color-text"})
        builder.override_by_name(column_title(panel.labels[0]), [text])
    for label, link in {**traces.cell_links(panel), **dict(panel.cell_links)}.items():
        url = {"title": link.title, "url": link.url, "targetBlank": True}
        builder.override_by_name(
            column_title(label), [d.DynamicConfigValue("links", [url])]
        )
    return builder.build()


def _column(target: Target) -> list[d.DynamicConfigValue]:
    properties = [
        d.DynamicConfigValue("unit", UNITS[target.expr.shape.unit or ""]),
        d.DynamicConfigValue("custom.align", "right"),
    ]
    if target.expr.shape.unit == "":
        # An increase is extrapolated; people count in whole numbers.
        properties.append(d.DynamicConfigValue("decimals", 0))
    if target.thresholds is not None:
        steps = thresholds(target.thresholds).build()
        properties += [
            d.DynamicConfigValue("thresholds", steps),
            d.DynamicConfigValue("color", {"mode": "thresholds"}),
            d.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
            # Nothing is neither good nor bad.
            d.DynamicConfigValue("mappings", [_unknown(_NO_VALUE, "text")]),
        ]
    return properties


def _common(
    builder: _Builder,
    panel: Panel,
    *,
    format_: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> _Builder:
    """Set what every kind of panel has."""
    builder.title(panel.title).description(panel.description)
    builder.datasource(DATASOURCE)
    if panel.kind != "table":
        builder.unit(UNITS[panel.unit])
    if panel.kind == "timeseries":
        builder.min(panel.minimum)
    if panel.maximum is not None:
        builder.max(panel.maximum)
    if not panel.instant:
        builder.max_data_points(panel.points)
    builder.no_value(_empty(panel))
    if panel.mappings:
        builder.mappings([_mappings(panel.mappings)])
    for reference, target in zip(_REFERENCES, panel.targets, strict=False):
        query = (
            prometheus.Dataquery()
            .ref_id(reference)
            .datasource(DATASOURCE)
            .expr(str(target.expr))
            .format(format_)
            .legend_format(target.legend)
        )
        if traces.has_exemplars(target) and not panel.instant:
            query.exemplar(exemplar=True)
        builder.with_target(query.instant() if panel.instant else query.range())
    return builder


def _empty(panel: Panel) -> str:
    """Return what *panel* says without data."""
    brief = panel.kind == "stat"
    return panel.no_value or absence(panel.metrics, brief=brief)


def _unknown(text: str, color: str = "transparent") -> d.SpecialValueMap:
    """Return the mapping of no value, which Grafana would colour like the lowest."""
    shown = d.ValueMappingResult(text=text, color=color)
    match = d.SpecialValueMatch.NULL_AND_NAN
    return d.SpecialValueMap(
        d.DashboardSpecialValueMapOptions(match=match, result=shown)
    )


def _mappings(mappings: tuple[Mapping, ...]) -> d.ValueMapping:
    return d.ValueMap(
        {
            one.value: d.ValueMappingResult(text=one.text, color=one.color, index=index)
            for index, one in enumerate(mappings)
        }
    )


def _last() -> common.ReduceDataOptions:
    # The SDK leaves the list empty, which Grafana takes as the last value, null or not.
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _tooltip() -> common.VizTooltipOptions:
    tooltip = common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI)
    return tooltip.sort(c.SortOrder.DESCENDING)


_KINDS: dict[Kind, Callable[[Panel], d.Panel]] = {
    "heatmap": _heatmap,
    "stat": _stat,
    "state-timeline": _state_timeline,
    "table": _table,
    "timeseries": _timeseries,
}


# By the beginning of a metric's name, the longest one first.
_SUBJECTS = {
    "accelerator": "No accelerators",
    "activity": "No activities",
    "agent": "No agents",
    "batch": "No batches",
    "collector": "No sidecar",
    "compile": "No compiles",
    "container": "No container",
    "data": "No loops",
    "device": "No devices",
    "device_allocations": "Not reported by the device",
    "device_memory": "Not reported by the device",
    "dispatch": "No sampled calls",
    "errors": "No errors",
    "execution": "No sampled calls",
    "float64_promotions": "None",
    "gpu": "No NVIDIA GPUs",
    "hook": "No agents",
    "host": "No sidecar",
    "host_syncs": "No transfers",
    "host_transfer": "No transfers",
    "items": "No items",
    "jax_warnings": "No warnings",
    "jit": "No calls",
    "leak": "None",
    "live": "No arrays",
    "nonfinite": "No sampled calls",
    "persistent_cache": "No persistent cache",
    "process": "No processes",
    "program": "No programs",
    "queue": "No queues",
    "recompiles": "No recompiles",
    "request": "No requests",
    "slowdown": "None",
    "step": "No loops",
    "time": "No loops",
    "tpu": "No TPUs",
    "uptime": "No processes",
    "value": "Nothing logged",
    "wall": "No agents",
}
_OTHERS = "No processes"


def absence(metrics: Sequence[str], *, brief: bool = False) -> str:
    """
    Return what to show when nothing was found of *metrics*, the first that has a
    subject; recorded ones may also lack their rules, for which a *brief* text has no
    room.
    """
    named = [name.split(":")[1:2] or [name] for name in metrics]
    subjects = [_subject(name.removeprefix("jaxmon_")) for (name,) in named]
    found = next(filter(None, subjects), _OTHERS)
    recorded = any(":" in name for name in metrics)
    return f"{found}, or no recording rules" if recorded and not brief else found


def _subject(name: str) -> str:
    found = [beginning for beginning in _SUBJECTS if name.startswith(beginning)]
    return _SUBJECTS[max(found, key=len)] if found else ""
