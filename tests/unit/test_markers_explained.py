"""What the debug overview says of requests, steps and queues."""

import asyncio
import queue

import numpy as np
import pytest

import jaxmon
from jaxmon import catalog
from jaxmon.agent.own_metrics import Markers
from jaxmon.asgi import Middleware
from jaxmon.exposition.families import Histogram
from jaxmon.facts.record import encoded
from jaxmon.indicators import queues
from jaxmon.indicators.queues import DepthHistory
from jaxmon.indicators.work import mark_cold


@pytest.fixture(autouse=True)
def no_queue_is_left(monkeypatch):
    """Let each test begin without queues."""
    monkeypatch.setattr(queues, "_sources", {})


def section(recorded, name):
    """Return the section *name* of the overview."""
    found = Markers(recorded).explain().sections[name]()
    return {one["name"]: one for one in encoded(found)}


def test_requests_are_explained_by_route_outcome_and_start(recorded):
    """Each kind has its number and its latency; those in progress have their age."""
    for route, cold in (("predict", True), ("predict", False), ("embed", False)):
        with jaxmon.request(route):
            if cold:
                mark_cold()
    with jaxmon.request("predict"):
        found = section(recorded, "requests")

    assert found.keys() == {"predict", "embed"}
    kinds = [(one["outcome"], one["start"]) for one in found["predict"]["finished"]]
    assert kinds == [("success", "cold"), ("success", "warm")]
    assert [one["count"] for one in found["predict"]["finished"]] == [1, 1]
    assert found["predict"]["in_progress"] == 1
    assert found["predict"]["oldest_seconds"] > 0
    assert found["embed"]["oldest_seconds"] == 0
    for one in found["predict"]["finished"]:
        assert one["mean_seconds"] > 0
        assert 0 < one["p50_seconds"] <= one["p95_seconds"] <= one["p99_seconds"]


def test_responses_with_500_are_errors(recorded):
    """160 of them are in the counts, the latency and the section of requests."""

    async def app(scope, receive, send):
        del receive
        status = 500 if scope["path"] == "/bad" else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def nothing():
        return {"type": "http.request"}

    async def said(message):
        del message

    async def serve():
        for path in ["/bad"] * 160 + ["/good"] * 3:
            scope = {"type": "http", "path": path, "method": "GET"}
            await Middleware(app)(scope, nothing, said)

    asyncio.run(serve())

    (found,) = section(recorded, "requests").values()
    counts = {one["outcome"]: one["count"] for one in found["finished"]}
    assert counts == {"success": 3, "error": 160}
    assert recorded.value(catalog.REQUESTS.name, outcome="error") == 160
    count = f"{catalog.REQUEST_SECONDS.name}_count"
    assert recorded.value(count, outcome="error") == 160


def test_the_fill_of_batches_is_with_their_route(recorded):
    """Also if the route has no requests of its own."""
    with jaxmon.request("predict"):
        jaxmon.batch("predict", size=4, capacity=8)
        jaxmon.batch("decode", size=8, capacity=8)

    found = section(recorded, "requests")

    assert found["predict"]["batches"] == {"count": 1, "fill_ratio": 0.5}
    assert found["decode"].keys() == {"name", "batches"}
    assert found["decode"]["batches"] == {"count": 1, "fill_ratio": 1.0}


def test_steps_are_explained_by_loop(recorded):
    """Steps, their time, the fraction spent waiting for data, and whether it runs."""
    loop = iter(jaxmon.steps(range(4), loop="train"))
    for _ in range(3):
        next(loop)
    figures = recorded.loops.of("train")
    figures.counts.waited = figures.seconds.sum

    found = section(recorded, "steps")["train"]
    loop.close()

    assert (found["steps"], found["running"]) == (2, 1)
    assert found["mean_seconds"] == pytest.approx(figures.seconds.sum / 2)
    assert 0 < found["p50_seconds"] <= found["p95_seconds"] <= found["p99_seconds"]
    assert found["data_wait_ratio"] == 1
    assert found["last_step_seconds"] >= 0
    assert section(recorded, "steps")["train"]["running"] == 0


def test_queues_are_explained_by_name(recorded):
    """The depth of the moment and the greatest that was read."""
    waiting: queue.Queue[int] = queue.Queue()
    jaxmon.queue("decode", waiting.qsize)
    for number in range(3):
        waiting.put(number)
    section(recorded, "queues")
    waiting.get()
    jaxmon.queue("prefill").set(7)
    jaxmon.queue("prefill").set(2)

    found = section(recorded, "queues")

    assert (found["decode"]["depth"], found["decode"]["maximum"]) == (2, 3)
    assert (found["prefill"]["depth"], found["prefill"]["maximum"]) == (2, 7)
    assert found["decode"]["growth"] is None


def test_a_queue_that_failed_once_keeps_its_history(recorded, monkeypatch):
    """A queue that is gone does not."""
    monkeypatch.setattr(recorded.failures, "strict", False)
    depths = iter([5, -1, 1])
    decode = jaxmon.queue("decode", lambda: next(depths))
    said = [section(recorded, "queues") for _ in range(3)]
    decode.close()

    assert [one.get("decode", {}).get("maximum") for one in said] == [5, None, 5]
    assert section(recorded, "queues") == {}


def test_growth_is_over_the_last_minutes():
    """It is the difference to the oldest depth kept, which is ten minutes old."""
    times = iter(range(0, 10_000, 10))
    history = DepthHistory(clock=lambda: float(next(times)))
    for depth in range(100):
        history.note(depth)
    found = history.explain()

    assert found.growth_seconds == 600
    assert found.growth == found.depth - found.lows[0] == 59
    assert found.maximum == 99


def test_depths_set_often_are_kept_seldom():
    """A program that sets a depth a thousand times a second costs no memory."""
    time = [0.0]
    history = DepthHistory(clock=lambda: time[0])
    for number in range(10_000):
        time[0] = number / 1000
        history.note(number)

    assert history.explain().growth == 9_999
    assert len(history._kept) == 2


@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.95, 0.99])
def test_quantiles_lie_in_the_bucket_of_the_observations_own(fraction):
    """As Prometheus estimates them."""
    histogram = Histogram(catalog.REQUEST_SECONDS, "predict", "success", "warm")
    values = np.random.default_rng(0).exponential(0.1, 1000)
    for one in values:
        histogram.observe(float(one))
    bounds = [0.0, *catalog.REQUEST_SECONDS.buckets]
    true = float(np.quantile(values, fraction))
    index = next(i for i, bound in enumerate(bounds) if true <= bound)

    found = histogram.quantile(fraction)

    assert found is not None
    assert bounds[index - 1] <= found <= bounds[index]


def test_quantiles_of_extremes():
    """None without observations; the highest bound for what is beyond it."""
    histogram = Histogram(catalog.REQUEST_SECONDS, "predict", "success", "warm")
    assert histogram.quantile(0.5) is None
    assert histogram.mean is None
    histogram.observe(1000)
    assert histogram.quantile(0.5) == catalog.REQUEST_SECONDS.buckets[-1]
    assert histogram.mean == 1000
