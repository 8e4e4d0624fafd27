"""A useless panel is rejected on construction."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from jaxmon.catalog import COMPILE_SECONDS, JIT_CALLS, LIVE_ARRAY_BYTES, LIVE_ARRAYS
from jaxmon.promql import counter, eq, gauge, histogram, recorded
from jaxmon_alerts import rules as alerts
from jaxmon_dashboards.boards import all_dashboards
from jaxmon_dashboards.boards.dashboard import Dashboard
from jaxmon_dashboards.boards.model import (
    Panel,
    PanelLine,
    Row,
    Target,
    Thresholds,
    Variable,
    row,
    table,
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
TABLE = replace(
    PANEL, kind="table", labels=("function",), targets=(Target(CALLS, "Calls"),)
)


@pytest.mark.parametrize(
    ("panel", "changes", "message"),
    [
        (PANEL, {"title": ""}, "needs a title"),
        (PANEL, {"text": "How many"}, "ending with a full stop"),
        (PANEL, {"targets": ()}, "and a query"),
        (PANEL, {"width": 25}, "is 25 wide; give 1 to 24"),
        (
            PANEL,
            {"targets": (Target(CALLS, "{{device}}"),)},
            r"no label \['device'\]; it has \['function'\]",
        ),
        (
            PANEL,
            {"targets": (*PANEL.targets, Target(gauge(LIVE_ARRAY_BYTES)))},
            "several units: .'per second', 'bytes'",
        ),
        (PANEL, {"targets": (Target(recorded("a:b:c")),)}, "unknown labels or unit"),
        (PANEL, {"targets": (Target(CALLS * CALLS),)}, "unknown labels or unit"),
        (
            PANEL,
            {"targets": (Target(CALLS.of_unit("furlongs")),)},
            "has the unit 'furlongs'; allowed are ",
        ),
        (PANEL, {"kind": "heatmap"}, "must be a heatmap of one histogram, not of "),
        (TABLE, {"labels": ("job",)}, r"labels \['function'\], not \['job'\]"),
        (TABLE, {"targets": (Target(CALLS),)}, "give each a different title"),
        (TABLE, {"targets": TABLE.targets * 2}, "give each a different title"),
        (TABLE, {"sort": "Errors"}, "sorts by 'Errors'; its columns are .'Calls'"),
    ],
)
def test_useless_panel_is_refused(panel, changes, message):
    """The message names the panel, and says what was found and what there is."""
    with pytest.raises(ValueError, match=message) as caught:
        replace(panel, **changes)
    assert "panel 1" in str(caught.value)


@pytest.mark.parametrize(
    "panels",
    [
        (replace(PANEL, width=12),),
        (replace(PANEL, width=10), replace(PANEL, id=2, width=16)),
        (replace(PANEL, width=1), replace(PANEL, width=0), replace(PANEL, width=0)),
        (replace(PANEL, width=12), replace(PANEL, width=12), replace(PANEL, width=0)),
        (replace(PANEL, width=16), replace(PANEL, width=16), replace(PANEL, width=0)),
        (),
    ],
    ids=[
        "a gap",
        "over the edge",
        "a rest that cannot be shared",
        "no rest to share",
        "less than no rest",
        "no panel",
    ],
)
def test_line_that_is_not_full_is_refused(panels):
    """Each line of a row is 24 wide."""
    with pytest.raises(ValueError, match="do not add up to 24"):
        PanelLine(panels)


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


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (replace(PANEL, title="Other"), r"duplicate id \[1\]"),
        (replace(PANEL, id=2), r"duplicate title \['Calls'\]"),
    ],
)
def test_ids_and_titles_are_given_once(second, message):
    """Links to a panel hold its id, people its title."""
    with pytest.raises(ValueError, match=message):
        dashboard(
            rows=(
                Row(9, "A", (PanelLine((PANEL,)),)),
                Row(8, "B", (PanelLine((second,)),)),
            )
        )


def test_uid_is_part_of_an_address():
    """A uid that Grafana would refuse is refused here."""
    with pytest.raises(ValueError, match="uid 'On call' is invalid"):
        dashboard(uid="On call")


def dashboard(**changes):
    values = {"uid": "x", "title": "X", "description": "X.", "since": "now-1h"}
    nothing = {"variables": (), "annotations": (), "rows": ()}
    return Dashboard(**{**values, **nothing, **changes})


def test_thresholds_rise():
    """Grafana draws steps in the order given, so they must be in order."""
    with pytest.raises(ValueError, match="do not increase"):
        Thresholds("green", ((2, "red"), (1, "orange")))


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


def test_rows_of_a_table_are_told_apart_by_its_labels_alone() -> None:
    """Not by the names of several series, with which Grafana would not merge them."""
    named = recorded("job:a:b", labels=("job",))
    worst = recorded("job:a:c", eq("job", "x"), labels=("job",)).topk(5)
    for found in (named, worst):
        with pytest.raises(ValueError, match="has a name"):
            table(1, "T")(Target(found, "A"), Target(named.max("job"), "B"), text="T.")
    table(1, "T")(Target(named, "A"), text="T.")
    table(1, "T")(Target(worst.max("job"), "A"), Target(named * 2, "B"), text="T.")
