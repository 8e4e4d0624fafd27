"""A job that ends soon, and what a sidecar reads of it."""

from __future__ import annotations

import json
from pathlib import Path

from jaxmon import catalog
from jaxmon.facts import endings
from jaxmon.facts.ending import ProcessEnd
from jaxmon_exporter.collectors.agents.collector import Agents
from tests.fakes.agents import page_of
from tests.preloaded import run_preloaded
from tests.support import Result


JOB = """
import json, os, signal, sys
import jax, jaxmon
def begin():
    return jaxmon.instrument(
        port=None, memory_interval=0, memory_lines_interval=0, time_interval=0
    )
agent = begin()
@jax.jit
def work(x):
    return x * 2
def count(number):
    for size in range(number):
        with jaxmon.request("predict"):
            work(jax.numpy.ones(size + 1))
    for _ in jaxmon.steps(range(2 * number)):
        pass
count(int(sys.argv[1]))
"""
REQUESTS = 'jaxmon_requests_total{worker="0",route="predict",outcome="success"'
STEPS = 'jaxmon_steps_total{worker="0",loop="train"}'


def job(run_dir: Path, number: int, then: str = "") -> Result:
    """Run a job with so many requests, compiles, and twice as many steps."""
    return run_preloaded("-c", JOB + then, str(number), run_dir=run_dir, seconds=90)


def left(run_dir: Path) -> ProcessEnd:
    """Return the record of the latest process of the first slot."""
    return endings.slots(run_dir)["0"].latest


def rewrite(path: Path, record: ProcessEnd) -> None:
    """Write *record* over that of the same process in the file of a slot."""
    with path.open("r+b") as file:
        file.seek(record.starts % 2 * 4096)
        file.write(json.dumps(record.as_json()).encode() + b"\n")


def requests(page: dict[str, float]) -> float:
    """Return the successful requests of the first slot."""
    return sum(value for name, value in page.items() if name.startswith(REQUESTS))


def of(page: dict[str, float], metric: catalog.Metric) -> float:
    """Return the value of the first slot."""
    return page[f'{metric.name}{{worker="0"}}']


def counts(run_dir: Path) -> tuple[float, float]:
    """Return requests and steps of the first slot, as a sidecar that starts sees it."""
    page = page_of(Agents(run_dir))
    return requests(page), page.get(STEPS, 0)
