"""Sampling by hand: when a test arms, and of programs that a test can time as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxmon.agent import Agent
from jaxmon.agent.sampling.part import Sampling
from tests.instrumented import samples
from tests.support import until


# Small enough that one thread multiplies: the machine's other load matters less.
SIZE = 32

# The timer of such an agent does not come round within a test: the test arms.
BY_HAND = {"sample_rate": 0.001, "transfers": False}


def chain(name: str, length: int, **options: Any) -> Any:
    """Return a jitted chain of *length* matrix products, called *name*."""

    def work(x: Any) -> Any:
        return jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(y @ y) / SIZE, x)

    work.__qualname__ = work.__name__ = name
    return jax.jit(work, **options)


def operand() -> Any:
    return jnp.ones((SIZE, SIZE))


def timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - started


def arm(sampling: Sampling) -> None:
    """Do what the timer does, whatever was spent."""
    sampling._saved, sampling._spent_before = 10.0, sampling.spent
    sampling.arm()


def idle(sampling: Sampling) -> None:
    """Wait until nothing is being watched."""
    watcher = sampling._watcher
    until(
        lambda: not watcher._held,
        "the watcher to see the end of everything",
    )


def calibrated(seconds: float) -> int:
    """Return the length of a chain that takes about *seconds*."""
    length, x = 400, operand()
    probe = chain("probe", length)
    timed(lambda: probe(x))
    # Other load makes some longer, and none shorter.
    shortest = min(timed(lambda: probe(x)) for _ in range(9))
    return max(int(seconds * length / shortest), 1)


def figures(sampling: Sampling, name: str) -> dict[str, Any]:
    """Return what is known of the function called *name*, in whichever module."""
    found = sampling.snapshot().items()
    return next((own for label, own in found if label.endswith(f".{name}")), {})


def execution_times(sampling: Sampling, name: str) -> list[float]:
    """Return the last execution times of the function called *name*, oldest first."""
    return next(
        (
            list(found.executions._values)
            for function, found in sampling._figures.items()
            if function.name.endswith(f".{name}")
        ),
        [],
    )


def executions(agent: Agent, name: str) -> float:
    """Return how many execution times of *name* are exported."""
    return sum(
        number
        for series, number in samples(agent).items()
        if series.startswith("jaxmon_execution_seconds_count{")
        and f'.{name}"' in series
    )
