"""
What a Grafana checks in a resource of the v2 model, and what it adds.

Written from apps/dashboard/pkg/apis/dashboard/v2/dashboard_spec_gen.go: a member that a
struct does not have is refused by strict decoding, and one without ``omitempty`` is
stored with Go's zero value. Texts with a set of values may not be empty.
"""

from collections.abc import Iterator
from typing import Any


Json = dict[str, Any]

# Members by kind; with Go's zero value if they are always stored.
_OPTIONAL = object()
_DASHBOARD: Json = {
    "annotations": None,
    "cursorSync": "",
    "elements": None,
    "layout": _OPTIONAL,
    "links": None,
    "preload": False,
    "tags": None,
    "timeSettings": {},
    "title": "",
    "variables": None,
    **dict.fromkeys(
        ("description", "editable", "liveNow", "revision", "preferences"), _OPTIONAL
    ),
}
_VARIABLE: Json = {
    "name": "",
    "current": {"text": "", "value": ""},
    "hide": "",
    "refresh": "",
    "skipUrlSync": False,
    "regex": "",
    "options": None,
    "multi": False,
    "includeAll": False,
    "allowCustomValue": False,
    **dict.fromkeys(("label", "description", "allValue", "origin"), _OPTIONAL),
}
_SPECS: dict[str, Json] = {
    "Panel": {
        "id": 0,
        "title": "",
        "links": None,
        "data": {},
        "vizConfig": {},
        **dict.fromkeys(("description", "subtitle", "transparent"), _OPTIONAL),
    },
    "QueryGroup": {"queries": None, "transformations": None, "queryOptions": {}},
    "PanelQuery": {"query": {}, "refId": "", "hidden": False},
    "Transformation": {
        "options": None,
        **dict.fromkeys(("disabled", "filter", "topic"), _OPTIONAL),
    },
    "VizConfig": {"options": None, "fieldConfig": {}},
    "GridLayout": {"items": None},
    "GridLayoutItem": {
        "x": 0,
        "y": 0,
        "width": 0,
        "height": 0,
        "element": {},
        "repeat": _OPTIONAL,
    },
    "RowsLayout": {"rows": None},
    "RowsLayoutRow": {
        "layout": {},
        **dict.fromkeys(
            (
                *("title", "collapse", "hideHeader", "fillScreen"),
                *("conditionalRendering", "repeat", "variables"),
            ),
            _OPTIONAL,
        ),
    },
    "DatasourceVariable": {**_VARIABLE, "pluginId": ""},
    "QueryVariable": {
        **_VARIABLE,
        "query": {},
        "sort": "",
        **dict.fromkeys(
            (
                *("regexApplyTo", "definition", "placeholder"),
                *("staticOptions", "staticOptionsOrder"),
            ),
            _OPTIONAL,
        ),
    },
    "AnnotationQuery": {
        "query": {},
        "enable": False,
        "hide": False,
        "iconColor": "",
        "name": "",
        **dict.fromkeys(
            ("builtIn", "filter", "placement", "mappings", "legacyOptions"), _OPTIONAL
        ),
    },
}
# Beside kind and spec.
_BESIDE = {
    "Transformation": {"group"},
    "VizConfig": {"group", "version"},
    "DataQuery": {"group", "version", "labels", "datasource"},
}
_ONE_OF: dict[str, set[object]] = {
    "cursorSync": {"Off", "Crosshair", "Tooltip"},
    "hide": {"dontHide", "hideLabel", "hideVariable", "inControlsMenu", True, False},
    "refresh": {"never", "onDashboardLoad", "onTimeRangeChanged"},
}


def problems(spec: Any) -> Iterator[str]:
    """Yield why a *spec* is refused: unknown members first."""
    yield from _unknown(spec, _DASHBOARD, "spec")


def complete(spec: Json) -> Json:
    """Return *spec* as it is stored, with what Go adds."""
    done: Json = _complete(spec, _DASHBOARD)
    done.setdefault("layout", {"kind": "GridLayout", "spec": {"items": None}})
    return done


def invalid(spec: Json) -> Iterator[str]:
    """Yield what a stored *spec* may not be, as the schema in CUE says."""
    if not isinstance(spec.get("title"), str) or not spec["title"]:
        yield "spec.title: required"
    for where, name, value in _texts(spec, "spec"):
        if value not in _ONE_OF[name]:
            yield f"{where}.{name}: {len(_ONE_OF[name])} errors in empty disjunction"


def _unknown(value: Any, members: Json, where: str) -> Iterator[str]:
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key not in members:
            yield f'unknown field "{where}.{key}"'
        for path, one in _kinds(inner, f"{where}.{key}"):
            kind = one["kind"]
            for beside in set(one) - {"kind", "spec"} - _BESIDE.get(kind, set()):
                yield f'unknown field "{path}.{beside}"'
            if kind in _SPECS:
                yield from _unknown(one.get("spec"), _SPECS[kind], f"{path}.spec")


def _complete(value: Json, members: Json) -> Json:
    done = {key: _completed(inner) for key, inner in value.items()}
    added = {
        key: zero
        for key, zero in members.items()
        if zero is not _OPTIONAL and key not in done
    }
    return done | added


def _completed(value: Any) -> Any:
    if isinstance(value, list):
        return [_completed(one) for one in value]
    if not isinstance(value, dict):
        return value
    members = _SPECS.get(str(value.get("kind")))
    if members is None:
        # Elements by name; or what a plugin keeps, which is stored as it is.
        return {key: _completed(one) for key, one in value.items()}
    return {**value, "spec": _complete(value.get("spec") or {}, members)}


def _kinds(value: Any, where: str) -> Iterator[tuple[str, Json]]:
    """Yield the objects with a known kind that are next below *value*."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _kinds(one, f"{where}[{number}]")
    elif isinstance(value, dict):
        if value.get("kind") in (*_SPECS, *_BESIDE):
            yield where, value
        else:
            for key, one in value.items():
                yield from _kinds(one, f"{where}.{key}")


def _texts(value: Any, where: str) -> Iterator[tuple[str, str, Any]]:
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key in _ONE_OF and not isinstance(inner, (dict, list)):
            yield where, key, inner
        yield from _texts(inner, f"{where}.{key}")
    for number, one in enumerate(value if isinstance(value, list) else ()):
        yield from _texts(one, f"{where}[{number}]")
