"""Panels as Grafana's classic model has them, and what they say without data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import Any, TypeAlias
from urllib.parse import quote

from jaxmon import catalog
from jaxmon.catalog import BY_NAME
from jaxmon_dashboards.boards.model import (
    UNITS,
    Dashboard,
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


def has_exemplars(target: Target) -> bool:
    """Return whether what *target* queries has exemplars."""
    return "_bucket" in str(target.expr) and bool(_TRACED.keys() & _names(target))


def trace_links(panel: Panel) -> list[Link]:
    """Return links to the traces that *panel* is about: all of the service's."""
    labels = _labels(panel)
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
        for label in _labels(panel)
        if all(label in (target.expr.shape.labels or ()) for target in panel.targets)
    ]


def cell_links(panel: Panel) -> dict[str, Link]:
    """Return links from the cells of a table to their traces, by label."""
    if panel.kind != "table":
        return {}
    return {
        label: Link(f"Traces of this {label}", explore(_of(label, "__value.text")))
        for label in _labels(panel)
        if label in panel.labels
    }


def leads_to_traces(dashboard: Dashboard) -> bool:
    """Return whether a panel of *dashboard* leads to traces."""
    return any(_labels(panel) for panel in dashboard.panels)


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


def _names(target: Target) -> set[str]:
    return set(target.expr.shape.metrics)


def _labels(panel: Panel) -> list[str]:
    # What rules have recorded of a histogram has its name in theirs.
    names = " ".join(name for target in panel.targets for name in _names(target))
    return [label for name, label in _TRACED.items() if name in names]


Json: TypeAlias = dict[str, Any]

# Chosen at the top of the dashboard; file provisioning and the API resolve no inputs.
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Grafana's own names of queries: A to Z, then AA to ZZ.
_REFERENCES = (
    *ascii_uppercase,
    *(f"{first}{second}" for first in ascii_uppercase for second in ascii_uppercase),
)
_TITLES = {"alertname": "Alert", "jax": "JAX", "sloth_slo": "SLO"}
_HIDDEN = ("Time", "__name__")
_PLAIN = Thresholds("green", ())
_NO_VALUE = "-"
# Labels with long values, of which the end tells as much as the beginning.
_LONG = ("alertname", "function")
_LONG_PIXELS = 260
# Where an axis ends at least; of nothing but zeros, Grafana would go up to 100.
_LEAST_TOP = {"": 1.0, "per minute": 1.0, "per second": 1.0, "ratio": 0.01}
_TOOLTIP = {"mode": "multi", "sort": "desc"}


