"""The dashboards in Grafana's v2 model, compared with the classic ones."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from jaxmon_dashboards.boards import DashboardOptions, render_all
from tests.helpers.dashboards import (
    DASHBOARDS,
    panels,
    published,
    rendered_v2,
    resources,
)


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
    found = {**spec, "builtIn": int(spec["builtIn"]), "datasource": _source(query)}
    if formats is None:
        return {**found, "target": query["spec"]}
    assert query["spec"]["refId"] == "Anno"
    return {
        **found,
        **formats,
        "expr": query["spec"]["expr"],
        "step": query["spec"]["interval"],
    }


EVERY = pytest.mark.parametrize("name", DASHBOARDS)

# What the classic SDK writes for every variable, link, annotation and panel, and what
# says nothing: false, or nothing at all.
NOISE = {"auto_count": 30, "auto_min": "10s", "repeatDirection": "h"}


def said(value: Any) -> Any:
    """Return *value* without the members that say nothing."""
    if isinstance(value, dict):
        found = {key: said(item) for key, item in value.items()}
        return {
            key: item
            for key, item in found.items()
            if (item or item == 0) and item is not False and NOISE.get(key) != item
        }
    return [said(one) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    """Return what checks the spec of a resource against the foundation SDK's schema."""
    schema = published("GRAFANA_DASHBOARD_V2_SCHEMA")
    return jsonschema.Draft7Validator({**schema, "$ref": "#/definitions/Dashboard"})


@EVERY
def test_every_panel_is_the_same(name):
    """Each panel's queries, options, links and places are those of the classic form."""
    back = {one["id"]: said(one) for one in panels(classic(resources()[name]))}
    assert list(back) == [one["id"] for one in panels(DASHBOARDS[name])]
    for panel in panels(DASHBOARDS[name]):
        # Each query names its data source; the panel's is not used.
        made = {key: value for key, value in panel.items() if key != "datasource"}
        assert back[panel["id"]] == said(made)


@EVERY
def test_every_row_is_the_same(name):
    """Rows have the same titles and places, and the same ones are collapsed."""

    def rows(dashboard):
        for one in dashboard["panels"]:
            if one["type"] == "row":
                inside = [panel["id"] for panel in one["panels"]]
                yield one["title"], one["collapsed"], one["gridPos"], inside

    assert list(rows(classic(resources()[name]))) == list(rows(DASHBOARDS[name]))


@EVERY
def test_everything_around_the_panels_is_the_same(name):
    """Variables, annotations, links and times are those of the classic form."""
    assert sorted(resources()) == list(DASHBOARDS)
    assert resources()[name]["metadata"] == {"name": DASHBOARDS[name]["uid"]}
    back, made = classic(resources()[name]), dict(DASHBOARDS[name])
    # A number of the classic model's versions.
    del made["schemaVersion"]
    for dashboard in (back, made):
        del dashboard["panels"]
    assert said(back) == said(made)


@EVERY
def test_resource_is_valid(name, validator):
    """The published schema of the v2 model accepts each of ours."""
    errors = [
        f"{'/'.join(map(str, error.path))}: {error.message[:200]}"
        for error in validator.iter_errors(resources()[name]["spec"])
    ]
    assert errors == []


def test_rendering_is_stable():
    """The same input gives the same bytes, and another data source other ones."""
    assert render_all(form="v2") == rendered_v2()
    chosen = render_all(DashboardOptions(datasource="mimir"), "v2")
    current = json.loads(chosen["oncall.json"])["spec"]["variables"][0]["spec"][
        "current"
    ]
    assert current == {"selected": True, "text": "mimir", "value": "mimir"}
