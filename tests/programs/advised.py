"""
Loops that lose time, and the same work with the advice of the finding applied.

``python -m tests.programs.advised NAME SECONDS`` runs a loop for so long, then steps of
it and of its twin by turns, and prints as JSON the findings, and how many of the
seconds the twin would have saved, by its own clock.
"""

from __future__ import annotations

import gc
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.facts.record import encoded
from jaxmon.limits.shared import current
from jaxmon.symptoms.findings import as_fact, find


AGENT = jaxmon.instrument(port=0, socket=False, report=False)

import jax  # noqa: E402 - the agent comes first, as in `jaxmon run`
import jax.numpy as jnp  # noqa: E402


Steps = Iterator[int]


@jax.jit  # type: ignore[untyped-decorator]
def step(state: Any, batch: Any) -> tuple[Any, Any]:
    for _ in range(6):
        state = jnp.tanh(state @ batch)
    return state, state.sum()


@jax.jit  # type: ignore[untyped-decorator]
def total(table: Any) -> Any:
    return table[0].sum()


@jax.jit  # type: ignore[untyped-decorator]
def small(row: Any) -> Any:
    return row * 0.5


def rows_of(text: str) -> Any:
    return [row for row in json.loads(text) if row["a"] >= 0]


BATCH = np.ones((512, 512), np.float32) / 512
STATE = jnp.ones((512, 512))
LARGE = np.ones((4096, 2048))  # of float64, which is converted
NUMBERS = [number / 7 for number in range(10_000)]
TEXT = json.dumps([{"a": number} for number in range(10_000)])


def smoothed(values: Any) -> Any:
    for _ in range(30):
        values = values * 0.9 + 0.1
    return values.sum()


smoothed_at_once = jax.jit(smoothed)


def eager(steps: Steps) -> None:
    for _ in steps:
        smoothed(STATE[0])


def eager_mended(steps: Steps) -> None:
    for _ in steps:
        smoothed_at_once(STATE[0]).block_until_ready()


def host(steps: Steps, every: int = 1) -> None:
    row = STATE[0]
    for number in steps:
        row = small(row)
        float(row[0])
        if number % every == 0:
            rows_of(TEXT)


def host_mended(steps: Steps) -> None:
    host(steps, 20)


def loaded(steps: Steps) -> Iterator[Any]:
    for _ in steps:
        time.sleep(0.02)
        yield BATCH


def trained(batches: Iterator[Any]) -> None:
    state = STATE
    for batch in batches:
        state, loss = step(state, batch)
        float(loss)


def data_wait(steps: Steps) -> None:
    trained(loaded(steps))


def data_wait_mended(steps: Steps) -> None:
    ready: queue.Queue[Any] = queue.Queue(4)

    def load() -> None:
        for batch in loaded(steps):
            ready.put([batch])
        ready.put([])

    threading.Thread(target=load, daemon=True).start()
    trained(batch for (batch,) in iter(ready.get, []))


def copies(steps: Steps) -> None:
    for _ in steps:
        total(jnp.array(LARGE)).block_until_ready()


def copies_mended(steps: Steps) -> None:
    there = jnp.array(LARGE)
    for _ in steps:
        total(there).block_until_ready()


def lists(steps: Steps) -> None:
    for _ in steps:
        total(jnp.array([NUMBERS])).block_until_ready()


def lists_mended(steps: Steps) -> None:
    for _ in steps:
        total(jnp.array(np.array([NUMBERS], np.float32))).block_until_ready()


def blocked(steps: Steps, every: int = 1) -> None:
    state = STATE
    for number in steps:
        state, loss = step(state, BATCH)
        float(loss)
        if number % every == 0:
            time.sleep(0.03)  # stands for a write to a slow disk


def blocked_mended(steps: Steps) -> None:
    blocked(steps, 10)


def garbage(steps: Steps) -> None:
    kept, state = [{"number": number} for number in range(100_000)], STATE
    for _ in steps:
        state, loss = step(state, BATCH)
        float(loss)
        gc.collect()
    kept.clear()


def garbage_mended(steps: Steps) -> None:
    trained(BATCH for _ in steps)


def interpreter(steps: Steps, work: Callable[[], Any] | None = None) -> None:
    over = threading.Event()

    def augment() -> None:
        while not over.is_set():
            (work or (lambda: [value * 0.5 for value in range(20_000)]))()

    other = threading.Thread(target=augment)
    other.start()
    row = STATE[0]
    for _ in steps:
        for _ in range(20):
            row = small(row)
        jax.block_until_ready(row)
    over.set()
    other.join()


def interpreter_mended(steps: Steps) -> None:
    values = np.arange(20_000.0)

    def work() -> None:
        np.multiply(values, 0.5)
        time.sleep(0.001)  # or it does a hundred times as much

    interpreter(steps, work)


def limited(seconds: float, counted: list[int]) -> Steps:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        counted[0] += 1
        yield counted[0]


def measured(run: Callable[[Steps], None], steps: Steps) -> float:
    began = time.perf_counter()
    run(steps)
    return time.perf_counter() - began


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2])
    lost, mended = globals()[name], globals()[f"{name}_mended"]
    for run in (lost, mended):  # compiles are no part of it
        run(iter(range(2)))
    counted = [0]
    took = measured(lost, limited(seconds, counted))
    runtime = runtime_of(AGENT)
    assert runtime is not None
    runtime.refresh()
    found = find(runtime.overview.judged_by(current()))
    # The quickest of several turns: the machine may be busy.
    steps = max(counted[0] // 10, 1)
    turns = [
        (measured(lost, iter(range(steps))), measured(mended, iter(range(steps))))
        for _ in range(5)
    ]
    before, after = map(min, zip(*turns, strict=True))
    every = [encoded(as_fact(one)) for one in found]
    print(json.dumps({"findings": every, "won": took * (1 - after / before)}))


if __name__ == "__main__":
    main()
