"""
Two versions of one program, and the first one twice, at the same time.

Each process writes a report of its run to a directory of its own in that of the first
argument, and what it did beside it. In the second version, one function of several
takes longer; it does so asleep, so that a busy machine hardly changes it.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxmon
from jaxmon.agent.sampling import part
from jaxmon.host.http.fetch import fetch_all


FIRST, MORE = 0.008, 0.4
FUNCTIONS, SLOWER = 3, 2
ENOUGH = 18
DEADLINE_SECONDS = 150.0
# Of its time, which the agent may spend on samples: with the usual part, enough of them
# take minutes.
part._SHARE = 0.1


def layer(number: int, seconds: float) -> Callable[[Any], Any]:
    """Return a function with a name of its own that takes so long."""

    def wait(x: Any) -> Any:
        time.sleep(seconds)
        return x

    def apply(x: Any) -> Any:  # here
        return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x + 1)

    apply.__qualname__ = apply.__name__ = f"layer_{number}"
    jitted: Callable[[Any], Any] = jax.jit(apply)
    return jitted


def sampled(socket: str) -> bool:
    """Return whether each function has enough samples."""
    pages = fetch_all(
        {"": Path(socket)}, "/debug/functions", timeout=60, max_bytes=1 << 22
    )
    functions = json.loads(str(pages[""]))["functions"].items()
    known = [of["spreads"] for name, of in functions if ".layer_" in name]
    counts = [(one.get("dispatch") or {}).get("count", 0) for one in known]
    return len(counts) == FUNCTIONS and min(counts) >= ENOUGH


def batches(socket: str, least: int) -> Iterator[int]:
    """Yield batches until there are enough samples, and at least so many."""
    end, due = time.monotonic() + DEADLINE_SECONDS, time.monotonic() + 3
    for number in itertools.count():
        if time.monotonic() > end:
            return
        if time.monotonic() > due and number >= least:
            due += 1
            if sampled(socket):
                return
        yield number


def work(directory: Path, *, more: bool) -> None:
    """Train and serve, and note how much."""
    agent = jaxmon.instrument(port=None, sample_rate=100, summary_dir=directory)
    seconds = [MORE if more and n == SLOWER else FIRST for n in range(FUNCTIONS)]
    layers = [layer(n, of) for n, of in enumerate(seconds)]
    shaped = jax.jit(lambda x: x + 1)
    for size in (1, 2, 3):
        shaped(jnp.ones(size))
    x, steps, failed = jnp.ones(4), 0, 0
    # The chart lacks the last half second: hardly anything of so many.
    least = 0 if more else 200
    for _ in jaxmon.steps(batches(agent.socket or "", least)):
        steps += 1
        for one in layers:
            one(x).block_until_ready()
        with jaxmon.request("predict") as request:
            if steps % 10 == 0:
                failed += 1
                request.outcome = "error"
    done = {"steps": steps, "failed": failed}
    directory.with_suffix(".done").write_text(json.dumps(done))


def main() -> None:
    """Fork a process for each run, so that JAX is imported once."""
    directory = Path(sys.argv[1])
    for name in ("first", "again", "second"):
        if os.fork() == 0:
            work(directory / name, more=name == "second")
            return
    for _ in range(3):
        _, status = os.wait()
        assert status == 0


if __name__ == "__main__":
    main()
