"""From panels to traces: exemplars and links."""

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from jaxmon_dashboards.boards import all_dashboards
from tests.helpers.dashboards import DASHBOARDS, resources


TRACED = "jaxmon_request_seconds|jaxmon_compile_seconds|jaxmon_step_seconds"
ATTRIBUTES = {"route", "function", "loop"}


def panels(board: Any) -> list[Any]:
    """Return the panels of *board*."""
    found = [*board["panels"]]
    found += [inner for one in found for inner in one.get("panels", [])]
    return [one for one in found if one["type"] != "row"]


PANELS = [(name, one) for name, board in DASHBOARDS.items() for one in panels(board)]


def explore_links(thing: object) -> list[str]:
    """Return the addresses of Explore in *thing*."""
    return re.findall(r'"(/explore[^"]*)"', json.dumps(thing))


def test_histograms_with_trace_ids_show_exemplars() -> None:
    """Those that are queried over time as they are exported; no others."""
    shown, asked = 0, []
    for _, panel in PANELS:
        for target in panel["targets"]:
            traced = re.search(rf"\b(?<!:)({TRACED})_bucket\b(?!:)", target["expr"])
            wanted = traced is not None and not target["instant"]
            shown += wanted
            if bool(target.get("exemplar")) != wanted:
                asked.append((panel["title"], target["expr"]))
    assert asked == []
    assert shown > 2


@pytest.mark.parametrize("model", ["classic", "v2"])
def test_links_lead_to_traces_of_the_service(model: str) -> None:
    """Each is a query of Explore, by the variable and the attributes of our spans."""
    boards = DASHBOARDS if model == "classic" else resources()
    found = {name: explore_links(board) for name, board in boards.items()}
    assert {name for name, links in found.items() if links} == {
        *("debug.json", "executive.json", "oncall.json"),
        *("serving.json", "training.json"),
    }
    for link in (one for links in found.values() for one in links):
        # As Grafana fills in its variables.
        filled = link.replace("${traces}", "uid").replace("${job:pipe}", "a|b")
        filled = re.sub(r"\$\{__(?:field|value)[^}]*\}", "%2Fpredict%2F%7Bn%7D", filled)
        filled = re.sub(r"\$\{__(?:from|to)\}", "1", filled)
        assert "$" not in filled
        (panes,) = parse_qs(urlsplit(filled).query)["panes"]
        pane = json.loads(panes)["traces"]
        assert pane["datasource"] == "uid"
        (query,) = pane["queries"]
        assert query["datasource"] == {"type": "tempo", "uid": "uid"}
        match = re.fullmatch(
            r'\{ resource\.service\.name =~ "a\|b" && \((.+)\) \}', query["query"]
        )
        assert match
        for part in match[1].split(" || "):
            one = re.fullmatch(
                r'span\.jaxmon\.(\w+) (?:!= nil|= "/predict/\{n\}")', part
            )
            assert one
            assert one[1] in ATTRIBUTES


def test_series_lead_to_their_own_traces() -> None:
    """Only if each series of the panel has the label."""
    models = {one.id: one for board in all_dashboards() for one in board.panels}
    for _, panel in PANELS:
        links = panel["fieldConfig"]["defaults"].get("links") or []
        for link in links:
            (label,) = re.findall(r"__field\.labels\.(\w+)", link["url"])
            for target in models[panel["id"]].targets:
                assert label in (target.expr.shape.labels or ())


def test_a_board_without_traces_asks_for_none() -> None:
    """The variable is there if a link needs it; no query depends on it."""
    for name, board in DASHBOARDS.items():
        names = [one["name"] for one in board["templating"]["list"]]
        assert ("traces" in names) == bool(explore_links(board)), name
        for panel in panels(board):
            assert "${traces}" not in json.dumps(panel["targets"])
