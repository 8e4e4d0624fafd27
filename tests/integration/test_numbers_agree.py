"""Times on the board, on the screens and by another clock: one number."""

import random
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from urllib.parse import urlsplit

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import Family, Histogram, gauge, histograms, quantile
from jaxmon.host.http.server import Server, metrics_handler
from jaxmon.limits import Limits
from tests.helpers.processes import until
from tests.helpers.sidecars import exporters


PARTS = {"p50": 0.5, "p95": 0.95}
_random = random.Random(7)  # noqa: S311 - no secret
# A quarter of them waited for a compile, and took longer.
WARM = [_random.lognormvariate(-1.9, 0.3) for _ in range(900)]
COLD = [_random.lognormvariate(-0.4, 0.3) for _ in range(300)]
STEPS = [_random.gauss(0.131, 0.012) for _ in range(1200)]


def exact(values: Sequence[float], part: float) -> float:
    """Return the quantile of all *values*, which no histogram has seen."""
    return sorted(values)[int(part * len(values))]


def test_board_and_screens_agree_with_each_other_and_the_truth(run_dir, prometheus):
    """
    What Prometheus estimates is what explanations and the page show. Medians are within
    5 % of those of the times themselves; the 95th percentile is within 10 % for steps,
    15 % for requests, whose buckets are wider. Means are exact.
    """
    metric = catalog.REQUEST_SECONDS
    warm, cold, failed = (
        Histogram(metric, "predict", *kind)
        for kind in (("success", "warm"), ("success", "cold"), ("error", "warm"))
    )
    loop = Histogram(catalog.STEP_SECONDS, "train")
    for histogram, times in ((warm, WARM), (cold, COLD), (loop, STEPS)):
        for one in times:
            histogram.observe(one)
    failed.observe(20.0)
    started = gauge(catalog.PROCESS_START_TIME_SECONDS, time.time())

    def collect() -> list[Family]:
        requests = histograms(metric, [warm, cold, failed])
        return [started, requests, histograms(catalog.STEP_SECONDS, [loop])]

    took = Histogram(catalog.SCRAPE_SECONDS)
    server = Server({"/metrics": metrics_handler(collect, took)})
    server.listen_unix(run_dir / "agent-0.sock", 0o600)
    server.start()
    try:
        with exporters(run_dir) as start:
            exporter = start("--agents-interval", "0.2")
            exporter.until_ready()
            summary = exporter.summary()
            stored = prometheus({"host": [urlsplit(exporter.url).netloc]})
            until(lambda: stored.query(catalog.STEP_SECONDS.name + "_sum"), "a scrape")
            (route,), (steps,) = summary["requests"], summary["loops"]
            success = f'{metric.name}_bucket{{outcome="success"'
            every, off = route["latency"], (0.05, 0.15)
            for number, (name, part) in enumerate(PARTS.items()):
                for shown, times, buckets, least in (
                    (every, WARM + COLD, f"{success}}}", off),
                    (route["warm"], WARM, f'{success},start="warm"}}', off),
                    (steps, STEPS, f"{catalog.STEP_SECONDS.name}_bucket", (0.05, 0.1)),
                ):
                    query = f"histogram_quantile({part}, sum by (le) ({buckets}))"
                    ((_, board),) = stored.query(query)
                    assert shown[name] == pytest.approx(board, rel=1e-9), query
                    true = exact(times, part)
                    assert board == pytest.approx(true, rel=least[number]), query
                assert warm.quantile(part) == pytest.approx(route["warm"][name])
                assert loop.quantile(part) == pytest.approx(steps[name])
            assert steps["mean"] == pytest.approx(fmean(STEPS))
    finally:
        server.stop()


def test_an_edge_of_a_bucket_never_makes_requests_slow() -> None:
    """Requests that cross a bucket's bound by a little are not called slower."""
    limits, bounds = Limits(), catalog.REQUEST_SECONDS.buckets
    for part in PARTS.values():
        for number, _ in enumerate(pairwise(bounds)):
            counts = [
                [float(index >= full) for index in range(len(bounds) + 1)]
                for full in (number, number + 1)
            ]
            before, after = (quantile(bounds, one, part) for one in counts)
            assert before is not None
            assert after is not None
            assert after < max(
                limits.slow_requests * before, before + limits.slow_requests_by
            )


def test_what_a_histogram_does_not_show() -> None:
    """Nothing without observations; at most the highest bound; no error otherwise."""
    for bounds, running, expected in (
        ((), (), None),
        ((1.0, 2.0), (0, 0, 0), None),
        ((1.0, 2.0), (0, 8, 10), 1.625),
        ((1.0, 2.0), (0, 0, 10), 2.0),
        # What no histogram should say.
        ((1.0, 1.0, 2.0), (0, 5, 10, 10), 1.0),
        ((1.0, 2.0), (5, 3, 3), 0.3),
    ):
        assert quantile(bounds, running, 0.5) == (expected and pytest.approx(expected))
