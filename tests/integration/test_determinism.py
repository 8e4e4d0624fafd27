"""`jaxmon.check_determinism`, and keys used twice."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from tests.helpers import inside
from tests.helpers.agents import instrumented, samples, value


CHECKS = "jaxmon_determinism_checks_total"
DEVIATION = "jaxmon_output_deviation"


class Drifting:
    """Adds a little more each time it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return {"sum": x + self.calls - 1, "same": x}


def double(x: Any) -> Any:
    return x * 2


@pytest.mark.ground_truth
def test_a_deviation_is_measured_and_recorded() -> None:
    """The figures equal the drift that the function makes, here and on the page."""
    drifting = Drifting()
    name = f"{__name__}.Drifting"
    with instrumented() as agent:
        check = jaxmon.check_determinism(drifting, jnp.float32([1, 2]), runs=3)
        same = jaxmon.check_determinism(double, jnp.ones(3))
        [event] = inside.events(agent).since(kind="determinism")

        assert value(agent, CHECKS, function=name, outcome="failed") == 1
        assert value(agent, CHECKS, function=name, outcome="passed") == 0
        assert value(agent, DEVIATION, function=name) == pytest.approx(2 / 3)
        assert samples(agent)[f'{DEVIATION}{{function="{__name__}.double"}}'] == 0
    assert drifting.calls == 3
    assert not check.identical
    assert not check
    assert check.leaves == 2
    [deviation] = check.deviations
    assert (deviation.path, deviation.max_abs, deviation.differing) == ("['sum']", 2, 2)
    assert same
    assert same.runs == 2
    assert event.function == name
    assert "different outputs in 3 runs" in event.message
    assert event.details["deviations"][0]["max_abs"] == 2


@pytest.mark.parametrize("made", [jax.jit, lambda fun: fun], ids=["jitted", "plain"])
def test_it_works_without_an_agent(made: Callable[..., Any]) -> None:
    """The result is the same if it is not recorded."""
    check = jaxmon.check_determinism(made(double), 1.5)

    assert check
    assert check.function.endswith("double")
    assert check.leaves == 1


@pytest.mark.ground_truth
def test_donated_arguments_survive_the_check() -> None:
    """Each run gets copies of what it may destroy; the caller's arrays stay."""
    step = jax.jit(lambda state, x: (state + x, x.sum()), donate_argnums=0)
    state, x = jnp.ones(8), np.arange(8.0)

    assert jaxmon.check_determinism(step, state, x, runs=4)
    assert not state.is_deleted()
    assert float(state.sum()) == 8


def test_a_function_that_changes_its_numpy_argument_is_given_a_copy() -> None:
    """The second run sees what the first one saw."""

    def careless(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    given = np.zeros(2)

    assert jaxmon.check_determinism(careless, given)
    assert given.tolist() == [0, 0]


def test_what_the_function_raises_is_raised() -> None:
    """A check is no place where errors disappear."""
    with pytest.raises(ZeroDivisionError):
        jaxmon.check_determinism(lambda: 1 / 0)
    with pytest.raises(ValueError, match="use 2 or more"):
        jaxmon.check_determinism(jnp.sin, 1.0, runs=1)


@pytest.mark.ground_truth
def test_keys_used_twice_are_counted() -> None:
    """Where JAX checks keys, each refusal counts for the function that was called."""

    @jax.jit
    def twice(key):
        return jax.random.normal(key) + jax.random.uniform(key)

    refused = jax.debug_key_reuse(True)  # noqa: FBT003 - JAX's own
    with instrumented() as agent, refused:
        for _ in range(2):
            with pytest.raises(jax.errors.KeyReuseError):
                twice(jax.random.key(0))

        assert value(agent, "jaxmon_key_reuse_total") == 2
        [first, _] = inside.events(agent).since(kind="determinism")
        assert str(first.function).endswith("twice")
        assert first.message.startswith("a PRNG key was used twice")
