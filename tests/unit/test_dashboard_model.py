"""What every panel has, on the boards of each site."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from jaxmon.catalog import BY_NAME, COMPILE_SECONDS, JIT_CALLS, LIVE_ARRAYS
from jaxmon.promql import counter, eq, histogram
from jaxmon_alerts import rules as alerts
from jaxmon_dashboards.boards import DashboardOptions, all_dashboards
from jaxmon_dashboards.boards.model import (
    UNITS,
    Panel,
    PanelLine,
    Target,
    Variable,
    row,
)
from tests.helpers.processes import ROOT


CALLS = counter(JIT_CALLS).rate().sum("function")
PANEL = Panel(
    id=1,
    title="Calls",
    kind="timeseries",
    text="How many.",
    targets=(Target(CALLS, "{{function}}"),),
    width=24,
)
SITES = sorted((ROOT / "tests" / "sites").glob("*.yaml"))


@pytest.mark.parametrize("site", [None, *SITES])
def test_a_panel_can_be_read_and_linked(site):
    """Links to a panel hold its id, people its title; what it shows is of one kind."""
    for board in all_dashboards(DashboardOptions(slo=site)):
        assert re.fullmatch(r"[a-z][a-z0-9-]{0,39}", board.uid)
        ids = [row.id for row in board.rows] + [panel.id for panel in board.panels]
        titles = [panel.title for panel in board.panels]
        assert len(set(ids)) == len(ids)
        assert len(set(titles)) == len(titles)
        for panel in board.panels:
            shapes = [target.expr.shape for target in panel.targets]
            assert all(map(can_be_read, panel.targets)), panel.title
            assert thresholds_rise(panel), panel.title
            if panel.kind == "table":
                assert has_columns(panel), panel.title
            else:
                assert len({shape.unit for shape in shapes}) == 1, panel.title
            if panel.kind == "heatmap":
                assert BY_NAME[panel.metrics[0]].kind == "histogram", panel.title


def can_be_read(target):
    """Return whether a query is of metrics, and its legend of labels that it has."""
    shape = target.expr.shape
    assert shape.unit in UNITS
    assert shape.metrics
    return {*re.findall(r"\{\{\s*(\w+)\s*\}\}", target.legend)} <= shape.labels


def thresholds_rise(panel):
    """Return whether steps are in order: Grafana draws them as they are given."""
    found = [panel.thresholds, *(target.thresholds for target in panel.targets)]
    steps = [[value for value, _ in one.steps] for one in found if one]
    return all(values == sorted(set(values)) for values in steps)


def has_columns(panel):
    """
    Return whether a table has a column of each title, and rows that its labels alone
    tell apart: Grafana would not merge those of series with names.
    """
    titles = [target.legend for target in panel.targets]
    named = re.compile(r"(?:\w+\(\d+, )?[\w:]+(?:\{[^{}]*\})?\)?")
    for target in panel.targets:
        assert target.expr.shape.labels == {*panel.labels}
        assert len(titles) == 1 or not named.fullmatch(str(target.expr))
    assert panel.sort in ("", *titles, *map(str.title, panel.labels))
    return all(titles) and len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("given", "widths"),
    [((0,), (24,)), ((0, 0, 0), (8, 8, 8)), ((16, 0), (16, 8)), ((8, 0, 0), (8, 8, 8))],
)
def test_panels_of_a_line_share_its_width(given, widths):
    """Panels without a width of their own take even shares of what is left."""
    panels = [replace(PANEL, id=n, width=width) for n, width in enumerate(given)]
    assert PanelLine(tuple(panels)).widths == widths


@pytest.mark.parametrize("lines", [(1,), (2, 1)])
def test_row_has_as_many_panels_as_its_lines(lines):
    """A panel without a place, and a place without a panel, are refused."""

    @row(9, "A", lines=lines)
    def made():
        yield from (PANEL, replace(PANEL, id=2))

    with pytest.raises(ValueError, match=f"2 panels.*{re.escape(str(lines))}"):
        made()


def test_description_ends_with_the_metrics():
    """The names come from the queries, sorted."""
    seconds = histogram(COMPILE_SECONDS).sum.rate().sum("function") / CALLS
    panel = replace(
        PANEL, targets=(Target(seconds.of_unit("seconds"), "{{function}}"),)
    )
    expected = f"How many.\n\nMetrics: `{COMPILE_SECONDS.name}`, `{JIT_CALLS.name}`"
    assert panel.description == expected


def test_variable_needs_a_label_that_exists():
    """A variable asks a metric for a label that its series have."""
    variable = Variable(
        "device", "Device", LIVE_ARRAYS, "Which.", matchers=(eq("job", "$job"),)
    )
    assert variable.query == f'label_values({LIVE_ARRAYS.name}{{job="$job"}}, device)'
    with pytest.raises(ValueError, match="has no label"):
        replace(variable, label="function")


def test_runbooks_that_panels_link_belong_to_alerts():
    """A panel names no alert that does not exist, and every alert has a panel."""
    linked = {
        name
        for one in all_dashboards()
        for panel in one.panels
        for name in panel.alerts
    }
    existing = {one.name for one in alerts.all_alerts()}
    assert linked - existing == set()
    assert {name for name in existing - linked if "Deploy" not in name} == set()


def test_each_row_is_documented():
    """docs/dashboards.md says which question each row of each board answers."""
    text = (ROOT / "docs" / "dashboards.md").read_text()
    documented, titles = {}, {}
    for board in all_dashboards():
        title = board.title.removeprefix("jaxmon / ")
        section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        documented[title] = re.findall(
            r"^\| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE
        )
        titles[title] = ["Row", "---", *(row.title for row in board.rows)]

    assert documented == titles


def test_panels_in_the_documentation_exist():
    """What docs/dashboards.md sets in italics is the title of a panel or annotation."""
    boards = all_dashboards()
    known = {panel.title for one in boards for panel in one.panels}
    known |= {event.name for one in boards for event in one.annotations}
    text = (ROOT / "docs" / "dashboards.md").read_text()
    named = {*re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", text)}

    assert len(named) > 30
    assert named <= known


def test_models_need_no_sdk():
    """What the dashboards show can be read without grafana-foundation-sdk."""
    source = (
        "import sys; sys.modules['grafana_foundation_sdk'] = None\n"
        "from jaxmon_dashboards.boards import all_dashboards\n"
        "print(sum(len(board.panels) for board in all_dashboards()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) >= 30
