"""`jaxmon.check_gradients`: JAX's checker with an outcome."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxmon
from tests.helpers import inside
from tests.helpers.agents import instrumented, value


CHECKS = "jaxmon_gradient_checks_total"


@jax.custom_jvp
def wrong(x):
    return x * x


@wrong.defjvp
def _wrong_jvp(primals, tangents):
    return wrong(*primals), 3 * primals[0] * tangents[0]


@pytest.mark.ground_truth
def test_right_and_wrong_gradients_are_told_apart() -> None:
    """The outcome is the object's truth, and is recorded; JAX's words explain it."""
    with instrumented() as agent:
        right = jaxmon.check_gradients(jnp.sin, (jnp.float32(1.0),), order=2)
        failed = jaxmon.check_gradients(wrong, (jnp.float32(1.5),))
        name = f"{__name__}.wrong"
        [event] = inside.events(agent).since(kind="determinism")

        assert value(agent, CHECKS, outcome="passed") == 1
        assert value(agent, CHECKS, outcome="failed", function=name) == 1
        assert value(agent, CHECKS, outcome="passed", function=name) == 0
    assert right.passed
    assert right
    assert right.explanation == ""
    assert right.hints == ()
    assert not failed
    assert failed.modes == ("fwd", "rev")
    assert "JVP" in failed.explanation
    assert any("jax_enable_x64" in hint for hint in failed.hints)
    assert failed.explanation in str(failed)
    assert event.function == name
    assert event.message.startswith("wrong gradients: ")


def test_it_works_without_an_agent_and_passes_options_on() -> None:
    """A tolerance that is wide enough lets the wrong gradient pass."""
    assert not jaxmon.check_gradients(wrong, (1.0,), modes=["rev"])
    assert jaxmon.check_gradients(wrong, (1.0,), rtol=10.0, atol=10.0)


def test_what_the_function_raises_is_raised() -> None:
    """An assertion in the function says nothing about its gradients."""

    def asserts(x: Any) -> Any:
        raise AssertionError

    with pytest.raises(AssertionError):
        jaxmon.check_gradients(asserts, (1.0,))
    with pytest.raises(TypeError):
        jaxmon.check_gradients(lambda x: x + "a", (1.0,))
