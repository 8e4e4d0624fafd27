"""Panels as Grafana's classic model has them, and what they say without data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import TypeVar
from urllib.parse import quote

from grafana_foundation_sdk.models import (
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import dashboard as d

from jaxmon import catalog
from jaxmon.catalog import BY_NAME
from jaxmon.promql.expressions import PER_SECOND, ExpressionType
from jaxmon_dashboards.boards.model import (
    UNITS,
    Kind,
    Link,
    Mapping,
    Panel,
    Target,
    Thresholds,
)


TRACES = "traces"
"""The variable with the data source of traces."""

TEMPO = "tempo"

_TRACED = {
    catalog.REQUEST_SECONDS.name: "route",
    catalog.COMPILE_SECONDS.name: "function",
    catalog.STEP_SECONDS.name: "loop",
}
"""Histograms with trace ids, and what distinguishes them, as label and as attribute."""

_GRAFANAS = re.compile(r"(\$\{[^}]+\})")


def trace_links(panel: Panel) -> list[Link]:
    """Return links to the traces that *panel* is about: all of the service's."""
    labels = traced_labels(panel)
    if not labels or panel.kind == "table":
        return []
    wanted = " || ".join(f"span.jaxmon.{label} != nil" for label in labels)
    return [Link("Traces", explore(wanted))]


def series_links(panel: Panel) -> list[Link]:
    """Return links from a series of *panel* to its own traces."""
    if panel.kind != "timeseries":
        return []
    return [
        Link(f"Traces of this {label}", explore(_of(label, f"__field.labels.{label}")))
        for label in traced_labels(panel)
        if all(label in (target.expr.shape.labels or ()) for target in panel.targets)
    ]


def cell_links(panel: Panel) -> dict[str, Link]:
    """Return links from the cells of a table to their traces, by label."""
    if panel.kind != "table":
        return {}
    return {
        label: Link(f"Traces of this {label}", explore(_of(label, "__value.text")))
        for label in traced_labels(panel)
        if label in panel.labels
    }


