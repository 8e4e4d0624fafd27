"""
What a compile pays: our own code per compile, and whole compiles in turns.

The cost of the hooks is microseconds in tens or hundreds of milliseconds, below what
two compiles of one program differ by. So it is measured twice: exactly, by timing
our observers while JAX compiles, which has the goal; and as the difference of
compiles with and without jaxmon, which shows what the first would not see. The agent
has seen another compile before: the first in its life also starts threads.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from benchmarks.rows import Row, agent, paired, taken


GOAL_PERCENT = 1.0

Compile = Callable[[], object]


def measure() -> list[Row]:
    """Return rows for a small, a medium, a large and a deeply nested program."""
    rows = []
    for name, program, rounds in (
        ("x * 2 + 1", _small(), 40),
        ("4-layer MLP training step", _mlp(layers=4), 10),
        ("24-layer MLP training step", _mlp(layers=24), 4),
        ("240 nested jits", _nested(), 6),
    ):
        rows += _of_program(name, program, rounds)
    return rows


def _of_program(name: str, program: Compile, rounds: int) -> list[Row]:
    plain, observed, own, first = [], [], [], []
    _seconds(program)
    for _ in range(rounds):
        plain.append(_seconds(program))
        with agent():
            observed.append(_seconds(program))
        with stopwatch() as spent, agent():
            _seconds(_other)
            first.append(sum(spent))
            spent.clear()
            _seconds(program)
        own.append(sum(spent))
    whole, ours = statistics.median(plain), statistics.median(own)
    return [
        taken(f"compile, {name}", plain, "ms", scale=1e3),
        taken(
            "  our code in it",
            own,
            "%",
            scale=100 / whole,
            at_most=GOAL_PERCENT,
            note=f"{ours * 1e6:,.0f} microseconds in {len(spent)} observations; "
            f"{statistics.median(first) * 1e6:,.0f} in the first compile of a process",
        ),
        Row(
            "  difference with and without",
            paired(observed, plain) / whole * 100,
            "%",
            best=(min(observed) / min(plain) - 1) * 100,
        ),
    ]


def _seconds(program: Compile) -> float:
    import jax

    jax.clear_caches()
    started = perf_counter()
    program()
    return perf_counter() - started


@contextmanager
def stopwatch(*observers: tuple[Any, str]) -> Iterator[list[float]]:
    """
    Collect the seconds that each observation takes within the block.

    Args:
        observers: classes and names of methods; all of ours, if none are given.
    """
    from jaxmon.agent.compiles.misses import Misses
    from jaxmon.agent.compiles.part import Compiles
    from jaxmon.agent.jaxlink.listeners import Listeners

    spent: list[float] = []

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **options: Any) -> Any:
            started = perf_counter()
            try:
                return method(*args, **options)
            finally:
                spent.append(perf_counter() - started)

        return call

    def made(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: timed(method(*given))

    observers = observers or (
        (Compiles, "on_compile"),
        (Listeners, "_hears"),
        (Misses, "on_miss"),
        (Misses, "on_done"),
    )
    before = [getattr(owner, name) for owner, name in observers]
    for (owner, name), method in zip(observers, before, strict=True):
        hears = name == "_hears"  # it makes what observes
        setattr(owner, name, made(method) if hears else timed(method))
    try:
        yield spent
    finally:
        for (owner, name), method in zip(observers, before, strict=True):
            setattr(owner, name, method)


def _other() -> object:
    import jax

    return jax.jit(lambda x: x - 3)(1.0)


def _small() -> Compile:
    import jax

    argument = jax.numpy.ones(8)
    return lambda: jax.jit(lambda x: x * 2 + 1)(argument)


def mlp(layers: int) -> tuple[Callable[..., Any], list[Any], Any]:
    """Return a training step of so many *layers*, weights and a batch."""
    import jax
    import jax.numpy as jnp

    def loss(weights: list[Any], batch: Any) -> Any:
        for weight in weights:
            batch = jax.nn.relu(batch @ weight)
        return jnp.mean(batch**2)

    def step(weights: list[Any], batch: Any) -> Any:
        slopes = jax.grad(loss)(weights, batch)
        return [w - 0.1 * s for w, s in zip(weights, slopes, strict=True)]

    return step, [jnp.ones((64, 64)) for _ in range(layers)], jnp.ones((32, 64))


def _mlp(*, layers: int) -> Compile:
    import jax

    step, weights, batch = mlp(layers)
    # A function of its own for each compile, as a program has at its start.
    return lambda: jax.jit(functools.partial(step))(weights, batch)


def _nested() -> Compile:
    import jax

    argument = jax.numpy.ones(8)

    # 120 jits of ours; the multiplication in each is one of jax.numpy's.
    def program() -> object:
        def layer(depth: int) -> Callable[[Any], Any]:
            def fun(x: Any) -> Any:
                if depth == 0:
                    return x + 1
                return jax.jit(layer(depth - 1))(x) * 2

            return fun

        def wide(x: Any) -> Any:
            for _ in range(40):
                x = jax.jit(layer(2))(x)
            return x

        return jax.jit(wide)(argument)

    return program
