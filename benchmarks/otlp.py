"""
What an export by OTLP costs on its thread, without a receiver: conversion by jaxmon,
encoding by the SDK, and the page of the same samples for comparison.

    python -m benchmarks otlp
"""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from time import process_time, thread_time

from benchmarks.exposition import families
from benchmarks.rows import Row, seconds, taken
from jaxmon.exposition.encode import encode


SAMPLES = 1000
ROUNDS = 41


def measure() -> list[Row]:
    """Return medians of CPU time in milliseconds, and sizes."""
    began = process_time()
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.exporter.otlp.proto.http import metric_exporter  # noqa: F401
    from opentelemetry.sdk.resources import Resource

    from jaxmon.otel.environment import Plan
    from jaxmon.otel.pipes import Converter

    imports = 1000 * (process_time() - began)
    page = families(SAMPLES)
    of = Resource({"service.name": "benchmark"})
    converter = Converter(of, Plan(()), 0, lambda _: None)
    tracemalloc.start()
    converter.convert(page, 1)
    converter.delivered()
    kept = tracemalloc.get_traced_memory()[0] / 1024
    tracemalloc.stop()
    data = converter.convert(page, 2)
    body = encode_metrics(data).SerializeToString()
    squeezed = gzip.compress(body)
    return [
        _row("convert", lambda: converter.convert(page, 3)),
        _row("encode and serialise (SDK)", lambda: _encoded(encode_metrics, data)),
        _row("the page, for comparison", lambda: encode(page)),
        Row("message", len(body) / 1024, "KiB"),
        Row("message, gzip", len(squeezed) / 1024, "KiB"),
        Row("kept between exports", kept, "KiB"),
        Row("importing SDK and exporter (HTTP)", imports, "ms"),
    ]


def _encoded(encode_metrics: Callable[..., object], data: object) -> object:
    return encode_metrics(data).SerializeToString()  # type: ignore[attr-defined]


def _row(name: str, work: Callable[[], object]) -> Row:
    times = seconds(work, ROUNDS, thread_time)
    return taken(f"{name}, {SAMPLES:,} samples", times, "ms", scale=1e3)
