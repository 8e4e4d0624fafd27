"""Batches that a program counts."""

import threading
from typing import Any

import pytest

import jaxmon
from jaxmon.catalog import BATCH_FILL_RATIO
from tests.helpers.indicators import recording


COUNT, SUM, BUCKET = (
    f"{BATCH_FILL_RATIO.name}_{suffix}" for suffix in ("count", "sum", "bucket")
)


def test_a_batch_counts_by_its_fill(recorded):
    """Sum over count is the mean fill; an empty batch was computed for nothing."""
    for size in (0, 2, 8):
        jaxmon.batch("predict", size=size, capacity=8)
    jaxmon.batch("embed", size=1, capacity=1)

    assert recorded.value(COUNT, route="predict") == 3
    assert recorded.value(SUM, route="predict") == 1.25
    assert recorded.value(BUCKET, route="predict", le="0.1") == 1
    assert recorded.value(BUCKET, route="predict", le="0.25") == 2
    assert recorded.value(BUCKET, route="predict", le="1.0") == 3
    assert recorded.value(COUNT, route="embed") == 1


@pytest.mark.contained
def test_impossible_batches_are_not_counted(recorded):
    """However often that happens, the others are."""
    impossible: tuple[tuple[Any, Any], ...] = (
        (9, 8),
        (-1, 8),
        (0, 0),
        ("many", 8),
        (None, None),
    )
    for size, capacity in impossible * 3:
        jaxmon.batch("predict", size=size, capacity=capacity)
    jaxmon.batch("predict", size=8, capacity=8)

    assert recorded.value(COUNT) == recorded.value(SUM) == 1
    assert recorded.failures.failures() == {"batches": 15}


def test_routes_are_those_of_requests():
    """A route has its place once, whether requests or batches came first."""
    with recording(limit=2) as recorded:
        jaxmon.batch("first", size=1, capacity=2)
        for route in ("second", "first", "third"):
            with jaxmon.request(route):
                pass
            jaxmon.batch(route, size=1, capacity=2)

        assert recorded.value(COUNT, route="first") == 2
        assert recorded.value(COUNT, route="second") == 1
        assert recorded.value(COUNT, route="other") == 1
        assert recorded.value(COUNT, route="third") == 0


def test_batches_are_counted_on_all_threads(recorded):
    """No batch is lost."""

    def run():
        for _ in range(2000):
            jaxmon.batch("predict", size=1, capacity=2)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert recorded.value(COUNT) == 16_000
    assert recorded.value(SUM) == 8_000


def test_nobody_need_record():
    """Without an agent nothing happens."""
    jaxmon.batch("predict", size=1, capacity=2)
    with recording() as recorded:
        assert recorded.value(COUNT) == 0
