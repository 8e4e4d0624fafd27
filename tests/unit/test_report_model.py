"""Pages read, of an agent or of something that is none."""

import random
from typing import Any

import pytest

from jaxmon.facts.process import Snapshot, read
from jaxmon.screens import text
from jaxmon.symptoms.findings import find
from tests.unit.test_report_text import EVENTS, OVERVIEW


ODD: list[Any] = [
    None,
    True,
    -1,
    10**400,
    float("nan"),
    float("inf"),
    1e308,
    "",
    "text\x1b[0m",
    [],
    [None],
    {},
    {"": None},
    [[[]]],
]


def test_what_an_agent_tells_is_typed():
    """Functions by time lost, recompiles with their words, lines with their places."""
    found = read(OVERVIEW, EVENTS)

    assert next(one.name for one in found.functions) == "train.step"
    assert found.functions[0].compile_time == 74.0
    assert found.functions[0].program.model_flops == 1.23e12
    assert found.functions[0].flops.of_peak == 0.1011
    assert found.compile_time == pytest.approx(75.85)
    assert [one.cause for one in found.recompiles] == ["dtype", "shape", "shape"]
    assert found.recompiles[0].texts == ("argument x: float32[64] → bfloat16[64]",)
    assert found.allocations.lines[0].place == "/srv/models/train.py:57"
    assert found.transfers.lines[0].seconds == 410.0
    assert found.memory.devices[0].device == "0"
    assert found.cache.requests.miss == 51
    assert found.hooks == {"calls": True, "errors": False}


@pytest.mark.parametrize("page", [*ODD, 3.5, b"bytes"])
def test_no_page_at_all_tells_nothing(page):
    """What is no page is read as an empty one."""
    assert read(page, page) == Snapshot()


@pytest.mark.parametrize("seed", range(8))
def test_anything_in_place_of_anything_is_survived(seed):
    """Whatever stands where, each line is made and is harmless."""
    source = random.Random(seed)  # noqa: S311 - shuffles, keeps no secret

    def spoil(value: Any, share: float) -> Any:
        if source.random() < share:
            return source.choice(ODD)
        if isinstance(value, dict):
            return {key: spoil(one, share) for key, one in value.items()}
        if isinstance(value, list):
            return [spoil(one, share) for one in value]
        return value

    for _ in range(60):
        share = source.choice([0.02, 0.1, 0.3])
        snapshot = read(spoil(OVERVIEW, share), spoil(EVENTS, share))
        findings = find(snapshot)
        lines = text.explanation(snapshot, findings, worker="0")
        lines += text.summary(snapshot, findings)
        assert all(line.isprintable() or not line for line in lines)