def explore(wanted: str) -> str:
    """Return the address of Explore with the traces that have spans as *wanted*."""
    source = f"${{{TRACES}}}"
    query = f'{{ resource.service.name =~ "${{job:pipe}}" && ({wanted}) }}'
    pane = {
        "datasource": source,
        "queries": [
            {
                "refId": "A",
                "datasource": {"type": TEMPO, "uid": source},
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


def traced_labels(panel: Panel) -> list[str]:
    """Return what distinguishes the traces that *panel* leads to."""
    # What rules have recorded of a histogram has its name in theirs.
    names = " ".join(panel.metrics)
    return [label for name, label in _TRACED.items() if name in names]


# Chosen at the top of the dashboard; file provisioning and the API resolve no inputs.
DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

# Grafana's own names of queries: A to Z, then AA to ZZ.
_REFERENCES = (
    *ascii_uppercase,
    *(f"{first}{second}" for first in ascii_uppercase for second in ascii_uppercase),
)
_TITLES = {"alertname": "Alert", "jax": "JAX", "sloth_slo": "SLO"}
_HIDDEN = ("Time", "__name__")
_PLAIN = Thresholds("green", ())
_NO_VALUE = "-"
# Labels with long values, whose end matters as much as the beginning.
_LONG = ("alertname", "function")
_LONG_PIXELS = 260
# Where an axis ends at least; of nothing but zeros, Grafana would go up to 100.
_LEAST_TOP = {"": 1.0, "per minute": 1.0, "per second": 1.0, "ratio": 0.01}
_TOOLTIP = common.VizTooltipOptions(
    mode=common.TooltipDisplayMode.MULTI, sort=common.SortOrder.DESCENDING
)
_BY_THRESHOLDS = d.FieldColor(mode=d.FieldColorModeId.THRESHOLDS)
_COLORED_TEXT = {"type": "color-text"}

_Placed = TypeVar("_Placed", d.AnnotationQuery, d.DashboardLink)


def render(panel: Panel, *, runbooks: str) -> d.Panel:
    """Return *panel*, not yet placed."""
    is_table = panel.kind == "table"
    defaults = d.FieldConfig(
        no_value=_empty(panel),
        unit="short" if is_table else _unit(panel.targets[0].expr.shape),
        max_val=panel.top,
        mappings=[_mappings(panel.mappings)] if panel.mappings else None,
        links=[*map(link, series_links(panel))] or None,
    )
    found = [Link(f"Runbook {name}", f"{runbooks}{name}.md") for name in panel.alerts]
    return d.Panel(
        type_val=panel.kind,
        id_val=panel.id,
        title=panel.title,
        description=panel.description,
        datasource=DATASOURCE,
        targets=[
            _query(panel, target, reference)
            for reference, target in zip(_REFERENCES, panel.targets, strict=False)
        ],
        max_data_points=None if panel.instant else panel.points,
        transformations=_transformations(panel) if is_table else None,
        options=_KINDS[panel.kind](panel, defaults),
        field_config=d.FieldConfigSource(
            defaults=defaults, overrides=_overrides(panel) if is_table else None
        ),
        links=[*map(link, (*found, *trace_links(panel)))] or None,
    )


def _unit(shape: ExpressionType) -> str:
    """Return Grafana's name of the unit; requests have one of their own."""
    named = catalog.REQUESTS.name.removesuffix("_total")
    requests = any(named in name for name in shape.metrics)
    return "reqps" if requests and shape.unit == PER_SECOND else UNITS[shape.unit or ""]


def link(link: Link) -> d.DashboardLink:
    """Return a link that opens in a new tab."""
    return visible(d.DashboardLink(title=link.title, url=link.url, target_blank=True))


def visible(placed: _Placed) -> _Placed:
    """Return *placed*, which the SDK's models hide in a menu, where it can be seen."""
    placed.placement = None  # type: ignore[assignment]  # the encoder leaves it out
    return placed


def _query(panel: Panel, target: Target, reference: str) -> prometheus.Dataquery:
    formats = prometheus.PromQueryFormat
    shapes = {"heatmap": formats.HEATMAP, "table": formats.TABLE}
    traced = not _TRACED.keys().isdisjoint(target.expr.shape.metrics)
    exemplars = traced and "_bucket" in str(target.expr) and not panel.instant
    return prometheus.Dataquery(
        ref_id=reference,
        datasource=DATASOURCE,
        expr=str(target.expr),
        format_val=shapes.get(panel.kind, formats.TIME_SERIES),
        legend_format=target.legend,
        instant=panel.instant,
        range_val=not panel.instant,
        exemplar=exemplars or None,
    )


def thresholds(thresholds: Thresholds) -> d.ThresholdsConfig:
    """Return colours by absolute value."""
    steps = [(None, thresholds.base), *thresholds.steps]
    listed = [d.Threshold(value=value, color=color) for value, color in steps]
    return d.ThresholdsConfig(mode=d.ThresholdsMode.ABSOLUTE, steps=listed)


def _column_title(label: str) -> str:
    return _TITLES.get(label, label.replace("_", " ").capitalize())


def _stat(panel: Panel, defaults: d.FieldConfig) -> stat.Options:
    defaults.color = _BY_THRESHOLDS
    defaults.thresholds = thresholds(panel.thresholds or _PLAIN)
    defaults.mappings = [_unknown(_empty(panel))]
    colors = common.BigValueColorMode
    return stat.Options(
        # No colour for a value of which no threshold says that it is good.
        color_mode=colors.NONE if panel.thresholds is None else colors.BACKGROUND,
        graph_mode=common.BigValueGraphMode.NONE,
        # Of an empty list Grafana takes the last value, null or not.
        reduce_options=common.ReduceDataOptions(calcs=["lastNotNull"]),
    )


def _timeseries(panel: Panel, defaults: d.FieldConfig) -> timeseries.Options:
    stacking = common.StackingMode(panel.stacked)
    # Areas of many series add up to a wall.
    fill = 0 if panel.ranked else 8
    custom = timeseries.FieldConfig(
        line_width=1,
        fill_opacity=40 if panel.stacked != "none" else fill,
        show_points=common.VisibilityMode.NEVER,
        stacking=common.StackingConfig(mode=stacking, group="A"),
    )
    if panel.thresholds is not None:
        dashed = common.GraphThresholdsStyleMode.DASHED
        custom.thresholds_style = common.GraphThresholdsStyleConfig(mode=dashed)
        defaults.thresholds = thresholds(panel.thresholds)
    if panel.top is None:
        custom.axis_soft_max = _LEAST_TOP.get(panel.unit)
    defaults.color = d.FieldColor(mode=d.FieldColorModeId.PALETTE_CLASSIC)
    defaults.min_val = panel.minimum
    defaults.custom = custom
    extreme = "min" if panel.lowest_first else "max"
    legend = common.VizLegendOptions(
        display_mode=common.LegendDisplayMode.TABLE,
        placement=common.LegendPlacement.BOTTOM,
        show_legend=True,
        calcs=["lastNotNull", extreme],
        sort_by=extreme.capitalize(),
        sort_desc=not panel.lowest_first,
    )
    return timeseries.Options(legend=legend, tooltip=_TOOLTIP)


def _state_timeline(panel: Panel, defaults: d.FieldConfig) -> statetimeline.Options:
    defaults.color = _BY_THRESHOLDS
    defaults.thresholds = thresholds(panel.thresholds or _PLAIN)
    defaults.custom = statetimeline.FieldConfig(fill_opacity=80, line_width=0)
    return statetimeline.Options(
        merge_values=True,
        show_value=common.VisibilityMode.NEVER,
        row_height=0.8,
        legend=common.VizLegendOptions(show_legend=False),
        tooltip=_TOOLTIP,
    )


def _heatmap(panel: Panel, defaults: d.FieldConfig) -> heatmap.Options:
    defaults.custom = heatmap.FieldConfig()
    (metric,) = panel.metrics
    return heatmap.Options(
        # Without a number of steps, every cell would be black.
        color=heatmap.HeatmapColorOptions(
            mode=heatmap.HeatmapColorMode.SCHEME,
            scheme="Oranges",
            fill="dark-orange",
            exponent=0.5,
            steps=64,
        ),
        legend=heatmap.HeatmapLegend(show=False),
        y_axis=heatmap.YAxisConfig(unit=UNITS[BY_NAME[metric].unit]),
    )


def _table(panel: Panel, defaults: d.FieldConfig) -> table.Options:
    defaults.custom = table.FieldConfig()
    by_value = panel.sort in {target.legend for target in panel.targets}
    order = common.TableSortByFieldState(display_name=panel.sort, desc=by_value)
    return table.Options(sort_by=[order] if panel.sort else None)


def _transformations(panel: Panel) -> list[d.DataTransformerConfig]:
    values = {
        "Value" if len(panel.targets) == 1 else f"Value #{reference}": target.legend
        for reference, target in zip(_REFERENCES, panel.targets, strict=False)
    }
    left = panel.values_after or panel.labels[-1]
    number = panel.labels.index(left) + 1
    order = (*panel.labels[:number], *values, *panel.labels[number:])
    organize = {
        "excludeByName": dict.fromkeys(_HIDDEN, True),
        "indexByName": {name: index for index, name in enumerate(order)},
        "renameByName": {label: _column_title(label) for label in panel.labels}
        | values,
    }
    return [
        d.DataTransformerConfig(id_val="merge", options={}),
        d.DataTransformerConfig(id_val="organize", options=organize),
    ]


def _overrides(panel: Panel) -> list[d.DashboardFieldConfigSourceOverrides]:
    # With a least width instead, Grafana would push the last column out.
    columns: list[tuple[str, dict[str, object]]] = [
        (_column_title(label), {"custom.width": _LONG_PIXELS})
        for label in filter(_LONG.__contains__, panel.labels)
    ]
    columns += [(target.legend, _column(target)) for target in panel.targets]
    if panel.mappings:
        title = _column_title(panel.labels[0])
        columns.append((title, {"custom.cellOptions": _COLORED_TEXT}))
    for label, to in {**cell_links(panel), **dict(panel.cell_links)}.items():
        links = [{"title": to.title, "url": to.url, "targetBlank": True}]
        columns.append((_column_title(label), {"links": links}))
    return [
        # What is said of an empty table would stand in each of its empty cells.
        _override("byRegexp", ".*", {"noValue": _NO_VALUE}),
        *(_override("byName", name, properties) for name, properties in columns),
    ]


def _override(
    matcher: str, of: str, properties: dict[str, object]
) -> d.DashboardFieldConfigSourceOverrides:
    return d.DashboardFieldConfigSourceOverrides(
        matcher=d.MatcherConfig(id_val=matcher, options=of),
        properties=[
            d.DynamicConfigValue(id_val=name, value=value)
            for name, value in properties.items()
        ],
    )


def _column(target: Target) -> dict[str, object]:
    unit = _unit(target.expr.shape)
    properties: dict[str, object] = {"unit": unit, "custom.align": "right"}
    if target.expr.shape.unit == "":
        # An increase is extrapolated; people count in whole numbers.
        properties["decimals"] = 0
    if target.thresholds is not None:
        properties |= {
            "thresholds": thresholds(target.thresholds),
            "color": _BY_THRESHOLDS,
            "custom.cellOptions": _COLORED_TEXT,
            # Nothing is neither good nor bad.
            "mappings": [_unknown(_NO_VALUE, "text")],
        }
    return properties


def _empty(panel: Panel) -> str:
    """Return what an empty panel says: what there is none of, or what is missing."""
    found = panel.no_value or absence(panel.metrics, brief=panel.kind == "stat")
    if not (panel.no_value or found == "None") or re.search("rules|targets", found):
        return found
    if found == _NO_VALUE:
        return found  # the first of its row says why
    if any(":" in name for name in panel.metrics):
        return f"{found}, or no rules"
    # Of what never happened there is no series, nor of what is not observed.
    missing = absence(panel.metrics, brief=True)
    if missing in (found, "None"):
        missing = _OTHERS
    return f"{found}, or {missing[0].lower()}{missing[1:]}"


def _unknown(text: str, color: str = "transparent") -> d.SpecialValueMap:
    result = d.ValueMappingResult(text=text, color=color)
    match = d.SpecialValueMatch.NULL_AND_NAN
    options = d.DashboardSpecialValueMapOptions(match=match, result=result)
    return d.SpecialValueMap(options=options)


def _mappings(mappings: tuple[Mapping, ...]) -> d.ValueMap:
    shown = {
        mapping.value: d.ValueMappingResult(
            text=mapping.text, color=mapping.color, index=index
        )
        for index, mapping in enumerate(mappings)
    }
    return d.ValueMap(options=shown)


_KINDS: dict[Kind, Callable[[Panel, d.FieldConfig], object]] = {
    "heatmap": _heatmap,
    "stat": _stat,
    "state-timeline": _state_timeline,
    "table": _table,
    "timeseries": _timeseries,
}


# By the beginnings of the names of metrics, of which the longest counts.
_SUBJECTS = {
    beginning: text
    for text, beginnings in {
        "No accelerators": "accelerator",
        "No activities": "activity",
        "No agents": "agent hook wall",
        "No batches": "batch",
        "No sidecar": "collector host",
        "No compiles": "compile",
        "No container": "container",
        "No loops": "data step time",
        "No devices": "device",
        "Not reported by the device": "device_allocations device_memory",
        "No sampled calls": "dispatch execution nonfinite",
        "No errors": "errors",
        "None": "float64_promotions leak slowdown",
        "No NVIDIA GPUs": "gpu",
        "No transfers": "host_sync host_transfer",
        "No items": "items",
        "No warnings": "jax_warnings",
        "No calls": "jit",
        "No arrays": "live",
        "No persistent cache": "persistent_cache",
        "No processes": "process uptime",
        "No programs": "program",
        "No queues": "queue",
        "No recompiles": "recompiles",
        "No requests": "request",
        "No TPUs": "tpu",
        "Nothing logged": "value",
    }.items()
    for beginning in beginnings.split()
}
_OTHERS = "No processes"


def absence(metrics: Sequence[str], *, brief: bool = False) -> str:
    """Return what to show when nothing was found of *metrics*."""
    named = [name.split(":")[1:2] or [name] for name in metrics]
    subjects = [_subject(name.removeprefix("jaxmon_")) for (name,) in named]
    found = next(filter(None, subjects), _OTHERS)
    recorded = any(":" in name for name in metrics)
    return f"{found}, or no recording rules" if recorded and not brief else found


def _subject(name: str) -> str:
    found = [beginning for beginning in _SUBJECTS if name.startswith(beginning)]
    return _SUBJECTS[max(found, key=len)] if found else ""