def render(panel: Panel, *, runbooks: str) -> Json:
    """Return *panel*, not yet placed."""
    defaults: Json = {
        "noValue": _empty(panel),
        "unit": "short" if panel.kind == "table" else UNITS[panel.unit],
    }
    if panel.top is not None:
        defaults["max"] = panel.top
    if panel.mappings:
        defaults["mappings"] = [_mappings(panel.mappings)]
    if series := series_links(panel):
        defaults["links"] = [*map(link, series)]
    made: Json = {
        "id": panel.id,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [
            _query(panel, target, reference)
            for reference, target in zip(_REFERENCES, panel.targets, strict=False)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        # What Grafana's own models say of each panel.
        "transparent": False,
        "repeatDirection": "h",
    }
    if not panel.instant:
        made["maxDataPoints"] = panel.points
    found = [Link(f"Runbook {name}", f"{runbooks}{name}.md") for name in panel.alerts]
    if found := [*found, *trace_links(panel)]:
        made["links"] = [*map(link, found)]
    _KINDS[panel.kind](panel, made, defaults)
    return made


def link(link: Link) -> Json:
    """Return a link that opens in a new tab."""
    flags = dict.fromkeys(("asDropdown", "includeVars", "keepTime"), False)
    shown = {"title": link.title, "type": "link", "icon": "", "tooltip": "", "tags": []}
    return {**flags, **shown, "url": link.url, "targetBlank": True}


def _query(panel: Panel, target: Target, reference: str) -> Json:
    formats = {"heatmap": "heatmap", "table": "table"}
    query = {
        "refId": reference,
        "datasource": DATASOURCE,
        "expr": str(target.expr),
        "format": formats.get(panel.kind, "time_series"),
        "legendFormat": target.legend,
        "instant": panel.instant,
        "range": not panel.instant,
    }
    if has_exemplars(target) and not panel.instant:
        query["exemplar"] = True
    return query


def thresholds(thresholds: Thresholds) -> Json:
    """Return colours by absolute value."""
    steps = [(None, thresholds.base), *thresholds.steps]
    listed = [{"value": value, "color": color} for value, color in steps]
    return {"mode": "absolute", "steps": listed}


def column_title(label: str) -> str:
    """Return the title of a table's column with the values of *label*."""
    return _TITLES.get(label, label.replace("_", " ").capitalize())


def _stat(panel: Panel, made: Json, defaults: Json) -> None:
    defaults |= {
        "color": {"mode": "thresholds"},
        "thresholds": thresholds(panel.thresholds or _PLAIN),
        "mappings": [_unknown(_empty(panel))],
    }
    made["options"] = {
        # No colour for a value of which no threshold says that it is good.
        "colorMode": "none" if panel.thresholds is None else "background",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "percentChangeColorMode": "standard",
        "showPercentChange": False,
        "wideLayout": True,
        **dict.fromkeys(("justifyMode", "orientation", "textMode"), "auto"),
    }


def _timeseries(panel: Panel, made: Json, defaults: Json) -> None:
    custom: Json = {
        "lineWidth": 1,
        "fillOpacity": _fill(panel),
        "showPoints": "never",
        "stacking": {"mode": panel.stacked, "group": "A"},
    }
    if panel.thresholds is not None:
        custom["thresholdsStyle"] = {"mode": "dashed"}
        defaults["thresholds"] = thresholds(panel.thresholds)
    if panel.top is None and panel.unit in _LEAST_TOP:
        custom["axisSoftMax"] = _LEAST_TOP[panel.unit]
    defaults |= {
        "color": {"mode": "palette-classic"},
        "min": panel.minimum,
        "custom": custom,
    }
    extreme = "min" if panel.lowest_first else "max"
    legend = {
        "showLegend": True,
        "displayMode": "table",
        "placement": "bottom",
        "calcs": ["lastNotNull", extreme],
        "sortBy": extreme.capitalize(),
        "sortDesc": not panel.lowest_first,
    }
    made["options"] = {"legend": legend, "tooltip": _TOOLTIP}


def _fill(panel: Panel) -> float:
    """Return the per cent below lines; of many series they add up to a wall."""
    if panel.stacked != "none":
        return 40
    return 0 if panel.ranked else 8


def _state_timeline(panel: Panel, made: Json, defaults: Json) -> None:
    defaults |= {
        "color": {"mode": "thresholds"},
        "thresholds": thresholds(panel.thresholds or _PLAIN),
        "custom": {"fillOpacity": 80, "lineWidth": 0},
    }
    made["options"] = {
        "mergeValues": True,
        "showValue": "never",
        "alignValue": "left",
        "perPage": 20,
        "rowHeight": 0.8,
        "legend": {
            "showLegend": False,
            "displayMode": "list",
            "placement": "bottom",
            "calcs": [],
        },
        "tooltip": _TOOLTIP,
    }


def _heatmap(panel: Panel, made: Json, defaults: Json) -> None:
    defaults["custom"] = {}
    (metric,) = panel.metrics
    made["options"] = {
        "calculate": False,
        "cellGap": 1,
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "fill": "dark-orange",
            "exponent": 0.5,
            "steps": 64,
            "reverse": False,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": False},
        "selectionMode": "x",
        "showValue": "auto",
        "tooltip": {"mode": "single"},
        "yAxis": {"unit": UNITS[BY_NAME[metric].unit]},
    }


def _table(panel: Panel, made: Json, defaults: Json) -> None:
    defaults["custom"] = {"align": "auto", "inspect": False}
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
        "renameByName": {label: column_title(label) for label in panel.labels} | values,
    }
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organize},
    ]
    made["options"] = {
        "cellHeight": "sm",
        "footer": {"countRows": False, "reducer": [], "show": False},
        "frameIndex": 0,
        "showHeader": True,
        "showTypeIcons": False,
    }
    if panel.sort:
        made["options"]["sortBy"] = [{"displayName": panel.sort, "desc": True}]
    overrides = made["fieldConfig"]["overrides"]

    def override(name: str, **properties: Any) -> None:
        overrides.append(_override("byName", name, properties))

    # What is said of an empty table would stand in each of its empty cells.
    overrides.append(_override("byRegexp", ".*", {"noValue": _NO_VALUE}))
    for label in filter(_LONG.__contains__, panel.labels):
        # With a least width instead, Grafana would push the last column out.
        override(column_title(label), **{"custom.width": _LONG_PIXELS})
    for target in panel.targets:
        override(target.legend, **_column(target))
    if panel.mappings:
        text = {"custom.cellOptions": {"type": "color-text"}}
        override(column_title(panel.labels[0]), **text)
    for label, to in {**cell_links(panel), **dict(panel.cell_links)}.items():
        links = [{"title": to.title, "url": to.url, "targetBlank": True}]
        override(column_title(label), links=links)


def _override(matcher: str, of: str, properties: Json) -> Json:
    listed = [{"id": name, "value": value} for name, value in properties.items()]
    return {"matcher": {"id": matcher, "options": of}, "properties": listed}


def _column(target: Target) -> Json:
    unit = target.expr.shape.unit or ""
    properties: Json = {"unit": UNITS[unit], "custom.align": "right"}
    if target.expr.shape.unit == "":
        # An increase is extrapolated; people count in whole numbers.
        properties["decimals"] = 0
    if target.thresholds is not None:
        properties |= {
            "thresholds": thresholds(target.thresholds),
            "color": {"mode": "thresholds"},
            "custom.cellOptions": {"type": "color-text"},
            # Nothing is neither good nor bad.
            "mappings": [_unknown(_NO_VALUE, "text")],
        }
    return properties


def _empty(panel: Panel) -> str:
    """Return what *panel* says without data."""
    brief = panel.kind == "stat"
    return panel.no_value or absence(panel.metrics, brief=brief)


def _unknown(text: str, color: str = "transparent") -> Json:
    """Return the mapping of no value, which Grafana would colour like the lowest."""
    result = {"text": text, "color": color}
    return {"type": "special", "options": {"match": "null+nan", "result": result}}


def _mappings(mappings: tuple[Mapping, ...]) -> Json:
    shown = {
        mapping.value: {"text": mapping.text, "color": mapping.color, "index": index}
        for index, mapping in enumerate(mappings)
    }
    return {"type": "value", "options": shown}


_KINDS: dict[Kind, Callable[[Panel, Json, Json], None]] = {
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
        "No transfers": "host_syncs host_transfer",
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
