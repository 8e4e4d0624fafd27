"""
Programs with one mistake each, and programs without any: a name.

Each runs for several seconds, and for many times as long as it took to compile, which
takes long on a busy machine. Prints what jaxmon finds, most urgent first, as JSON.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.report.findings import find
from jaxmon.report.model import read


NAME = sys.argv[1]
SECONDS = 5.0
TIMES = 15
AGENT = jaxmon.instrument(port=None, socket=False, time_interval=0.02)
BEGAN = time.perf_counter()
compiled: list[float] = []

weights = jnp.ones((256, 256)) * 0.01
batch = jnp.ones((512, 256))


def more() -> bool:
    """Return whether to go on; called before each round."""
    ran = time.perf_counter() - BEGAN
    if len(compiled) < 2:
        compiled.append(ran)
    return ran < max(SECONDS, TIMES * compiled[-1])


@jax.jit  # type: ignore[untyped-decorator]
def step(weights: Any, batch: Any) -> Any:
    loss, slope = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(batch @ w) ** 2))(
        weights
    )
    return weights - 0.1 * slope, loss


@jax.jit  # type: ignore[untyped-decorator]
def evaluate(weights: Any, batch: Any) -> Any:
    return jnp.mean(batch @ weights)


@jax.jit  # type: ignore[untyped-decorator]
def first(table: Any) -> Any:
    return table[0, 0]


@jax.jit  # type: ignore[untyped-decorator]
def squared(number: Any) -> Any:
    return number * number


def forgotten_jit() -> None:
    def model(weights: Any) -> Any:
        for _ in range(20):
            weights = jnp.tanh(weights * 1.01)
        return weights.sum()

    small = weights[0]
    while more():
        small -= 0.1 * jax.grad(model)(small)


def shared_lock() -> None:
    lock = threading.Lock()

    def log() -> None:
        while more():
            with lock:
                time.sleep(0.03)

    threading.Thread(target=log).start()
    state = weights
    while more():
        state, _ = step(state, batch)
        with lock:
            pass


def numpy_arguments() -> None:
    table = np.ones((3000, 3000), np.float32)
    while more():
        first(table)


def bookkeeping() -> None:
    state = weights
    while more():
        state, loss = step(state, batch)
        float(loss)
        json.loads(json.dumps([{"a": number} for number in range(4000)]))


def elements() -> None:
    while more():
        for column in range(100):
            float(squared(batch[column % 7, column]))


def training() -> None:
    state, count = weights, 0
    while more():
        state, loss = step(state, batch)
        count += 1
        if count % 100 == 0:
            float(loss)


def reading_each_loss() -> None:
    state = weights
    while more():
        state, loss = step(state, batch)
        float(loss)


def several_models() -> None:
    def network(scale: float) -> Callable[[Any, Any], Any]:
        return lambda weights, batch: jnp.mean((batch @ weights) ** 2) * scale

    losses = [jax.jit(network(scale)) for scale in (1.0, 2.0, 3.0)]
    slopes = [jax.jit(jax.grad(network(scale))) for scale in (1.0, 2.0)]
    while more():
        for function in (*losses, *slopes):
            function(weights, batch).block_until_ready()


def idle_server() -> None:
    work: queue.Queue[Any] = queue.Queue()

    def serve() -> None:
        while work.get() is not None:
            with jaxmon.request("predict"):
                float(step(weights, batch)[1])

    thread = threading.Thread(target=serve)
    thread.start()
    while more():
        work.put(1)
        time.sleep(0.25)
    work.put(None)
    thread.join()


def evaluation_between() -> None:
    state = weights
    while more():
        for _ in range(100):
            state, _ = step(state, batch)
        np.mean([float(evaluate(state, batch)) for _ in range(10)])


PROGRAMS = (
    *(forgotten_jit, shared_lock, numpy_arguments, bookkeeping, elements),
    *(training, reading_each_loss, several_models, idle_server, evaluation_between),
)


def main() -> None:
    """Run the program, and print the findings."""
    {one.__name__: one for one in PROGRAMS}[NAME]()
    runtime = runtime_of(AGENT)
    assert runtime is not None
    events = [event._asdict() for event in runtime.context.events.since()]
    snapshot = read(runtime.overview.whole(), {"events": events})
    print(json.dumps([one.as_json() for one in find(snapshot)]))


main()
