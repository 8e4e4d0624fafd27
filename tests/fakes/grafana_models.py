"""
Simple dashboards in either of Grafana's models, to play one case with both: the members
that the tests use are translated, and any other is an error.
"""

from typing import Any


Json = dict[str, Any]

API_VERSION = "dashboard.grafana.app/v2"

# What a v2 spec needs besides; the values are those of an empty dashboard.
_REST: Json = {
    "cursorSync": "Off",
    "preload": False,
    "annotations": [],
    "links": [],
    "layout": {"kind": "GridLayout", "spec": {"items": []}},
}
_TIME: Json = {
    "from": "now-6h",
    "to": "now",
    "autoRefresh": "",
    "autoRefreshIntervals": ["1m"],
    "hideTimepicker": False,
    "fiscalYearStartMonth": 0,
}
# Numbers of the classic model, or what it treats as absent; v2 has no place for them.
_NOTHING = {"id", "version", "schemaVersion", "iteration", "fromAFutureRelease", "uid"}


def resource(body: Json) -> Json:
    """Return a classic *body* as a v2 resource."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Dashboard",
        "metadata": {"name": body["uid"]},
        "spec": as_v2(body),
    }


def as_v2(body: Json) -> Json:
    """Return a classic *body* as a spec of the v2 model."""
    left = {key: value for key, value in body.items() if key not in _NOTHING}
    time = {**_TIME, "autoRefresh": left.pop("refresh", "")}
    if "time" in left:
        time["from"] = left.pop("time")["from"]
    panels = left.pop("panels", None) or []
    variables = left.pop("templating", {}).get("list", [])
    spec = {
        "title": left.pop("title"),
        "tags": left.pop("tags", []),
        "timeSettings": time,
        "elements": {f"panel-{one['id']}": _element(one) for one in panels},
        "variables": [_variable(one) for one in variables],
        **_REST,
    }
    for key in ("editable", "description", "links"):
        if key in left:
            spec[key] = left.pop(key)
    assert not left, left
    return spec


def as_classic(spec: Json, uid: str) -> Json:
    """Return a *spec* that `as_v2` made as a classic body."""
    time = spec["timeSettings"]
    found = {
        "uid": uid,
        "title": spec["title"],
        "tags": spec["tags"],
        "refresh": time["autoRefresh"],
        "panels": [_panel(one) for one in spec["elements"].values()],
        "templating": {"list": [_named(one) for one in spec["variables"]]},
    }
    if time["from"] != _TIME["from"]:
        found["time"] = {"from": time["from"]}
    if "editable" in spec:
        found["editable"] = spec["editable"]
    return found


def _element(panel: Json) -> Json:
    group: Json = {"queries": [], "transformations": [], "queryOptions": {}}
    config: Json = {"defaults": {}, "overrides": []}
    return {
        "kind": "Panel",
        "spec": {
            "id": panel["id"],
            "title": panel["title"],
            "description": "",
            "links": [],
            "data": {"kind": "QueryGroup", "spec": group},
            "vizConfig": {
                "kind": "VizConfig",
                "group": panel["type"],
                "version": "",
                "spec": {"options": panel.get("options", {}), "fieldConfig": config},
            },
        },
    }


def _panel(element: Json) -> Json:
    spec = element["spec"]
    viz = spec["vizConfig"]
    found = {"id": spec["id"], "type": viz["group"], "title": spec["title"]}
    return found | ({"options": options} if (options := viz["spec"]["options"]) else {})


def _variable(one: Json) -> Json:
    assert one["type"] == "datasource"
    current = one.get("current", {})
    return {
        "kind": "DatasourceVariable",
        "spec": {
            "name": one["name"],
            "pluginId": "prometheus",
            "refresh": "never",
            "regex": "",
            "current": {"text": current.get("text", ""), "value": ""},
            "options": [],
            "multi": False,
            "includeAll": False,
            "hide": "dontHide",
            "skipUrlSync": False,
            "allowCustomValue": True,
        },
    }


def _named(one: Json) -> Json:
    return {"name": one["spec"]["name"], "type": "datasource"}
