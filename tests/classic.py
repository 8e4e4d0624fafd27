"""
Dashboards of Grafana's v2 model read back as classic ones, to compare both.

Written from the published schemas, and without the code that makes the v2 model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


Json = dict[str, Any]

_CURSOR = {"Off": 0, "Crosshair": 1, "Tooltip": 2}
_REFRESH = {"never": None, "onDashboardLoad": 1, "onTimeRangeChanged": 2}
_HIDE = {"dontHide": None, "hideLabel": 1, "hideVariable": 2}
_SORT = {"disabled": None, "alphabeticalAsc": 1, "alphabeticalCaseInsensitiveAsc": 5}
_TYPES = {"QueryVariable": "query", "DatasourceVariable": "datasource"}


def classic(resource: Json) -> Json:
    """Return *resource* as a classic dashboard, with all that it says."""
    assert (resource["apiVersion"], resource["kind"]) == (
        "dashboard.grafana.app/v2",
        "Dashboard",
    )
    spec = dict(resource["spec"])
    time = spec.pop("timeSettings")
    assert spec.pop("preload") is False
    found = {
        "uid": resource["metadata"]["name"],
        "graphTooltip": _CURSOR[spec.pop("cursorSync")],
        "panels": list(_panels(spec.pop("elements"), spec.pop("layout"))),
        "templating": {"list": [_variable(one) for one in spec.pop("variables")]},
        "annotations": {"list": [_annotation(one) for one in spec.pop("annotations")]},
        "time": {"from": time["from"], "to": time["to"]},
        "timezone": time["timezone"],
        "refresh": time["autoRefresh"],
        "fiscalYearStartMonth": time["fiscalYearStartMonth"],
    }
    # The rest has one name in both models.
    return found | {key: spec.pop(key) for key in list(spec)}


def _panels(elements: Json, layout: Json) -> Iterator[Json]:
    assert layout["kind"] == "RowsLayout"
    unplaced, y = dict(elements), 0
    for row in layout["spec"]["rows"]:
        spec = row["spec"]
        items = [one["spec"] for one in spec["layout"]["spec"]["items"]]
        inside = []
        for item in items:
            panel = _panel(unplaced.pop(item["element"]["name"]))
            place = {"x": item["x"], "y": item["y"] + y + 1}
            panel["gridPos"] = {**place, "w": item["width"], "h": item["height"]}
            repeat = item.get("repeat")
            if repeat:
                assert repeat["mode"] == "variable"
                panel["repeat"] = repeat["value"]
                panel["repeatDirection"] = repeat["direction"]
                panel["maxPerRow"] = repeat.get("maxPerRow")
            inside.append(panel)
        heading = {
            "type": "row",
            "title": spec["title"],
            "collapsed": spec["collapse"],
            "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
            "panels": inside if spec["collapse"] else [],
        }
        yield heading
        if spec["collapse"]:
            y += 1
        else:
            yield from inside
            y += 1 + max(one["y"] + one["height"] for one in items)
    assert not unplaced


def _panel(element: Json) -> Json:
    assert element["kind"] == "Panel"
    spec = dict(element["spec"])
    data, viz = spec.pop("data")["spec"], spec.pop("vizConfig")
    assert (viz["kind"], viz["version"]) == ("VizConfig", "")
    links = [{**one, "type": "link"} for one in spec.pop("links")]
    return {
        **spec,
        **data["queryOptions"],
        "type": viz["group"],
        **viz["spec"],
        "links": links,
        "targets": [_target(one) for one in data["queries"]],
        "transformations": [_transformation(one) for one in data["transformations"]],
    }


def _target(one: Json) -> Json:
    assert one["kind"] == "PanelQuery"
    spec = one["spec"]
    assert spec["hidden"] is False
    query = spec["query"]
    return {**query["spec"], "refId": spec["refId"], "datasource": _source(query)}


def _transformation(one: Json) -> Json:
    assert one["kind"] == "Transformation"
    return {"id": one["group"], **one["spec"]}


def _source(query: Json) -> Json:
    assert (query["kind"], query["version"]) == ("DataQuery", "v0")
    return {"type": query["group"], "uid": query["datasource"]["name"]}


def _variable(one: Json) -> Json:
    spec = dict(one["spec"])
    assert spec.pop("options") == []
    found: Json = {
        "type": _TYPES[one["kind"]],
        "refresh": _REFRESH[spec.pop("refresh")],
        "hide": _HIDE[spec.pop("hide")],
    }
    if one["kind"] == "QueryVariable":
        query = spec.pop("query")
        found |= {"datasource": _source(query), "query": query["spec"]}
        found["sort"] = _SORT[spec.pop("sort")]
        assert spec.pop("regexApplyTo", "value") == "value"
    else:
        found["query"] = spec.pop("pluginId")
        if spec["current"] == {"text": "", "value": ""}:
            del spec["current"]
    return found | spec


def _annotation(one: Json) -> Json:
    spec = dict(one["spec"])
    query, formats = spec.pop("query"), spec.pop("legacyOptions", None)
    found = {
        **spec,
        "builtIn": int(spec["builtIn"]),
        "datasource": _source(query),
    }
    if formats is None:
        return {**found, "target": query["spec"]}
    assert query["spec"]["refId"] == "Anno"
    return {
        **found,
        **formats,
        "expr": query["spec"]["expr"],
        "step": query["spec"]["interval"],
    }
