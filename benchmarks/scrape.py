"""What a scrape takes from the program: the page of an agent with 200 functions."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from benchmarks.rows import Row, paired, taken


if TYPE_CHECKING:
    from collections.abc import Iterator


FUNCTIONS = 200
PAGES = 41
WINDOWS = 12
WINDOW_SECONDS = 1.0

# Fetches the page once for each line it reads; its own CPU is not the program's.
SCRAPER = """
import sys, urllib.request

for _ in sys.stdin:
    with urllib.request.urlopen(sys.argv[1], timeout=10) as page:
        page.read()
    print(flush=True)
"""


def measure() -> list[Row]:
    """
    Return milliseconds for a page, and what a scrape a second costs a busy program.
    """
    import jaxmon
    from jaxmon.exposition.encode import encode

    agent = jaxmon.instrument(port=0, socket=False)
    try:
        call_functions()
        collects, encodes, cpu = [], [], []
        for _ in range(PAGES):
            burnt, started = process_time(), perf_counter()
            families = agent.collect()
            collected = perf_counter()
            page = encode(families)
            encodes.append((perf_counter() - collected) * 1e3)
            collects.append((collected - started) * 1e3)
            cpu.append((process_time() - burnt) * 1e3)
        samples = sum(len(family.samples) for family in families)
        if agent.url is None:
            msg = "the agent found no free port to be scraped on"
            raise RuntimeError(msg)
        with _scraper(agent.url) as scrape:
            quiet, scraped = _throughput(scrape)
    finally:
        jaxmon.uninstrument()
    lost = -paired(scraped, quiet) / statistics.median(quiet) * 100
    return [
        taken(
            f"page of {FUNCTIONS} functions, collect",
            collects,
            "ms",
            note=f"{samples:,} samples, {len(page) / 1e3:,.0f} kB of text",
        ),
        taken("  encode", encodes, "ms"),
        taken("  CPU of both", cpu, "ms"),
        Row("busy Python thread loses at a scrape a second", lost, "%"),
    ]


def call_functions() -> None:
    """Compile `FUNCTIONS` functions, and call each of them again."""
    import jax

    argument = jax.numpy.ones(())

    def make(number: int) -> Callable[[Any], Any]:
        def fun(x: Any) -> Any:
            return x + number

        fun.__qualname__ = f"Transformer.block_{number}"
        return fun

    for number in range(FUNCTIONS):
        jitted = jax.jit(make(number))
        jitted(argument)
        jitted(argument)


@contextmanager
def _scraper(url: str) -> Iterator[Callable[[], None]]:
    """Give a function that has another process fetch *url* once, without waiting."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRAPER, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None:
            msg = "no pipes to the scraper"
            raise RuntimeError(msg)
        stdin = process.stdin

        def scrape() -> None:
            stdin.write("\n")
            stdin.flush()

        # The first fetch pays for the process's start.
        scrape()
        process.stdout.readline()
        yield scrape
        stdin.close()


def _throughput(scrape: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Return rounds of a busy loop in windows without and with one scrape."""
    quiet, scraped = [], []
    for _ in range(WINDOWS):
        quiet.append(_busy())
        scrape()
        scraped.append(_busy())
    return quiet, scraped


def _busy() -> float:
    rounds, deadline = 0, perf_counter() + WINDOW_SECONDS
    while perf_counter() < deadline:
        rounds += 1
    return rounds
