"""What Grafana would ask for a dashboard, without a Grafana."""

import json

import pytest

from tools.fleet import grafana
from tools.fleet.grafana import Board, Query


def variable(name, definition, **more):
    return {"type": "query", "name": name, "definition": definition, **more}


def panel(number, expr, **more):
    return {
        "id": number,
        "type": "timeseries",
        "title": f"Panel {number}",
        "targets": [{"expr": expr}],
        **more,
    }


DOCUMENT = {
    "uid": "jaxmon-debug",
    "title": "Board",
    "time": {"from": "now-1h", "to": "now"},
    "templating": {
        "list": [
            {"type": "datasource", "name": "datasource"},
            variable("job", "label_values(up, job)"),
            variable("worker", 'label_values(up{job=~"$job"}, worker)', allValue=".*"),
            variable(
                "gpu", 'query_result(up{job=~"$job"})', regex='/uuid="(GPU[^"]+)"/'
            ),
        ]
    },
    "annotations": {"list": [{"name": "Starts", "expr": "up", "step": "1m"}]},
    "panels": [
        panel(1, "rate(x[$__rate_interval])"),
        {
            "type": "row",
            "collapsed": True,
            "panels": [panel(2, 'y{job=~"$job"}[$__range]', maxDataPoints=10)],
        },
        {"type": "row", "panels": []},
    ],
}


def found(query):
    """Answer as a Prometheus with two jobs and one GPU."""
    if query.label == "job":
        return [{"job": "a.b"}, {"job": "c"}]
    return [{"uuid": "GPU-1"}, {"uuid": "TPU-0"}] if not query.label else []


@pytest.mark.parametrize(
    ("seconds", "step"),
    [(0.4, 1), (2.5, 2), (15, 15), (24, 20), (60, 60), (360, 300), (1e6, 86400)],
)
def test_steps_are_rounded_as_in_grafana(seconds, step):
    """A step is one that people can read."""
    assert grafana.rounded(seconds) == step


def test_all_becomes_every_value_or_the_pattern():
    """A variable without a pattern for All expands to what it found, escaped."""
    board = Board(DOCUMENT)
    items = list(board.variables(found))
    assert [one.title for one in items] == ["job", "worker", "gpu"]
    assert board.values == {"job": r"(a\\.b|c)", "worker": ".*", "gpu": "GPU-1"}
    assert board.sizes == {"job": 2, "worker": 0, "gpu": 1}
    assert items[2].queries[0].expression == r'up{job=~"(a\\.b|c)"}'


def test_steps_and_windows_follow_the_scrape_interval():
    """A rate spans four scrapes; what is chosen replaces All; rows may be closed."""
    board = Board(DOCUMENT, chosen={"job": "a"})
    list(board.variables(found))
    annotation, first, second = board.items()
    assert annotation.queries == (Query("up", 60),)
    assert first.queries == (Query("rate(x[120s])", 30),)
    assert second.queries == (Query('y{job=~"a"}[3600s]', 300),)
    assert (first.hidden, second.hidden) == (False, True)


def test_debug_is_looked_at_twice(tmp_path):
    """Once with everything chosen, and once for one service."""
    (tmp_path / "debug.json").write_text(json.dumps(DOCUMENT))
    assert [dict(one.chosen) for one in grafana.boards(tmp_path, {"job": "a"})] == [
        {},
        {"job": "a"},
    ]
