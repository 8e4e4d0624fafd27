"""Errors that the program catches itself: what can be seen is counted exactly."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import xla_client

import jaxmon
from jaxmon.agent import Agent
from jaxmon.facts.process import read
from jaxmon.symptoms.findings import find
from tests.helpers import inside
from tests.helpers.agents import fail, kinds, value
from tests.helpers.processes import some


pytestmark = pytest.mark.ground_truth

COUNT = 500


@pytest.fixture
def donated() -> Any:
    """Return a scalar that a jitted function has taken."""
    array = jnp.float32(1) + 1
    jax.jit(lambda x: x + 1, donate_argnums=0)(array).block_until_ready()
    return array


READS: dict[str, Callable[[Any], object]] = {
    "float": float,
    "asarray": np.asarray,
    "item": lambda array: array.item(),
    "repr": repr,
    "index": lambda array: array[()],
    "device_get": jax.device_get,
    "block_until_ready": lambda array: array.block_until_ready(),
    "jax.block_until_ready": lambda array: jax.block_until_ready([array, array]),
}


@pytest.mark.parametrize("how", some(READS, 2))
def test_each_read_of_a_donated_array_is_counted(agent, donated, how):
    """Whatever reads it, with the line, although the program catches the error."""
    for _ in range(COUNT):
        fail(READS[how], donated)

    ((_, kind),) = kinds(agent)
    assert (kind, sum(kinds(agent).values())) == ("invalid_argument", COUNT)
    event = inside.events(agent).since(kind="error")[-1]
    assert "deleted" in event.message
    found = find(read(inside.overview(agent), {"events": [event._asdict()]}))
    (finding,) = (one for one in found if one.topic != "short")
    assert f"{COUNT} times" in finding.verdict
    late = sys.version_info < (3, 12) and jax.__version_info__ < (0, 10)
    if "block" not in how or not late:
        assert "tests/" in str(event.details["where"])


def test_a_backend_that_jax_tries_is_no_error(agent: Agent) -> None:
    """JAX looks for the libraries of accelerators, and goes on without them."""
    if sys.version_info < (3, 12) and jax.__version_info__ < (0, 10):
        pytest.skip("the error is created where it is caught: here, not in JAX")
    fail(xla_client.load_pjrt_plugin_dynamically, "absent", "/absent/plugin.so")

    assert kinds(agent) == {}


@pytest.mark.parametrize(
    "use",
    [type, float, lambda y: y.block_until_ready()],
    ids=["call", "float", "block_until_ready"],
)
def test_each_callback_that_fails_is_counted(agent, use):
    """On a miss and in cached calls, wherever the error surfaces."""
    fails = [False]

    def refuse(x: Any) -> Any:
        if fails[0]:
            msg = "no"
            raise ValueError(msg)
        return x

    step = jax.jit(
        lambda x: jax.pure_callback(refuse, jax.ShapeDtypeStruct((), np.float32), x)
    )
    x = jnp.float32(1)
    use(step(x)), use(step(x))
    fails[0] = True
    for _ in range(50):
        error = fail(lambda: jax.block_until_ready((use(y := step(x)), y)))

    assert {kind for _, kind in kinds(agent)} == {"internal"}
    assert value(agent, "jaxmon_errors_total") == 50
    inside.see_error(agent, error)
    assert value(agent, "jaxmon_errors_total") == 50
    fails[0] = False
    float(step(x))
    fails[0] = True
    inside.see_error(agent, fail(lambda: float(jax.jit(lambda x: step(x) + 1)(x))))
    assert value(agent, "jaxmon_errors_total") == 51


def test_an_error_that_surfaces_is_not_counted_again(agent, donated):
    """By a request it leaves, at the top of a thread, and at that of the process."""

    def program() -> None:
        with jaxmon.request("predict"):
            float(donated)

    error = fail(program)
    inside.see_error(agent, error)
    inside.see_error(agent, RuntimeError("its cause").with_traceback(None))
    thread = threading.Thread(target=lambda: fail(program))
    thread.start()
    thread.join(60)

    assert kinds(agent) == {("unknown", "invalid_argument"): 2}


def test_reads_of_arrays_that_exist_count_nothing(agent: Agent) -> None:
    """Nor does a check whether one is deleted, or what the agent reads itself."""
    array = jnp.float32(2) + 1
    for name in ("float", "asarray", "item", "repr", "index", "device_get"):
        READS[name](array)
    array.delete()
    assert array.is_deleted()

    assert kinds(agent) == {}


def test_answers_of_the_runtime_are_no_errors(agent: Agent) -> None:
    """Clients of the coordination service ask for keys that do not exist yet."""
    for status in ("NOT_FOUND", "ALREADY_EXISTS", "DEADLINE_EXCEEDED"):
        fail(_raise, jax.errors.JaxRuntimeError(f"{status}: key"))
    assert kinds(agent) == {}
    fail(_raise, jax.errors.JaxRuntimeError("INTERNAL: out of luck"))

    assert kinds(agent) == {("unknown", "internal"): 1}


def _raise(error: BaseException) -> None:
    raise error
