"""
The JSON of the dashboards: Grafana's schema, and the rules of dashboard-linter.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jaxmon import catalog
from jaxmon.artifacts.dashboards import Options, render_all
from jaxmon.artifacts.shape import SCRAPED_LABELS
from jaxmon.catalog import BY_NAME
from tests.support import ROOT


# Path of jsonschema/dashboard.jsonschema.json of grafana-foundation-sdk, which is in
# its repository but not in its wheel. It is not ours to keep here.
SCHEMA = "GRAFANA_DASHBOARD_SCHEMA"
ANYTHING = {"type": "object", "additionalProperties": {}}

RENDERED = render_all()
DASHBOARDS = {name: json.loads(text) for name, text in RENDERED.items()}

# Exist for targets that jaxmon has nothing to do with, or before any target.
MATCHERS = {"job", "instance"}
COUNTERS = re.compile(r"\b\w+_(?:total|bucket|count|sum)\b")
# Checks that somebody made, a few in the life of a process: their number is of interest
# itself, and `increase` would not see the first.
RARE = {
    metric.name
    for metric in (
        catalog.DETERMINISM_CHECKS,
        catalog.GRADIENT_CHECKS,
        catalog.KEY_REUSE,
    )
}


def relaxed(schema: Any) -> Any:
    """
    Return *schema* with "anything" where it says "any object".
    """
    if isinstance(schema, dict):
        if schema.items() >= ANYTHING.items():
            return {}
        return {key: relaxed(value) for key, value in schema.items()}
    return [relaxed(one) for one in schema] if isinstance(schema, list) else schema


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """
    Yield the panels, those of collapsed rows included, rows left out.
    """
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def targets() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """
    Yield name, panel and target of each query.
    """
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield f"{name} {panel['id']}{target['refId']}", panel, target


TARGETS = {name: (panel, target) for name, panel, target in targets()}
EVERY_DASHBOARD = pytest.mark.parametrize(
    "dashboard", DASHBOARDS.values(), ids=DASHBOARDS
)
EVERY_TARGET = pytest.mark.parametrize(
    ("panel", "target"), TARGETS.values(), ids=TARGETS
)


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    """
    Return what checks a dashboard against the schema of the foundation SDK.
    """
    if SCHEMA not in os.environ:
        pytest.skip(f"{SCHEMA} names no dashboard.jsonschema.json")
    schema = relaxed(json.loads(Path(os.environ[SCHEMA]).read_text()))
    return jsonschema.Draft7Validator(schema)


@EVERY_DASHBOARD
def test_dashboard_survives_the_models_of_the_sdk(dashboard):
    """
    Read into the SDK's typed models and written again, nothing is lost or added.
    """
    assert reread(dashboard) == dashboard


def test_models_of_the_sdk_would_notice():
    """
    A key that Grafana does not know is lost on the way.
    """
    dashboard = {**next(iter(DASHBOARDS.values())), "titel": "x"}
    assert reread(dashboard) != dashboard


def reread(dashboard: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        # The SDK warns of its classic models when they are imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

        register_default_plugins()
        text = JSONEncoder().encode(Dashboard.from_json(dashboard))
    return json.loads(text, object_hook=out_of_the_menu)


def out_of_the_menu(read: dict[str, Any]) -> dict[str, Any]:
    # The models put every link and annotation there, whatever they were read from.
    if read.get("placement") == "inControlsMenu":
        del read["placement"]
    return read


@EVERY_DASHBOARD
def test_dashboard_is_valid(dashboard, validator):
    """
    The published schema of Grafana's dashboards accepts each of ours.
    """
    errors = [
        f"{'/'.join(map(str, error.path))}: {error.message[:200]}"
        for error in validator.iter_errors(dashboard)
    ]
    assert errors == []


@pytest.mark.parametrize(
    "damage",
    [
        {"titel": "x"},
        {"panels": [{"type": "stat", "gridPos": {"h": "4"}}]},
        {"templating": {"list": [{"type": "no such type", "name": "x"}]}},
        {"schemaVersion": "39"},
    ],
)
def test_schema_would_notice(damage, validator):
    """
    An unknown key, a wrong type or a wrong kind of variable is refused.
    """
    dashboard = next(iter(DASHBOARDS.values()))
    assert not validator.is_valid({**dashboard, **damage})


def test_at_least_thirty_panels():
    """
    Together the dashboards have the panels that were promised, and more.
    """
    assert sum(1 for one in DASHBOARDS.values() for _ in panels(one)) >= 30


def test_rendering_is_stable():
    """
    The same input gives the same bytes.
    """
    assert render_all() == RENDERED


def test_sdk_is_not_one_of_the_epoch_builds():
    """
    The bound in pyproject.toml keeps out the builds that pip takes for newest.
    """
    assert "!" not in version("grafana-foundation-sdk")


@EVERY_DASHBOARD
def test_identity(dashboard):
    """
    The uid is stable; what a Grafana assigns is not there; old ones can read it.
    """
    assert re.fullmatch(r"jaxmon-[a-z]+", dashboard["uid"])
    assert not {"id", "version", "iteration", "__inputs"} & dashboard.keys()
    assert dashboard["schemaVersion"] == 39
    assert dashboard["tags"] == ["jaxmon"]
    assert dashboard["editable"] is False
    assert dashboard["graphTooltip"] == 1
    assert dashboard["refresh"] == "30s"


@EVERY_DASHBOARD
def test_ids_and_titles_are_unique(dashboard):
    """
    No two panels or rows have one id, no two panels one title.
    """
    rows = [one for one in dashboard["panels"] if one["type"] == "row"]
    every = list(panels(dashboard))
    ids = [one["id"] for one in (*rows, *every)]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    titles = [one["title"] for one in every]
    assert len(set(titles)) == len(titles)


@EVERY_DASHBOARD
def test_grid_is_full_and_nothing_overlaps(dashboard):
    """
    Each line of the grid is filled from edge to edge exactly once.
    """
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


def grids(dashboard):
    """
    Yield what Grafana lays out at once: all that is open, then each collapsed row.
    """
    yield dashboard["panels"]
    yield from (one["panels"] for one in dashboard["panels"] if one.get("collapsed"))


def right(panel):
    return panel["gridPos"]["x"] + panel["gridPos"]["w"]


def bottom(panel):
    return panel["gridPos"]["y"] + panel["gridPos"]["h"]


@EVERY_DASHBOARD
def test_open_rows_hold_no_panels(dashboard):
    """
    Grafana drops panels inside a row that is not collapsed.
    """
    for row in dashboard["panels"]:
        if row["type"] == "row":
            assert bool(row["panels"]) == row["collapsed"]


@EVERY_DASHBOARD
def test_variables(dashboard):
    """
    The data source comes first; the rest are found anew when the time range changes.
    """
    first, *rest = dashboard["templating"]["list"]
    assert (first["name"], first["type"]) == ("datasource", "datasource")
    assert first["query"] == "prometheus"
    assert [one["name"] for one in rest] == [
        *("job", "instance", "worker", "function", "device")
    ]
    for one in rest:
        assert one["type"] == "query"
        assert one["datasource"]["uid"] == "${datasource}"
        assert one["refresh"] == 2
        assert (one["multi"], one["includeAll"]) == (True, True)
        assert one["current"]["value"] == "$__all"
        assert one["label"]
        assert one["query"]["query"] == one["definition"]
        metric = re.match(r"label_values\((\w+)", one["definition"])
        assert metric is not None
        assert metric[1] in BY_NAME
    assert {one["name"]: one.get("allValue") for one in rest} == {
        # All: the jobs that run jaxmon, not every job of the Prometheus.
        "job": None,
        "instance": ".+",
        "worker": ".*",
        "function": ".*",
        "device": ".*",
    }


@EVERY_DASHBOARD
def test_links_are_not_hidden_in_a_menu(dashboard):
    """
    Links and annotations stand where a reader sees them, and keep time and choices.
    """
    (siblings,) = dashboard["links"]
    assert (siblings["type"], siblings["tags"]) == ("dashboards", ["jaxmon"])
    assert siblings["includeVars"] is siblings["keepTime"] is True
    assert "inControlsMenu" not in json.dumps(dashboard)


@EVERY_DASHBOARD
def test_annotations_show_starts_and_alerts(dashboard):
    """
    Starts of processes and firing alerts are drawn across the panels.
    """
    found = dashboard["annotations"]["list"]
    assert [one["name"] for one in found] == ["Starts", "Alerts"]
    for one in found:
        assert one["enable"] is True
        assert one["datasource"]["uid"] == "${datasource}"
        assert MATCHERS & set(re.findall(r"(\w+)=~", one["expr"]))


@EVERY_DASHBOARD
def test_every_panel_says_what_it_shows(dashboard):
    """
    Each panel has a title, a sentence that ends with the metrics, and a data source.
    """
    for panel in panels(dashboard):
        assert panel["title"]
        text, _, metrics = panel["description"].partition("\n\nMetrics: ")
        assert text.endswith(".")
        named = re.findall(r"`([\w:]+)`", metrics)
        assert named
        for name in named:
            assert name in BY_NAME or name in ("up", "ALERTS") or ":" in name
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"]


@EVERY_TARGET
def test_query_selects_by_job(panel, target):
    """
    Every selector is limited to the chosen service, most to the chosen hosts.
    """
    assert target["datasource"]["uid"] == "${datasource}"
    for selector in re.findall(r"\b[a-zA-Z_:][\w:]*\{([^}]*)\}", target["expr"]):
        assert 'job=~"$job"' in selector
        if "sloth" not in selector and "alertname" not in selector:
            slo = "slo:" in target["expr"]
            assert slo or 'instance=~"$instance"' in selector


@EVERY_TARGET
def test_counters_are_never_shown_bare(panel, target):
    """
    Each counter stands inside rate or increase, over Grafana's interval or range, or
    beside such an increase where its series is born.
    """
    expr = re.sub(r"\{[^}]*\}", "", target["expr"])
    window = r"\$__(?:rate_interval|range)"
    expr = re.sub(
        rf"(increase\((\w+)\[({window})\]\) > 0) or "
        r"\(\2 unless last_over_time\(\2\[1h\] offset \3\)\) > 0",
        r"\1",
        expr,
    )
    rated = rf"(?:rate|increase)\((\w+)\[{window}\]\)"
    bare = re.sub(rated, "", expr)
    found = COUNTERS.findall(bare)
    if panel["type"] == "table":
        found = [name for name in found if name not in RARE]
    assert found == []
    # A range vector of a gauge is for changes alone.
    windows = re.findall(r"(\w+)\(\w+\[([^]]*)\]\)", expr)
    assert {function for function, _ in windows} <= {"rate", "increase", "changes"}


@EVERY_TARGET
def test_target_fits_its_panel(panel, target):
    """
    Tables and single figures ask for now, graphs for a range; formats match.
    """
    instant = panel["type"] in ("stat", "table")
    assert target.get("instant", False) is instant
    assert target.get("range", False) is not instant
    formats = {"table": "table", "heatmap": "heatmap"}
    assert target["format"] == formats.get(panel["type"], "time_series")
    assert target["legendFormat"]


@EVERY_DASHBOARD
def test_graphs_can_be_read(dashboard):
    """
    A graph has a legend as a table with last and maximum, and starts at zero,
    but for budgets, which can be overdrawn.
    """
    for panel in panels(dashboard):
        if panel["type"] != "timeseries":
            continue
        legend = panel["options"]["legend"]
        assert (legend["showLegend"], legend["displayMode"]) == (True, "table")
        assert legend["calcs"] == ["lastNotNull", "max"]
        assert panel["options"]["tooltip"] == {"mode": "multi", "sort": "desc"}
        lowest = -1 if panel["title"] == "Error budget left" else 0
        assert panel["fieldConfig"]["defaults"]["min"] == lowest


def test_heatmaps_have_colours_and_a_unit():
    """
    A heatmap has steps of colour, and an axis in the unit of what is measured.
    """
    heatmaps = [
        one
        for dashboard in DASHBOARDS.values()
        for one in panels(dashboard)
        if one["type"] == "heatmap"
    ]
    assert heatmaps
    for panel in heatmaps:
        assert panel["options"]["color"]["steps"] == 64
        assert panel["options"]["color"]["exponent"] > 0
        assert panel["options"]["calculate"] is False
        unit = "percentunit" if panel["title"] == "Batches by fill" else "s"
        assert panel["options"]["yAxis"]["unit"] == unit
        assert panel["fieldConfig"]["defaults"]["unit"] == "short"


@EVERY_DASHBOARD
def test_single_figures_show_the_last_value(dashboard):
    """
    A single figure is coloured by thresholds and reduces to the last value.
    """
    for panel in panels(dashboard):
        if panel["type"] == "stat":
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]
            assert panel["fieldConfig"]["defaults"]["color"]["mode"] == "thresholds"
            assert panel["fieldConfig"]["defaults"]["noValue"]


@EVERY_DASHBOARD
def test_columns_of_tables_exist(dashboard):
    """
    What a table renames, orders or formats is a column that its queries yield.
    """
    for panel in panels(dashboard):
        if panel["type"] != "table":
            continue
        merge, organize = panel["transformations"]
        assert (merge["id"], organize["id"]) == ("merge", "organize")
        renamed = organize["options"]["renameByName"]
        values = [one for one in renamed if one.startswith("Value")]
        assert len(values) == len(panel["targets"])
        shown = set(renamed.values())
        for override in panel["fieldConfig"]["overrides"]:
            assert override["matcher"]["options"] in shown
        for label in set(renamed) - set(values) - set(SCRAPED_LABELS):
            for target in panel["targets"]:
                assert label in target["expr"] or "by" not in target["expr"]


@EVERY_DASHBOARD
def test_links_to_dashboards_lead_somewhere(dashboard):
    """
    A link names a dashboard and variables that exist.
    """
    names = {one["name"] for one in dashboard["templating"]["list"]}
    text = json.dumps(dashboard)
    links = re.findall(r'"(/d/[^"]+)"', text)
    assert links
    for link in links:
        uid, _, query = link.removeprefix("/d/").partition("?")
        assert uid in {one["uid"] for one in DASHBOARDS.values()}
        assert set(re.findall(r"var-(\w+)=", query)) <= names
        assert set(re.findall(r"\{(\w+):queryparam\}", query)) <= names


def test_runbook_links_follow_the_option():
    """
    Panels about an alert link its runbook below the address that was given.
    """
    text = "\n".join(render_all(Options(runbooks="https://wiki.example/rb/")).values())
    assert "https://wiki.example/rb/JaxmonRecompileStorm.md" in text
    assert "https://wiki.example/rb/${__value.text}.md" in text
    assert "github.com" not in text


def test_thresholds_follow_the_objectives(tmp_path: Path):
    """
    Another objective moves the line in the panel and the colour in the table.
    """
    path = tmp_path / "slo.yaml"
    shipped = (ROOT / "alerts" / "slo.yaml").read_text()
    path.write_text(shipped.replace("objective: 99.9%", "objective: 99.5%"))
    other = render_all(Options(slo=path))["oncall.json"]
    for text, bound in ((RENDERED["oncall.json"], 0.001), (other, 0.005)):
        by_title = {one["title"]: one for one in panels(json.loads(text))}
        for title in ("Share of requests that fail", "Request errors"):
            steps = by_title[title]["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert [one["value"] for one in steps] == [None, bound]


@pytest.mark.parametrize("number", [1, 30])
def test_any_objectives_will_do(number: int, tmp_path: Path):
    """
    A site's own file may have none of the names that ours has, and more of them.
    """
    document = {
        "slos": [
            {
                "name": f"own-{index}",
                "title": f"Own {index}",
                "description": "Calls hit.",
                "objective": "95%",
                "by": ["job"],
                "indicator": {
                    "good": "jaxmon_jit_cache_hits_total",
                    "total": "jaxmon_jit_calls_total",
                },
            }
            for index in range(number)
        ]
    }
    path = tmp_path / "slo.yaml"
    path.write_text(yaml.safe_dump(document))
    for text in render_all(Options(slo=path)).values():
        dashboard = json.loads(text)
        assert reread(dashboard) == dashboard
        for panel in panels(dashboard):
            references = [one["refId"] for one in panel["targets"]]
            assert len(set(references)) == len(references)
            if panel["title"] == "Burn rate over one hour":
                assert len(references) == len(panel["links"]) == number


def test_site_options_reach_the_json():
    """
    Data source and refresh interval are preselected as asked for.
    """
    text = render_all(Options(datasource="prom-eu", refresh="1m"))["debug.json"]
    dashboard = json.loads(text)
    first = dashboard["templating"]["list"][0]
    assert first["current"] == {"selected": True, "text": "prom-eu", "value": "prom-eu"}
    assert dashboard["refresh"] == "1m"
