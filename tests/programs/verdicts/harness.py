"""What the programs have in common: a model, data, and when to end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp

import jaxmon


class Clock:
    """
    Ends programs after several seconds, and many times what compiling took.

    Attributes:
        seconds: how many.
        times: how many times.
    """

    def __init__(self) -> None:
        self.seconds = self.times = 0.0
        self._began = time.perf_counter()
        self._rounds: list[float] = []

    def more(self) -> bool:
        """Return whether to go on; to be called before each round."""
        ran = time.perf_counter() - self._began
        # The second call is after the first round, which compiles.
        if len(self._rounds) < 2:
            self._rounds.append(ran)
        return ran < max(self.seconds, self.times * self._rounds[-1])


clock = Clock()
more = clock.more

weights = jnp.ones((256, 256)) * 0.01
batch = jnp.ones((512, 256))


def loss_of(weights: Any, batch: Any) -> Any:
    """Return the loss of a small model."""
    return jnp.mean(jnp.tanh(batch @ weights) ** 2)


@jax.jit  # type: ignore[untyped-decorator]
def step(weights: Any, batch: Any) -> Any:
    """Return weights after a step, and the loss: about two milliseconds."""
    loss, slope = jax.value_and_grad(loss_of)(weights, batch)
    return weights - 0.1 * slope, loss


@jax.jit  # type: ignore[untyped-decorator]
def evaluate(weights: Any, batch: Any) -> Any:
    """Return a figure about a batch."""
    return jnp.mean(batch @ weights)


def large_models(seconds: float) -> list[Any]:
    """Return four models, each of which takes so many *seconds* to trace."""

    def model(weights: Any, batch: Any) -> Any:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            sum(range(10_000))  # as hundreds of layers would
        return jnp.mean(jnp.tanh(batch @ weights))

    found = []
    for number in range(4):
        one = FunctionType(model.__code__, model.__globals__, "", (), model.__closure__)
        one.__name__ = one.__qualname__ = f"model_{number}"
        found.append(jax.jit(one))
    return found


SIZES = (32, 64, 128)
"""Numbers of rows that clients of the models send."""


def serve(models: list[Any]) -> None:
    """Have clients ask four times a second, one model after the other."""

    def answer(number: int) -> None:
        model, size = models[number % 4], SIZES[number // 4 % 3]
        with jaxmon.request("answer"):
            float(model(weights, batch[:size]))

    arrive(answer, 0.25)


def arrive(answer: Callable[[int], None], pause: float) -> None:
    """Have a thread *answer* a client after each *pause*, in seconds."""
    work = queue.Queue[int]()

    def serve() -> None:
        while (number := work.get()) >= 0:
            answer(number)

    thread = threading.Thread(target=serve)
    thread.start()
    number = 0
    while more():
        work.put(number)
        number += 1
        time.sleep(pause)
    work.put(-1)
    thread.join()
