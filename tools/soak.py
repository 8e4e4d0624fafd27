"""
Let a program run for long under jaxmon, and watch what must not grow.

    python tools/soak.py [--calls N] [--recompiles N] [--arrays N] [--bare]

Calls, recompiles, and arrays that are made and dropped come in rounds. After each,
JAX's own caches are emptied, and resident memory, threads, descriptors and events are
counted. Prints a table, or JSON; the exit code is 1 if something grew. ``--bare`` does
the same without jaxmon, to compare with.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jaxmon
from jaxmon.agent.events import LIMIT
from jaxmon.catalog import JIT_CALLS, RECOMPILES
from jaxmon.host.resources.process import resident_bytes


sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.helpers import inside
from tests.helpers.agents import value


ROUNDS = 20
# Warm-up: a quarter of the rounds. Allocators settle, rings fill.
WARM = ROUNDS // 4
# What resident memory may grow by in each of the other rounds, in the median, and from
# warm-up to the end. The allocators of C++ take megabytes at once now and then, which
# says nothing, with or without jaxmon; what leaks, leaks in every round.
SLOPE = 0.001
GROWTH = 0.1
# Threads of jaxmon that start with the first need for them, whenever that is; and
# descriptors of threads of the program, of which jaxmon reads the state.
LATE = 3


@dataclass(frozen=True)
class Round:
    """What was there after a round; memory in bytes."""

    calls: int
    recompiles: int
    arrays: int
    resident: int
    threads: int
    descriptors: int
    events: int
    largest_ring: int
    page: int
    seconds: float
    cpu: float


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description="Watch jaxmon for growth.")
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--recompiles", type=int, default=2_000)
    parser.add_argument("--arrays", type=int, default=100_000)
    parser.add_argument("--bare", action="store_true", help="without jaxmon")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    rounds = []
    for one in soak(
        arguments.calls, arguments.recompiles, arguments.arrays, bare=arguments.bare
    ):
        rounds.append(one)
        if not arguments.json:
            print(line(len(rounds), one), flush=True)
    found = problems(rounds)
    if arguments.json:
        print(json.dumps({"rounds": list(map(asdict, rounds)), "problems": found}))
    else:
        print(
            "\n".join(found)
            or f"nothing grew; resident memory {growth(rounds):+.2%} after warm-up, "
            f"{slope(rounds):+.3%} a round"
        )
    return bool(found)


def soak(calls: int, recompiles: int, arrays: int, *, bare: bool) -> Iterator[Round]:
    """Yield what was there after each round."""
    import jax  # noqa: PLC0415 - after the choice of a platform
    import numpy as np  # noqa: PLC0415 - as JAX

    # All looks come often; none may add up to anything.
    agent: Any = None
    if not bare:
        agent = jaxmon.instrument(
            port=0, memory_interval=0.5, memory_lines_interval=0.5, sample_rate=10
        )
    cached = jax.jit(lambda x: x + 1)
    recompiled = jax.jit(lambda x: x * 2)
    device = jax.devices()[0]
    x = jax.device_put(np.ones(8, np.float32), device)
    made, began = 0, time.monotonic()
    for number in range(1, ROUNDS + 1):
        cached(x)
        for _ in range(calls // ROUNDS):
            cached(x)
        for _ in range(recompiles // ROUNDS):
            made += 1
            recompiled(np.ones(made, np.float32))
        kept = [
            jax.device_put(np.float32(at), device) for at in range(arrays // ROUNDS)
        ]
        del kept
        page = 0 if agent is None else len(scrape(agent.url))
        if agent is not None:
            agent.refresh()
        # JAX keeps thousands of programs; that is not what is looked for here.
        jax.clear_caches()
        gc.collect()
        rings = [] if agent is None else list(events(agent).values())
        yield Round(
            calls=number * (calls // ROUNDS),
            recompiles=made,
            arrays=number * (arrays // ROUNDS),
            resident=resident_bytes() or 0,
            threads=len(list(Path("/proc/self/task").iterdir())),
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
            events=sum(rings),
            largest_ring=max(rings, default=0),
            page=page,
            seconds=time.monotonic() - began,
            cpu=time.process_time(),
        )
    if agent is not None:
        expected = {JIT_CALLS.name: calls, RECOMPILES.name: recompiles - 1}
        counted = {name: value(agent, name) for name in expected}
        if any(counted[name] < number for name, number in expected.items()):
            sys.exit(f"counted {counted}, expected at least {expected}")
    jaxmon.uninstrument()


def events(agent: Any) -> dict[str, int]:
    """Return the number of events that are kept, by kind."""
    counts: dict[str, int] = {}
    for event in inside.events(agent).since():
        counts[event.kind] = counts.get(event.kind, 0) + 1
    return counts


def scrape(url: str) -> str:
    """Return the agent's page."""
    with urllib.request.urlopen(url, timeout=30) as page:  # noqa: S310 - the agent's
        return str(page.read().decode())


def growth(rounds: list[Round]) -> float:
    """Return by which share resident memory grew from warm-up to the end."""
    before = statistics.median(one.resident for one in rounds[WARM : 2 * WARM])
    after = statistics.median(one.resident for one in rounds[-WARM:])
    return after / before - 1


def slope(rounds: list[Round]) -> float:
    """
    Return by which share resident memory grew in a round after warm-up, in the median.
    """
    resident = [one.resident for one in rounds[WARM:]]
    return statistics.median(b - a for a, b in pairwise(resident)) / resident[0]


def problems(rounds: list[Round]) -> list[str]:
    """Return what grew, in words."""
    found = []
    if (share := growth(rounds)) > GROWTH:
        found.append(f"resident memory grew by {share:.1%}, more than {GROWTH:.0%}")
    if (share := slope(rounds)) > SLOPE:
        found.append(f"it grew by {share:.2%} a round, more than {SLOPE:.1%}")
    warm, last = rounds[WARM], rounds[-1]
    for name, more in (("threads", LATE), ("descriptors", LATE)):
        before, after = getattr(warm, name), getattr(last, name)
        if after > before + more:
            found.append(f"{name} grew from {before} to {after}")
    if last.largest_ring > LIMIT:
        found.append(f"{last.largest_ring} events of one kind, {LIMIT} are allowed")
    return found


def line(number: int, one: Round) -> str:
    """Return a line of the table, below its head."""
    head = (
        f"{'calls':>10}{'recompiles':>11}{'arrays':>8}{'resident MiB':>13}"
        f"{'threads':>8}{'files':>6}{'events':>7}{'page kB':>8}{'s':>6}{'CPU s':>7}\n"
    )
    return (head if number == 1 else "") + (
        f"{one.calls:>10,}{one.recompiles:>11,}{one.arrays:>8,}"
        f"{one.resident / (1 << 20):>13.1f}{one.threads:>8}{one.descriptors:>6}"
        f"{one.events:>7}{one.page / 1e3:>8.1f}{one.seconds:>6.0f}{one.cpu:>7.0f}"
    )


if __name__ == "__main__":
    sys.exit(main())
