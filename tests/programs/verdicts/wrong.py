"""
Programs that compute something wrong, or fail, by one mistake each.

The lines to blame end with ``# here``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon
from tests.programs.verdicts.harness import arrive, batch, more, step, weights


# --- Values ----------------------------------------------------------------------


@jax.jit  # type: ignore[untyped-decorator]
def large_step(weights: Any, batch: Any) -> Any:
    loss, slope = jax.value_and_grad(lambda w: jnp.sum((batch @ w) ** 2))(weights)
    return weights - 1e3 * slope, loss


def becomes_nan() -> None:
    state = weights
    for _ in jaxmon.steps(rounds()):
        state, _ = large_step(state, batch)
        time.sleep(0.002)


def logs_nan() -> None:
    state, number = weights, 0
    while more():
        number += 1
        state, loss = step(state, batch)
        jaxmon.log_values({"loss": loss if number < 100 else loss * jnp.nan})


def diverges() -> None:
    state, number = weights, 0
    while more():
        number += 1
        state, loss = step(state, batch)
        turn = 100
        far = 10.0 / number if number < turn else 0.1 * 1.05 ** min(number - turn, 300)
        jaxmon.log_values({"loss": loss * 0 + far}, step=number)


# --- Tracing ---------------------------------------------------------------------


@jax.jit  # type: ignore[untyped-decorator]
def with_noise(batch: Any) -> Any:
    noise = np.random.normal(size=(256,)).astype(np.float32)  # noqa: NPY002  # here
    return batch @ weights + noise


def frozen_noise() -> None:
    while more():
        with_noise(batch)


@jax.jit  # type: ignore[untyped-decorator]
def with_time(batch: Any) -> Any:
    return batch.sum() * time.time()  # here


def frozen_time() -> None:
    while more():
        with_time(batch)


def same_key() -> None:
    @jax.jit  # type: ignore[untyped-decorator]
    def dropout(weights: Any, batch: Any, key: Any) -> Any:
        kept = jax.random.bernoulli(key, 0.5, batch.shape)
        return step(weights, batch * kept)

    key = jax.random.key(0)
    state = weights
    while more():
        state, _ = dropout(state, batch, key)
        state.block_until_ready()


@jax.jit  # type: ignore[untyped-decorator]
def without_bias(batch: Any) -> Any:
    masked = batch[0]
    masked.at[0].set(0.0)  # here
    return masked.sum()


def dropped_update() -> None:
    while more():
        without_bias(batch)


history: list[Any] = []


@jax.jit  # type: ignore[untyped-decorator]
def with_history(batch: Any) -> Any:
    loss = batch.mean()
    history.append(loss)  # here
    return loss


def leaked_value() -> None:
    while more():
        with_history(batch)


@jax.jit  # type: ignore[untyped-decorator]
def with_print(batch: Any) -> Any:
    loss = batch.mean()
    print("loss", loss)  # here
    return loss


def printed_value() -> None:
    while more():
        with_print(batch)


# --- Errors ----------------------------------------------------------------------


def swallowed() -> None:
    state = weights
    for number in range(10**9):
        if not more():
            break
        state, _ = step(state, batch)
        if number < 500:
            with suppress(Exception):
                step(state, batch[:, :255])


@partial(jax.jit, donate_argnums=0)
def updated(weights: Any, batch: Any) -> Any:
    return weights - 0.1 * jnp.mean(batch), jnp.mean(weights)


def donated_and_read() -> None:
    while more():
        fresh = weights + 0
        updated(fresh, batch)
        with suppress(RuntimeError):
            float(fresh[0, 0])  # here


@partial(jax.jit, donate_argnums=0)
def shortened(weights: Any) -> Any:
    return weights[:1].sum()


def donated_in_vain() -> None:
    shortened(weights + 0)  # here
    while more():
        step(weights, batch)[1].block_until_ready()


def failing_requests() -> None:
    def answer(number: int) -> None:
        with suppress(ValueError), jaxmon.request("answer"):
            float(step(weights, batch)[1])
            if number % 3 == 0:
                int("no such prompt")  # here

    arrive(answer, 0.02)


def hanging_request() -> None:
    busy = threading.Lock()

    def answer(number: int) -> None:
        with jaxmon.request("answer"):
            float(step(weights, batch)[1])
            if number > 200:
                busy.acquire()  # here

    with ThreadPoolExecutor(2) as pool:
        for number in rounds():
            pool.submit(answer, number)
            time.sleep(0.005)


# Seconds after which a program does not get on: only then is that unusual.
_RHYTHM = 8.0


# --- Progress ------------------------------------------------------------------


def stuck_loader() -> None:
    def load() -> Iterator[Any]:
        for _ in range(500):
            time.sleep(0.005)
            yield batch
        threading.Event().wait()  # here

    state = weights
    for one in jaxmon.steps(load()):
        state, loss = step(state, one)
        float(loss)


def deadlock() -> None:
    model, disk = threading.Lock(), threading.Lock()

    def save() -> None:
        while more():
            with disk:
                time.sleep(0.05)
                with model:
                    float(state[0, 0])

    state, saves = weights, False
    began = time.perf_counter()
    while more():
        state, _ = step(state, batch)
        state.block_until_ready()
        if not saves and time.perf_counter() - began > _RHYTHM:
            saves = True
            threading.Thread(target=save, daemon=True).start()
        with model:
            if saves:
                time.sleep(0.02)
                with disk:  # here
                    state += 0


def rounds() -> Iterator[int]:
    """Count while there is more to do."""
    number = 0
    while more():
        yield number
        number += 1
