"""
Programs that lose time by one mistake each.

The lines to blame end with ``# here``.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon
from tests.programs.verdicts.harness import (
    batch,
    large_models,
    loss_of,
    more,
    serve,
    step,
    weights,
)


# --- Operations outside of jit ---------------------------------------------------


def forgotten_jit() -> None:
    def model(weights: Any) -> Any:
        for _ in range(20):
            weights = jnp.tanh(weights * 1.01)  # here
        return weights.sum()

    small = weights[0]
    while more():
        small -= 0.1 * jax.grad(model)(small)  # here


def optimizer_outside() -> None:
    state = {f"layer{number}": jnp.ones((64, 64)) for number in range(20)}
    first = jax.tree_util.tree_map(jnp.zeros_like, state)
    second = first
    slopes = jax.jit(lambda state: jax.tree_util.tree_map(lambda w: 0.1 * w, state))
    while more():
        found = slopes(state)
        for name, slope in found.items():
            first[name] = 0.9 * first[name] + 0.1 * slope  # here
            second[name] = 0.99 * second[name] + 0.01 * slope * slope  # here
            state[name] -= 0.01 * first[name] / (jnp.sqrt(second[name]) + 1e-8)  # here


@jax.jit  # type: ignore[untyped-decorator]
def squared(number: Any) -> Any:
    return number * number


def elements() -> None:
    while more():
        for column in range(100):
            float(squared(batch[column % 7, column]))  # here


def sizes_at_start() -> None:
    for size in range(1, 60):
        jnp.ones(size) * 2.0 + jnp.arange(size)  # here
    state = weights
    while more():
        state, _ = step(state, batch)
        state.block_until_ready()


# --- Waiting ---------------------------------------------------------------------


def slow_files() -> None:
    def load() -> Iterator[Any]:
        while more():
            time.sleep(0.02)  # here
            yield batch

    state = weights
    for one in load():
        state, _ = step(state, one)


def decoding_in_python() -> None:
    text = json.dumps([[float(column) for column in range(256)]] * 16)

    def load() -> Iterator[Any]:
        while more():
            yield jnp.asarray(np.array(json.loads(text) * 32, np.float32))  # here

    state = weights
    for one in jaxmon.steps(load()):
        state, _ = step(state, one)


def loader_thread() -> None:
    ready: queue.Queue[Any] = queue.Queue(2)

    def shifted(row: Any) -> list[float]:
        return [row[(column + 1) % 256] * 0.5 for column in range(256)]  # here

    def load() -> None:
        rows = np.ones((512, 256), np.float32).tolist()
        while more():
            ready.put(np.array([shifted(row) for row in rows], np.float32))

    threading.Thread(target=load, daemon=True).start()
    state, images = weights, batch
    while more():
        with suppress(queue.Empty):
            images = ready.get_nowait()
        for _ in range(10):
            state, _ = step(state, images)
            state = jnp.asarray(state)


def shared_lock() -> None:
    lock = threading.Lock()

    def log() -> None:
        while more():
            with lock:
                time.sleep(0.03)

    threading.Thread(target=log).start()
    state, small = weights, batch[:32]
    while more():
        state, _ = step(state, small)
        with lock:  # here
            pass


def joined_loader() -> None:
    state = weights
    while more():
        loader = threading.Thread(target=time.sleep, args=(0.01,))
        loader.start()
        loader.join()  # here
        state, _ = step(state, batch)


def backing_off() -> None:
    state = weights
    while more():
        state, loss = step(state, batch)
        if float(loss) >= 0:
            time.sleep(0.01)  # here


def saving_each_step() -> None:
    state = weights
    with tempfile.TemporaryDirectory() as directory:
        while more():
            state, _ = step(state, batch)
            with Path(directory, "state").open("wb") as file:
                file.write(np.asarray(state).tobytes() * 40)  # here
                os.fsync(file.fileno())  # here


# --- The host --------------------------------------------------------------------


def bookkeeping() -> None:
    state = weights
    while more():
        state, loss = step(state, batch)
        float(loss)
        json.loads(json.dumps([{"a": number} for number in range(4000)]))  # here


def collecting_garbage() -> None:
    kept = [{"number": number} for number in range(100_000)]
    state = weights
    while more():
        state, loss = step(state, batch)
        float(loss)
        gc.collect()  # here
    kept.clear()


@jax.jit  # type: ignore[untyped-decorator]
def first_of(table: Any) -> Any:
    return table[0, 0]


def numpy_arguments() -> None:
    table = np.ones((3000, 3000), np.float32)
    while more():
        first_of(table)  # here


@jax.jit  # type: ignore[untyped-decorator]
def told(weights: Any, batch: Any) -> Any:
    loss = loss_of(weights, batch[:4, :])
    jax.debug.callback(lambda _: None, loss)
    return loss


def callbacks() -> None:
    while more():
        told(weights, batch)


# --- Compiling again -------------------------------------------------------------


@jax.jit  # type: ignore[untyped-decorator]
def mean_of(rows: Any) -> Any:
    return jnp.mean(jnp.tanh(rows) ** 3)


def growing_batches() -> None:
    rows = 0
    while more():
        rows += 1
        mean_of(np.ones((rows, 256), np.float32))  # here


def growing_under_grad() -> None:
    rows = 0
    while more():
        rows += 1
        jax.grad(mean_of)(np.ones((rows, 256), np.float32))  # here


def new_lambda() -> None:
    while more():
        jax.jit(lambda weights: jnp.sum(jnp.tanh(weights)))(weights)  # here


def new_closure_under_grad() -> None:
    number = 0
    while more():
        number += 1
        data = batch * number
        loss = jax.jit(partial(lambda data, w: loss_of(w, data), data))  # here
        jax.grad(loss)(weights)  # here


@partial(jax.jit, static_argnames="rate")
def decayed(weights: Any, *, rate: float) -> Any:
    return jnp.tanh(weights) * rate


def static_rate() -> None:
    number = 0
    while more():
        number += 1
        decayed(weights, rate=1.0 / number)  # here


@jax.jit  # type: ignore[untyped-decorator]
def total_of(tree: Any) -> Any:
    return sum(jnp.sum(jnp.tanh(leaf)) for leaf in jax.tree_util.tree_leaves(tree))


def growing_history() -> None:
    history: list[Any] = []
    while more():
        history.append(weights[0, 0])
        total_of(history)  # here


# --- Slower than before ----------------------------------------------------------


@jax.jit  # type: ignore[untyped-decorator]
def repeated(weights: Any, times: Any) -> Any:
    return jax.lax.fori_loop(0, times, lambda _, w: jnp.tanh(w @ w), weights)


def ever_more_work() -> None:
    began = time.perf_counter()
    state = weights
    while more():
        times = 80 if time.perf_counter() - began < 90 else 400
        for _ in range(10):
            state = repeated(state, times)
        state.block_until_ready()


def padded_batches() -> None:
    while more():
        jaxmon.batch("answer", size=1, capacity=16)
        with jaxmon.request("answer"):
            float(step(weights, batch)[1])


def growing_queue() -> None:
    waiting: list[int] = []
    jaxmon.queue("prompts", waiting.__len__)
    while more():
        waiting.extend((1, 2))
        waiting.pop()
        with jaxmon.request("answer"):
            float(step(weights, batch)[1])
        time.sleep(0.05)


def cold_start() -> None:
    serve(large_models(3.0))
