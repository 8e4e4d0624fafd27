"""How much a dashboard asks for, however large the fleet: series, points, values."""

import re
from functools import reduce
from operator import or_

import pytest

from jaxmon_dashboards.boards.build import all_dashboards
from jaxmon_dashboards.boards.model import (
    BUCKETS,
    EXPORTED,
    RECORDED,
    DependentVariable,
    Panel,
    Target,
    Variable,
)
from jaxmon_dashboards.boards.queries import FUNCTIONS
from tests.helpers.dashboards import DASHBOARDS, EVERY_DASHBOARD, panels
from tests.helpers.processes import each


MOST = 100
BOARDS = all_dashboards()
PANELS = {one.id: one for board in BOARDS for one in board.panels}

# Labels with few values, whatever runs: the catalogue's closed sets, and buckets.
SEVERITIES = ("page", "ticket", "info")
FEW = {
    *("outcome", "phase", "cause", "kind", "state", "activity", "result", "mode"),
    *("direction", "generation", "hook", "label", "signal", "what", "le"),
    *("operation", "reason", "resource", "start"),
    "instance_start",
}
# A line for each service, loop or route is what these tables are for; versions and
# models differ by generations of hardware and releases.
LISTS = {
    *("cluster", "namespace", "job", "loop", "route", "vendor", "model", "driver"),
    *("platform", "device_kind"),
    *("jax", "jaxlib", "python", "platform_version", "release", "version"),
}
# A variable without a pattern for all of them selects so many.
CHOSEN = 'function=~"$function"'
RANKED = re.compile(r"(?:topk|bottomk)( by \(severity\) )?\((\d+), .*")


def limits(target: Target, kind: str) -> dict[str, int]:
    """Return how many series a query keeps at most, by what it chooses them by."""
    text = str(target.expr)
    labels = set(target.expr.shape.labels or ())
    if CHOSEN in text and labels <= FEW | {"function"}:
        return {"" if kind == "table" else text: FUNCTIONS}
    found = RANKED.search(text)
    # At each moment of a graph, others may be largest.
    if not found or (kind not in ("table", "stat") and "@ end()" not in found[0]):
        return {} if labels else {text: 1}
    return {found[0]: int(found[2]) * (len(SEVERITIES) if found[1] else 1)}


def limited(panel: Panel) -> int:
    """Return how many series the queries of *panel* keep at most, 0 for no limit."""
    # Columns that choose the same rows of a table share them.
    found = [limits(target, panel.kind) for target in panel.targets]
    if not all(found):
        return 0
    return sum(reduce(or_, found).values())


@each(
    {f"{one.id} {one.title}": (one,) for one in PANELS.values() if one.kind != "stat"}
)
def test_no_panel_has_more_than_a_hundred_series(panel):
    """A panel keeps the worst so many, or its labels have few values."""
    labels = {name for one in panel.targets for name in one.expr.shape.labels or ()}
    allowed = FEW | LISTS if panel.kind == "table" else FEW
    if not labels <= allowed:
        assert 0 < limited(panel) <= MOST


def test_a_panel_without_a_limit_would_be_noticed():
    """The limit of the fullest panel, and of one that has none, are as they read."""
    assert max(map(limited, PANELS.values())) <= MOST
    by_title = {one.title: one for one in PANELS.values()}
    assert limited(by_title["Firing alerts"]) == 99
    assert limited(by_title["Link errors"]) == 60
    assert limited(by_title["Execution time by function"]) == 100
    assert limited(by_title["Requests by outcome"]) == 0


@EVERY_DASHBOARD
def test_a_graph_has_so_many_points_on_any_screen(dashboard):
    """An hour shows every scrape, six hours every minute; tables ask for the end."""
    most = {"heatmap": BUCKETS, "timeseries": RECORDED, "state-timeline": RECORDED}
    for panel in panels(dashboard):
        asked = [one["expr"] for one in panel["targets"]]
        if panel["type"] in most:
            assert 0 < panel["maxDataPoints"] <= most[panel["type"]]
            # Recorded names, and Prometheus's own, are few series.
            if any("jaxmon_" in re.sub(r"\w+:[\w:]+", "", text) for text in asked):
                assert panel["maxDataPoints"] <= EXPORTED
        else:
            assert all(one["instant"] for one in panel["targets"])


@pytest.mark.parametrize("board", BOARDS, ids=lambda one: one.uid)
def test_everything_is_a_pattern(board):
    """All hosts, processes, functions or devices are a pattern in a query, no list."""
    for one in board.variables:
        if isinstance(one, Variable) and one.label != "job":
            assert one.all_value in (".+", ".*")
        if isinstance(one, DependentVariable):
            assert re.search(r"count\(.+\) < (100|500)\b|^topk\(50,", str(one.expr))


# What someone takes in at night.
OPEN_ON_CALL, ON_ALL_BOARDS, LONGEST, ABOVE = 20, 250, 250, 8


def test_boards_can_be_taken_in():
    """So many panels in all, so many open on On-call, so many variables above each."""
    (oncall,) = (one for one in BOARDS if one.uid == "jaxmon-oncall")
    seen = [panel for row in oncall.rows if not row.collapsed for panel in row.panels]

    assert len(seen) <= OPEN_ON_CALL
    assert sum(len(board.panels) for board in BOARDS) <= ON_ALL_BOARDS
    for board in DASHBOARDS.values():
        variables = board["templating"]["list"]
        assert sum(not one.get("hide") for one in variables) <= ABOVE


@EVERY_DASHBOARD
def test_queries_can_be_read(dashboard):
    """Each is short: what takes more is recorded, or not asked."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            assert len(target["expr"]) <= LONGEST, (panel["title"], target["expr"])


def test_zero_is_shown_only_of_data():
    """No query makes a number up where there is nothing to count."""
    for panel in PANELS.values():
        for target in panel.targets:
            assert "vector(" not in str(target.expr)
