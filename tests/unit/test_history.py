"""The samples behind the charts: rates, bounds, restarts."""

import json
import sys

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, series
from jaxmon.facts.charts import (
    EVERY,
    MOST_PROCESSES,
    POINTS,
    SERIES,
    ChartSamples,
    ShownCharts,
)
from jaxmon.facts.reading import read
from tests.helpers.sidecars import ROUTE, START, Worker, reading


def charts(history: ChartSamples, worker: str | None = None) -> ShownCharts:
    found = history.charts(worker)
    assert found is not None
    return found


def test_samples_are_what_happened_between_them() -> None:
    """Rates are those of the five seconds, gauges those of the moment."""
    one, two = Worker(0), Worker(1)
    history = ChartSamples()
    for worker in (one, two):
        worker.requests(1000)
        worker.steps(50, 0.1)
        worker.set(catalog.COMPILES, 100, "f", "compiled")
    history.add(reading(one, two, at=START + 600))
    one.requests(20, took=0.04)
    one.requests(5, "error")
    two.requests(10, took=3.0)
    # Of another route, many more and shorter ones: the chart has the slowest route.
    for _ in range(1000):
        two.observe(catalog.REQUEST_SECONDS, 0.01, "other", "success", "warm")
    one.steps(50, 0.1)
    two.steps(10, 0.5)
    one.set(catalog.COMPILES, 104, "f", "compiled")
    one.set(catalog.COMPILES, 1, "g", "cache_hit")
    two.set(catalog.QUEUE_DEPTH, 7, "predict")
    one.set(catalog.DEVICE_MEMORY_BYTES, 3000, "0", "in_use")
    one.set(catalog.DEVICE_MEMORY_BYTES, 9000, "0", "limit")
    two.set(catalog.PROCESS_RESIDENT_MEMORY_BYTES, 500)
    busy = catalog.ACCELERATOR_UTILIZATION_RATIO
    gpus = Family(busy, [(series(busy, "GPU-1"), 0.2), (series(busy, "GPU-2"), 0.6)])
    history.add(reading(one, two, at=START + 605, extra=[gpus]))

    found = charts(history)
    assert (found["every"], found["times"]) == (EVERY, [START + 600, START + 605])
    latest = {name: values[-1] for name, values in found["series"].items()}
    assert latest["requests"] == pytest.approx(207.0)
    assert latest["errors"] == pytest.approx(1.0)
    assert latest["p95"] is not None
    assert 2.5 < latest["p95"] <= 5.0
    assert latest["steps"] == pytest.approx(2.0)
    assert latest["compiles"] == pytest.approx(1.0)
    assert (latest["queue"], latest["busy"]) == (7, 0.4)
    assert (latest["device_memory"], latest["host_memory"]) == (3000, 500)
    # Before the first sample nothing is known, which is not 0.
    assert found["series"]["requests"][0] is None
    own = {name: values[-1] for name, values in charts(history, "1")["series"].items()}
    assert (own["requests"], own["steps"]) == (202.0, 2.0)
    assert own["busy"] is own["device_memory"] is None
    json.dumps(found, allow_nan=False)


def test_a_process_that_does_nothing_has_zeros_and_one_that_is_gone_has_none() -> None:
    """A line ends where a process does, and lies at 0 while it is idle."""
    worker = Worker()
    worker.requests(10)
    history = ChartSamples()
    for second in (0, 5):
        history.add(reading(worker, at=START + 600 + second))
    history.add(reading(at=START + 610))
    assert charts(history, "0")["series"]["requests"] == [None, 0.0, None]


def test_memory_is_bounded_whatever_runs() -> None:
    """Days of processes that come and go take what 64 of them take for 15 minutes."""
    history = ChartSamples()
    metric = catalog.QUEUE_DEPTH
    for sample in range(3 * POINTS):
        depths = [
            (f'{metric.name}{{worker="{sample // 40 * 50 + one}",queue="q"}}', 1.0)
            for one in range(50)
        ]
        history.add(read([Family(metric, depths)], time=START + EVERY * sample))
    assert len(history._rings) <= MOST_PROCESSES + 1
    assert history.charts("0") is None
    kept = sum(
        sys.getsizeof(of) for ring in history._rings.values() for of in ring.values()
    )
    assert kept < (MOST_PROCESSES + 1) * len(SERIES) * (POINTS * 8 + 100)
    times = charts(history)["times"]
    assert len(times) == POINTS
    assert times == sorted(times)
    assert times[-1] == START + EVERY * (3 * POINTS - 1)


def test_a_slot_with_a_new_process_starts_anew() -> None:
    """What a new process counted since its start is not a jump."""
    old, new = Worker(), Worker(started=START + 603)
    old.requests(5000)
    history = ChartSamples()
    history.add(reading(old, at=START + 600))
    new.observe(catalog.REQUEST_SECONDS, 0.1, ROUTE, "success", "warm")
    history.add(reading(new, at=START + 605))
    assert charts(history)["series"]["requests"][-1] == pytest.approx(0.5)
