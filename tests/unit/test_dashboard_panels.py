"""The panels in the dashboards' JSON: queries, axes, colours, columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.artifacts.promql.shape import SCRAPED_LABELS
from jaxmon.catalog import BY_NAME
from tests.rendered import DASHBOARDS, EVERY_DASHBOARD, panels


SELECTOR = re.compile(r"\b[a-zA-Z_:][\w:]*\{([^}]*)\}")
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


def targets() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield name, panel and target of each query."""
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield f"{name} {panel['id']}{target['refId']}", panel, target


TARGETS = {name: (panel, target) for name, panel, target in targets()}


EVERY_TARGET = pytest.mark.parametrize(
    ("panel", "target"), TARGETS.values(), ids=TARGETS
)


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
    Every selector is limited to the chosen service, most to the chosen hosts; or to the
    GPUs that belong to them, or what reads those.
    """
    assert target["datasource"]["uid"] == "${datasource}"
    bare = re.sub(SELECTOR, "", target["expr"])
    bare = re.sub(r"_(?:bucket|count|sum)\b", "", bare)
    assert not set(re.findall(r"\w+", bare)) & BY_NAME.keys()
    for selector in re.findall(SELECTOR, target["expr"]):
        if 'uuid=~"$gpu"' in selector or 'instance=~"$host"' in selector:
            continue
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
        rf"\((\w+) unless last_over_time\(\1\[1h\] offset ({window})\)\) or "
        r"(increase\(\1\[\2\]\))",
        r"\3",
        expr,
    )
    before = rf"last_over_time\(\1\[1h\] offset ({window})\)"
    expr = re.sub(
        rf"\((\w+) > 0 unless {before} > 0\) or (increase\(\1\[\2\]\)) > 0",
        r"\3",
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
    """Tables and single figures ask for now, graphs for a range; formats match."""
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
        lowest = -1 if panel["title"] == "Error budget remaining" else 0
        assert panel["fieldConfig"]["defaults"]["min"] == lowest


def test_heatmaps_have_colours_and_a_unit():
    """A heatmap has steps of colour, and an axis in the unit of what is measured."""
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
    """A single figure is coloured by thresholds and reduces to the last value."""
    for panel in panels(dashboard):
        if panel["type"] == "stat":
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]
            assert panel["fieldConfig"]["defaults"]["color"]["mode"] == "thresholds"
            assert panel["fieldConfig"]["defaults"]["noValue"]


@EVERY_DASHBOARD
def test_columns_of_tables_exist(dashboard):
    """What a table renames, orders or formats is a column that its queries yield."""
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
