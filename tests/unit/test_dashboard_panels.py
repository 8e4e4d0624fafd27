"""The panels in the dashboards' JSON: queries, axes, colours, columns."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from jaxmon import catalog
from jaxmon.catalog import BY_NAME
from jaxmon.promql.expressions import SCRAPED_LABELS
from jaxmon.symptoms.alert import Severity
from jaxmon_alerts import slo
from jaxmon_alerts.slo.model import Condition
from jaxmon_dashboards.boards import queries
from tests.helpers.dashboards import DASHBOARDS, EVERY_DASHBOARD, panels
from tests.helpers.processes import each


RECORDED = re.compile(r"\b\w+:[\w:]+")
SELECTOR = re.compile(r"\b([a-zA-Z_:][\w:]*)\{([^}]*)\}")
# What is recorded of counters, level:metric:operations, is none.
COUNTERS = re.compile(r"\b\w+_(?:total|bucket|count|sum)\b(?!:)")


# Checks that somebody made, a few in the life of a process: their number is of interest
# itself, and `increase` would not see the first.
RARE = {
    metric.name
    for metric in (
        catalog.DETERMINISM_CHECKS,
        catalog.DEVICE_DEVIATIONS,
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


EVERY_TARGET = each({name: (panel, target) for name, panel, target in targets()})


@EVERY_DASHBOARD
def test_every_panel_says_what_it_shows(dashboard):
    """Each panel has a title, a text that ends with the metrics, and a data source."""
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


@EVERY_DASHBOARD
def test_small_titles_are_not_cut(dashboard):
    """The title of a figure that is an eighth of a screen wide fits beside its icon."""
    for panel in panels(dashboard):
        if panel["type"] == "stat" and panel["gridPos"]["w"] <= 3:
            assert len(panel["title"]) <= 14, panel["title"]


@EVERY_DASHBOARD
def test_an_empty_panel_says_what_there_is_none_of(dashboard):
    """Not only that there is no data; a recorded figure may also lack its rules."""
    for panel in panels(dashboard):
        said = panel["fieldConfig"]["defaults"]["noValue"]
        assert said not in ("", "No data")
        # None of what? Or is it only not seen?
        assert not said.startswith("None") or ", or no " in said


@EVERY_TARGET
def test_query_selects_by_job(panel, target):
    """Selectors have the service; raw series the hosts too, or their GPUs' readers."""
    assert target["datasource"]["uid"] == "${datasource}"
    text = re.sub(r"\$\{(host|gpus):pipe\}", r"$\1", target["expr"])
    bare = RECORDED.sub("", re.sub(SELECTOR, "", text))
    bare = re.sub(r"_(?:bucket|count|sum)\b", "", bare)
    assert not set(re.findall(r"\w+", bare)) & BY_NAME.keys()
    for name, selector in re.findall(SELECTOR, text):
        # Alerts about hardware are those of GPUs that are selected.
        if re.search(r'instance=~"\$host"|alertname|^uuid!?=""$', selector):
            continue
        assert 'job=~"$job"' in selector
        if re.sub(r"_(?:bucket|count|sum)$", "", name) in BY_NAME:
            assert 'instance=~"$instance"' in selector


@EVERY_TARGET
def test_counters_are_never_shown_bare(panel, target):
    """Each counter is in rate or increase, or beside one where its series is born."""
    expr = re.sub(r"\$\{(host|gpus):pipe\}", "", target["expr"])
    expr = re.sub(r"\{[^}]*\}", "", expr)
    expr = re.sub(r"\[([^]]*)\] @ end\(\)", r"[\1]", RECORDED.sub("recorded", expr))
    window = r"\$__(?:rate_interval|range)"
    expr = re.sub(
        rf"\((\w+) unless last_over_time\(\1\[1h\] offset ({window})\)\) or "
        r"(increase\(\1\[\2\]\))",
        r"\3",
        expr,
    )
    before = rf"last_over_time\(\1\[1h\] offset ({window})\)"
    expr = re.sub(
        rf"\((\w+) > 0 unless {before} > 0\) or (increase\(\1\[\2\]\)) > 0", r"\3", expr
    )
    rated = rf"(?:rate|increase|last_over_time)\((\w+)\[{window}\]\)"
    bare = re.sub(rated, "", expr)
    found = COUNTERS.findall(bare)
    if panel["type"] == "table":
        found = [name for name in found if name not in RARE]
    assert found == []
    # A range vector of a gauge is for changes alone.
    windows = re.findall(r"(\w+)\((?!recorded\b)\w+\[[^]]*\]\)", expr)
    over_range = {f"{name}_over_time" for name in ("count", "last", "max", "min")}
    assert {*windows} <= {"rate", "increase", "changes", *over_range}


def test_how_long_an_alert_fires_is_seen_without_scrolling():
    """It follows the alert's name; what the alert is about is one column."""
    (table,) = (
        one
        for one in panels(DASHBOARDS["oncall.json"])
        if one["title"] == "Firing alerts"
    )
    (order,) = (
        one["options"]["indexByName"]
        for one in table["transformations"]
        if one["id"] == "organize"
    )
    assert sorted(order, key=order.__getitem__)[:3] == [
        "severity",
        "alertname",
        "Value",
    ]
    assert "subject" in order
    assert not order.keys() & {"route", "function", "loop"}


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
        every, *overrides = panel["fieldConfig"]["overrides"]
        assert every["matcher"] == {"id": "byRegexp", "options": ".*"}
        for override in overrides:
            assert override["matcher"]["options"] in shown
        for label in set(renamed) - set(values) - set(SCRAPED_LABELS):
            for target in panel["targets"]:
                kept = re.sub(r"bottomk by \(\w+\)", "", target["expr"])
                assert label in kept or "by" not in kept


def test_burn_rates_have_the_colours_of_their_alerts():
    """Orange from the first ticket, red from the first page, by the site's policy."""

    def colours(*conditions: tuple[Severity, float]) -> tuple[tuple[float, str], ...]:
        policy = tuple(
            Condition("1h", "5m", "rate", rate, severity, "2m")
            for severity, rate in conditions
        )
        slos = slo.load()
        changed = tuple(replace(one, policy=policy) for one in slos)
        return queries.burn(replace(slos, slos=changed)).steps

    assert colours(("ticket", 2), ("page", 9), ("page", 5)) == (
        (2, "orange"),
        (5, "red"),
    )
    assert colours(("ticket", 5), ("page", 5)) == ((5, "red"),)
    assert colours(("ticket", 5)) == ((5, "orange"),)
