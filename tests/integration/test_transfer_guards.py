"""
Guards of the program against transfers to the host: they are meant for its own lines.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxmon
from jaxmon.agent.context import Sample
from tests.helpers import inside
from tests.helpers.agents import instrumented, value
from tests.helpers.processes import until


CHECKS = "jaxmon_determinism_checks_total"

# On a CPU an array is looked at where it is, unless its numbers are packed.
PACKED = getattr(jnp, "float4_e2m1fn", jnp.int4)  # which JAX 0.4 lacks


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    """Forbid implicit transfers to the host, on all threads."""
    name = "jax_transfer_guard_device_to_host"
    before = jax.config.jax_transfer_guard_device_to_host
    jax.config.update(name, "disallow")
    yield
    jax.config.update(name, before)


def same(x: Any) -> Any:
    return x


def sample(agent: Any, x: Any) -> None:
    """Show a call with *x* to those who look at sampled calls."""
    jitted = jax.jit(same)
    outputs = jitted(x)
    function = inside.table(agent).of(same)
    for observe in inside.observers(agent).sample:
        observe(Sample(function, jitted, (x,), {}, outputs))


def test_the_guard_is_one() -> None:
    """What is tested here would fail the program."""
    with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed"):
        jnp.ones(3, PACKED).__array__()


def test_a_call_is_repeated() -> None:
    """The repetition's outputs are brought to the host, beside the program."""
    with instrumented(shadow_interval=0.1, sample_rate=0.001) as agent:
        sample(agent, jnp.ones(3, PACKED))
        until(lambda: value(agent, CHECKS, outcome="passed") == 1, "the repetition")


@pytest.mark.skipif(PACKED is jnp.int4, reason="JAX 0.4 packs no floats")
def test_outputs_are_looked_at_for_numbers_that_are_not_finite() -> None:
    """A figure of 0 would say that all were."""
    with instrumented(sample_rate=0.001) as agent:
        sample(agent, jnp.ones(3, PACKED))
        numerics = inside.numerics(agent)
        [found] = until(
            lambda: [f for f in numerics.snapshot().values() if f.values],
            "the outputs to be read",
        )

        assert found.nonfinite == 0


def test_a_check_that_is_asked_for_compares_on_the_host() -> None:
    """Its callers know that it transfers."""
    assert jaxmon.check_determinism(jax.jit(same), jnp.ones(3, PACKED))
