"""
What a page of 5,000 samples costs: jaxmon and prometheus_client side by side.

Both get the same samples, ready in memory, and take turns.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.rows import Row, seconds
from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.encode import OPENMETRICS, encode
from jaxmon.exposition.families import Family, Histogram, series
from jaxmon.exposition.parse import labels, parse


SAMPLES = 5000
ROUNDS = 41
GOAL_TIMES = 5.0


def families(samples: int = SAMPLES) -> list[Family]:
    """
    Return what an agent with many functions shows: *samples* samples, or the few
    more that make its last histogram whole.
    """
    random.seed(1)
    found: dict[str, Family] = {}

    def add(metric: Metric, lines: Iterable[tuple[str, float]]) -> int:
        family = found.setdefault(metric.name, Family(metric, []))
        before = len(family.samples)
        family.samples.extend(lines)
        return len(family.samples) - before

    count, number = 0, 0
    while count < samples:
        function = f"model.layers.block_{number}.Transformer.__call__"
        for metric in (
            catalog.JIT_CALLS,
            catalog.JIT_CACHE_HITS,
            catalog.JIT_CACHE_MISSES,
        ):
            line = (series(metric, function), random.randrange(10**7))  # noqa: S311
            count += add(metric, [line])
        count += add(
            catalog.RECOMPILES,
            [
                (series(catalog.RECOMPILES, function, cause), random.randrange(9))  # noqa: S311
                for cause in ("shape", "dtype")
            ],
        )
        device = (series(catalog.LIVE_ARRAY_BYTES, number, "float32"), 1.5e9 * number)
        count += add(catalog.LIVE_ARRAY_BYTES, [device])
        for phase in ("trace", "backend_compile"):
            histogram = Histogram(catalog.COMPILE_SECONDS, function, phase)
            for _ in range(9):
                histogram.observe(random.expovariate(1))
            count += add(catalog.COMPILE_SECONDS, histogram.samples())
        number += 1
    return list(found.values())


def measure() -> list[Row]:
    """Return what each operation takes, and how many times faster jaxmon is."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.openmetrics.exposition import (
        generate_latest as generate_openmetrics,
    )
    from prometheus_client.parser import text_string_to_metric_families

    ours = families()
    theirs = CollectorRegistry()
    theirs.register(_Ready(ours))
    text = encode(ours).decode()
    return [
        *_rows(
            "encode text 0.0.4", lambda: encode(ours), lambda: generate_latest(theirs)
        ),
        *_rows(
            "encode OpenMetrics 1.0",
            lambda: encode(ours, OPENMETRICS),
            lambda: generate_openmetrics(theirs),  # type: ignore[no-untyped-call]
        ),
        *_rows(
            "parse text 0.0.4",
            lambda: parse(text),
            lambda: list(text_string_to_metric_families(text)),
        ),
    ]


class _Ready:
    """A collector of prometheus_client that has its families ready."""

    def __init__(self, ours: list[Family]) -> None:
        from prometheus_client import Metric as TheirMetric

        self._families = []
        for family in ours:
            metric = family.metric
            name = metric.name.removesuffix("_total")
            theirs = TheirMetric(name, metric.help, metric.kind)
            for line, value in family.samples:
                name, _, rest = line.partition("{")
                theirs.add_sample(name, labels(rest.removesuffix("}")), value)
            self._families.append(theirs)

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        return iter(self._families)


def _rows(
    name: str, ours: Callable[[], object], theirs: Callable[[], object]
) -> Iterator[Row]:
    pairs = [(*seconds(ours, 1), *seconds(theirs, 1)) for _ in range(ROUNDS)]
    first, second = (statistics.median(column) for column in zip(*pairs, strict=True))
    yield Row(f"5,000 samples, {name}", first * 1e3, "ms")
    yield Row(
        "  times faster than prometheus_client",
        second / first,
        "x",
        at_least=GOAL_TIMES if name.startswith("encode") else None,
        note=f"prometheus_client {second * 1e3:.1f} ms",
    )
