"""The JSON of the dashboards: Grafana's schema, and the rules of dashboard-linter."""

import json
import re
from typing import Any

import jsonschema
import pytest

from jaxmon.catalog import BY_NAME
from jaxmon_dashboards.boards import render_all
from jaxmon_dashboards.boards.build import DEPLOY_TAGS
from tests.helpers.dashboards import (
    DASHBOARDS,
    EVERY_DASHBOARD,
    RENDERED,
    panels,
    published,
    reread,
)


# Exist for targets that jaxmon has nothing to do with, or before any target.
MATCHERS = {"job", "instance"}

LABELS = "label_values"

EXECUTIVE = "jaxmon-executive"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    """Return what checks a dashboard against the schema of the foundation SDK."""
    return jsonschema.Draft7Validator(published("GRAFANA_DASHBOARD_SCHEMA"))


@EVERY_DASHBOARD
def test_dashboard_survives_the_models_of_the_sdk(dashboard):
    """Read into the SDK's typed models and written again, nothing is lost or added."""
    assert reread(dashboard) == dashboard


@EVERY_DASHBOARD
def test_dashboard_is_valid(dashboard, validator):
    """The published schema of Grafana's dashboards accepts each of ours."""
    errors = [
        f"{'/'.join(map(str, error.path))}: {error.message[:200]}"
        for error in validator.iter_errors(dashboard)
    ]
    assert errors == []


def test_rendering_is_stable():
    """The same input gives the same bytes."""
    assert render_all() == RENDERED


@EVERY_DASHBOARD
def test_grid_is_full_and_nothing_overlaps(dashboard):
    """Each line of the grid is filled from edge to edge exactly once."""
    for group in grids(dashboard):
        cells = [
            (x, y)
            for panel in group
            for x in range(panel["gridPos"]["x"], right(panel))
            for y in range(panel["gridPos"]["y"], bottom(panel))
        ]
        assert len(set(cells)) == len(cells)
        ys = {y for _, y in cells}
        assert set(cells) == {(x, y) for x in range(24) for y in ys}
        assert ys == set(range(min(ys), max(ys) + 1))


def test_a_panel_of_two_boards_is_one_panel():
    """What has the same title or id on two boards is the same, but for its place."""
    by_title: dict[str, Any] = {}
    by_id: dict[int, Any] = {}
    for dashboard in DASHBOARDS.values():
        for panel in panels(dashboard):
            placed = {**panel, "gridPos": None}
            assert by_title.setdefault(panel["title"], placed) == placed
            assert by_id.setdefault(panel["id"], placed) == placed


def grids(dashboard):
    """Yield what Grafana lays out at once: all that is open, then each closed row."""
    yield dashboard["panels"]
    yield from (one["panels"] for one in dashboard["panels"] if one.get("collapsed"))


def right(panel):
    return panel["gridPos"]["x"] + panel["gridPos"]["w"]


def bottom(panel):
    return panel["gridPos"]["y"] + panel["gridPos"]["h"]


DEPENDENT = ("function", "gpu", "gpus", "host")
ALL_VALUES = {
    "cluster": ".*",
    "namespace": ".*",
    # All: the jobs that run jaxmon, not every job of the Prometheus.
    "job": None,
    "instance": ".+",
    "worker": ".*",
    # So many of them.
    "function": None,
    "gpu": ".+",
    # What is chosen of them, or a pattern.
    "gpus": None,
    # What belongs to the GPUs of the services; one of its values is a pattern.
    "host": None,
}


@pytest.mark.parametrize(
    ("name", "variables"),
    [("oncall.json", 3), ("debug.json", 6), ("accelerators.json", len(ALL_VALUES))],
)
def test_variables(name, variables):
    """The data source comes first, traces last; the rest follows the time range."""
    dashboard = DASHBOARDS[name]
    expected = dict(list(ALL_VALUES.items())[:variables])
    first, *rest = dashboard["templating"]["list"]
    if name != "accelerators.json":
        last = rest.pop()
        assert (last["name"], last["type"]) == ("traces", "datasource")
        assert last["query"] == "tempo"
    assert (first["name"], first["type"]) == ("datasource", "datasource")
    assert first["query"] == "prometheus"
    assert [one["name"] for one in rest] == list(expected)
    for one in rest:
        assert one["type"] == "query"
        assert one["datasource"]["uid"] == "${datasource}"
        assert one["refresh"] == 2
        assert (one["multi"], one["includeAll"]) == (True, True)
        assert one["current"]["value"] == "$__all"
        assert one["label"]
        assert one["query"]["query"] == one["definition"]
        kind, _, query = one["definition"].partition("(")
        assert kind == ("query_result" if one["name"] in DEPENDENT else LABELS)
        names = re.findall(r"\bjaxmon_\w+", query)
        assert names
        assert set(names) <= set(BY_NAME)
    assert {one["name"]: one.get("allValue") for one in rest} == expected
    hidden = [one["name"] for one in rest if one.get("hide")]
    assert hidden == [name for name in ("gpus", "host") if name in expected]


@EVERY_DASHBOARD
def test_queries_use_variables_that_the_dashboard_has(dashboard):
    """Grafana sends the name of any other to Prometheus, which then finds nothing."""
    known = {one["name"] for one in dashboard["templating"]["list"]}
    texts = [target["expr"] for one in panels(dashboard) for target in one["targets"]]
    texts += [one["expr"] for one in dashboard["annotations"]["list"] if "expr" in one]
    texts += [one.get("definition", "") for one in dashboard["templating"]["list"]]
    used = {name for text in texts for name in re.findall(r"\$\{?([a-z]\w*)", text)}

    assert "job" in used
    assert used <= known


@EVERY_DASHBOARD
def test_links_are_not_hidden_in_a_menu(dashboard):
    """Links and annotations are in sight, and keep time and choices."""
    (siblings,) = dashboard["links"]
    assert (siblings["type"], siblings["tags"]) == ("dashboards", ["jaxmon"])
    assert siblings["includeVars"] is siblings["keepTime"] is True
    assert "inControlsMenu" not in json.dumps(dashboard)


@EVERY_DASHBOARD
def test_annotations_show_what_changed(dashboard):
    """Starts, recompiles, deployments and alerts are drawn; over weeks, fewer."""
    found = dashboard["annotations"]["list"]
    events = ["Starts", "Recompiles", "Versions", "Programs", "Deployments", "Alerts"]
    if dashboard["uid"] == EXECUTIVE:
        events = ["Versions", "Deployments", "Pages"]
    assert [one["name"] for one in found] == events
    for one in found:
        assert one["enable"] is True
        if one["name"] == "Deployments":
            assert one["datasource"] == {"type": "grafana", "uid": "-- Grafana --"}
            assert (one["target"]["type"], one["target"]["matchAny"]) == ("tags", False)
            assert one["target"]["tags"] == [*DEPLOY_TAGS]
            continue
        assert one["datasource"]["uid"] == "${datasource}"
        assert MATCHERS & set(re.findall(r"(\w+)=~", one["expr"]))


@EVERY_DASHBOARD
def test_links_to_dashboards_lead_somewhere(dashboard):
    """A link names a dashboard and variables that exist."""
    names = {one["name"] for one in dashboard["templating"]["list"]}
    text = json.dumps(dashboard)
    for link in re.findall(r'"(/d/[^"]+)"', text):
        uid, _, query = link.removeprefix("/d/").partition("?")
        (board,) = (one for one in DASHBOARDS.values() if one["uid"] == uid)
        there = {one["name"] for one in board["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", query)) <= there
        assert set(re.findall(r"\{(\w+):queryparam\}", query)) <= names
