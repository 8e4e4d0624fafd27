"""
Non-finite outputs and promotions to float64, against outputs looked at by the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from tests import inside
from tests.instrumented import instrumented, samples, value
from tests.support import until


pytestmark = pytest.mark.ground_truth


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Return an agent that reads outputs of the calls that the test samples."""
    with instrumented(sample_rate=0.001, nonfinite=True) as running:
        yield running


@pytest.fixture
def x64() -> Iterator[None]:
    """Let JAX compute in float64."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)  # noqa: FBT003 - JAX's signature
    yield
    jax.config.update("jax_enable_x64", before)


def name_of(function: Any) -> str:
    return f"{__name__}.{function.__qualname__}"


def spoil(x: Any) -> Any:
    return {"log": jnp.log(x), "half": (x / 0).astype(jnp.bfloat16), "whole": x > 0}


def test_nonfinite_values_are_counted(agent: Agent) -> None:
    """
    Every floating-point output of a sampled call is counted, whatever its width; and
    neither a call nor a compile of the program's comes from that.
    """
    step, x = jax.jit(spoil), jnp.array([1.0, -1.0, 0.0, 2.0])
    step(x), step(x)
    sampling = inside.sampling(agent)
    sampling.arm()
    outputs = step(x)
    truth = sum(
        int((~np.isfinite(np.asarray(outputs[name], np.float32))).sum())
        for name in ("log", "half")
    )
    name = name_of(spoil)
    before = value(agent, "jaxmon_compiles_total")
    until(lambda: inside.numerics(agent).snapshot().get(name), "outputs to be read")

    assert truth == 6
    assert samples(agent)[f'jaxmon_nonfinite_total{{name="{name}"}}'] == truth
    assert value(agent, "jaxmon_jit_calls_total", function=name) == 3
    assert value(agent, "jaxmon_compiles_total") == before
    (event,) = inside.events(agent).since(0, "numerics")
    assert event.message == "6 of 8 values in a call's outputs are non-finite"


def widen(x: Any) -> Any:
    return x * np.float64(2)


def widen_within(x: Any) -> Any:
    return (x.astype(jnp.float64) / 3).astype(jnp.float32)


def keep(x: Any) -> Any:
    return jnp.sin(x) * 2.5 + x**x


@pytest.mark.usefixtures("x64")
def test_promotions_to_float64_are_counted(agent: Agent) -> None:
    """
    A program with float64 in it and in no argument counts, also where no output shows
    it; one that was given float64, or has none, does not.
    """
    x = jnp.ones(3, jnp.float32)
    for function in (widen, widen_within, keep):
        jax.jit(function)(x)
    jax.jit(keep)(x.astype(jnp.float64))
    inside.programs(agent).finish(30)

    counted = {
        function: value(
            agent, "jaxmon_float64_promotions_total", function=name_of(function)
        )
        for function in (widen, widen_within, keep)
    }
    assert counted == {widen: 1, widen_within: 1, keep: 0}
