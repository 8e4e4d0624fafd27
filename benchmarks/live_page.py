"""What the live page costs the sidecar: 64 processes with 200 functions each."""

from __future__ import annotations

import json
import statistics
import tracemalloc
from time import process_time
from typing import TYPE_CHECKING

from benchmarks.rows import Row, seconds
from benchmarks.scrape import FUNCTIONS, call_functions


if TYPE_CHECKING:
    from jaxmon.exposition.families import Family

PROCESSES = 64
ROUNDS = 5
# The rings have their full size from the first sample on, and a minute has twelve.
SAMPLES = 20
_NOW = 2e9
_MIB = 1 << 20


def measure() -> list[Row]:
    """Return the CPU time of a sample, of a summary and of the charts; memory kept."""
    from jaxmon.facts.charts import EVERY
    from jaxmon.facts.record import dumps, encoded
    from jaxmon.facts.status import UNREAD
    from jaxmon_exporter.pages import Live

    page = _page()
    families, parsing = _families(page)
    samples = sum(len(family.samples) for family in families)
    clock = iter(_NOW + EVERY * number for number in range(10**6))
    live = Live(lambda: families, version="0", run_dir="/", clock=lambda: next(clock))
    tracemalloc.start()
    for _ in range(SAMPLES):
        live.sample()
    kept = tracemalloc.get_traced_memory()[0] / _MIB
    tracemalloc.stop()
    sampled, summarised, charted = (
        statistics.median(seconds(work, ROUNDS, process_time))
        for work in (
            live.sample,
            lambda: dumps(encoded(live.summary([], UNREAD))),
            lambda: json.dumps(live.charts(None)),
        )
    )
    whole = f"{PROCESSES} processes x {FUNCTIONS} functions"
    return [
        Row(
            f"parse {whole}, every 2 s",
            parsing * 1e3,
            "ms",
            note=f"{samples:,} samples, {PROCESSES} x {len(page) / 1e3:,.0f} kB",
        ),
        Row(
            "sample, every 5 s",
            sampled * 1e3,
            "ms",
            note=f"{sampled / EVERY:.2%} of a core",
        ),
        Row("summary, every 2 s while a page is open", summarised * 1e3, "ms"),
        Row("charts, every 5 s while a page is open", charted * 1e3, "ms"),
        Row("kept for the last minute and the charts", kept, "MiB"),
    ]


def _page() -> str:
    """Return what a program with requests, steps and many functions serves."""
    import jaxmon
    from jaxmon.exposition.encode import encode

    agent = jaxmon.instrument(port=None, socket=False)
    try:
        call_functions()
        for number in range(200):
            with jaxmon.request(f"POST /route{number % 5}") as request:
                request.outcome = "error" if number % 9 == 0 else "success"
        for _ in jaxmon.steps(range(20)):
            jaxmon.queue("prompts").set(3)
        return encode(agent.collect()).decode()
    finally:
        jaxmon.uninstrument()


def _families(page: str) -> tuple[list[Family], float]:
    """Return *page* as read from each process, and what that took."""
    from jaxmon.catalog import AGENT_UP
    from jaxmon.exposition.families import Family, series
    from jaxmon_exporter.collectors.agents import page_families as parse

    began = process_time()
    found = [one for slot in range(PROCESSES) for one in parse(str(slot), page)]
    took = process_time() - began
    up = Family(AGENT_UP, [(series(AGENT_UP, slot), 1.0) for slot in range(PROCESSES)])
    return [up, *found], took
