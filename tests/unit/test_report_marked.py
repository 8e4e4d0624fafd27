"""The sections of a report on requests, steps and queues."""

from typing import Any

import pytest

from jaxmon.facts.process import read
from jaxmon.host.formats import layout
from jaxmon.screens import tables
from jaxmon.screens.text import explanation


REQUESTS = """\
REQUESTS
  ROUTE                  OUTCOME       START         COUNT        P50        P95
  /predict               success       warm          1,234     ~12 ms     ~30 ms
                         success       delayed           9     ~12 ms     ~30 ms
                         success       cold              2     ~1.5 s          -
  /embed                 client error  warm              3     ~12 ms     ~30 ms
  in progress: /slow 2 (the oldest for 1 min 15 s)
"""
STEPS = """\
STEPS
  LOOP             STEPS  A SECOND      MEAN       P95  DATA WAIT      LAST STEP
  train               49      48.3     21 ms    ~30 ms       40 %        6 s ago
  eval                 7      48.3     21 ms    ~30 ms       40 %          ended
  new                  0         -         -         -          -        6 s ago
"""
QUEUES = """\
QUEUES
  QUEUE                           DEPTH NOW   GREATEST                    CHANGE
  decode                                120      1,500              +15 in 5 min
  new                                     3          3                         -
"""


def finished(outcome: str, start: str, count: int, **more: Any) -> dict[str, Any]:
    latency = {"p50_seconds": 0.012, "p95_seconds": 0.03, "p99_seconds": 0.25}
    return {"outcome": outcome, "start": start, "count": count, **latency, **more}


def route(*kinds: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"finished": list(kinds), "in_progress": 0, "oldest_seconds": 0.0, **more}


def loop(**more: Any) -> dict[str, Any]:
    steps = {"steps": 49, "running": 1, "mean_seconds": 0.0207, "p50_seconds": 0.02}
    rest = {"p95_seconds": 0.03, "data_wait_ratio": 0.4, "last_step_seconds": 6.2}
    return {**steps, **rest, **more}


def test_requests_are_by_route_outcome_and_start() -> None:
    """The most frequent come first; those in progress for long are named."""
    overview = {
        "requests": {
            "/embed": route(finished("client_error", "warm", 3)),
            "/predict": route(
                finished("success", "cold", 2, p50_seconds=1.5, p95_seconds=None),
                finished("success", "delayed", 9),
                finished("success", "warm", 1234),
                finished("error", "warm", 0),
            ),
            "/slow": route(in_progress=2, oldest_seconds=75.0),
            "/quick": route(in_progress=5, oldest_seconds=0.2),
        }
    }

    lines = tables.requests(read(overview)).lines(80)
    assert lines == REQUESTS.splitlines()


def test_steps_are_by_loop() -> None:
    """How many a second, how long they take, and when the last one was."""
    overview = {
        "steps": {
            "eval": loop(steps=7, running=0),
            "train": loop(),
            "new": loop(
                steps=0,
                mean_seconds=None,
                p50_seconds=None,
                p95_seconds=None,
                data_wait_ratio=None,
            ),
        }
    }

    lines = tables.steps(read(overview)).lines(80)
    assert lines == STEPS.splitlines()


def test_queues_have_their_depth_and_its_change() -> None:
    """The deepest is first; a change is known if the depth was read before."""
    deep = {"depth": 120, "maximum": 1500, "growth": 15, "growth_seconds": 300.0}
    new = {"depth": 3, "maximum": 3, "growth": None, "growth_seconds": None}
    overview = {"queues": {"new": new, "decode": deep}}

    lines = tables.queues(read(overview)).lines(80)
    assert lines == QUEUES.splitlines()


def test_what_is_not_marked_has_no_section() -> None:
    """A program without marks has none of the three, nor one that only waits."""
    for overview in ({}, {"requests": {"/a": route(in_progress=1)}, "steps": None}):
        found = read(overview)
        assert tables.requests(found).lines(80) == []
        assert tables.steps(found).lines(80) == []
        assert tables.queues(found).lines(80) == []


def test_the_explanation_has_the_sections_in_order() -> None:
    """They come after the findings, and before the functions."""
    overview = {
        "requests": {"/a": route(finished("success", "warm", 1))},
        "steps": {"train": loop()},
        "queues": {"decode": {"depth": 1}},
        "functions": {"f": {"calls": 1, "phases": {"trace": {"seconds": 1.0}}}},
    }
    lines = explanation(read(overview), [], worker="0")
    headings = [line.partition(":")[0] for line in lines if line[:1].isupper()]
    assert headings == ["FINDINGS", "REQUESTS", "STEPS", "QUEUES", "COMPILE TIME"]


@pytest.mark.parametrize("width", [80, 120])
def test_many_and_strange_ones_fit(width: int) -> None:
    """No line is longer than the terminal, and what is left out is counted."""
    name = "\u202ename\x1b[31m" * 20
    odd = {"p50_seconds": -1, "p95_seconds": 1e300}
    kinds = [finished("x" * 50, f"y{n}" * 30, (1 << 62) + n, **odd) for n in range(40)]
    overview = {
        "requests": {name: route(*kinds, in_progress=1 << 62, oldest_seconds=1e300)},
        "steps": {
            f"{name}{n}": loop(mean_seconds=1e-300, last_step_seconds=1e300)
            for n in range(40)
        },
        "queues": {
            f"{name}{n}": {"depth": 1 << 62, "growth": -(1 << 62), "growth_seconds": 9}
            for n in range(40)
        },
    }
    found = read(overview)
    for section in (tables.requests, tables.steps, tables.queues):
        lines = section(found).lines(width)
        assert any(line == "  28 more" for line in lines)
        assert all(layout.columns(line) <= width for line in lines)
        assert all(line.isprintable() for line in lines)
