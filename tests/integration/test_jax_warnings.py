"""Warnings of JAX: each counted, and each issued as without an agent."""

import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxmon.agent import Agent
from jaxmon.facts.process import read
from jaxmon.symptoms.findings import find
from tests.helpers import inside
from tests.helpers.agents import instrumented, value


pytestmark = pytest.mark.ground_truth

WARNINGS = "jaxmon_jax_warnings_total"


def shrink(x: Any) -> Any:
    return x[:2].sum()


def donate_in_vain() -> None:
    jax.jit(shrink, donate_argnums=0)(jnp.ones(5))


def ask_for_float64() -> None:
    jnp.zeros(3, dtype=jnp.float64)


def update_with_float() -> None:
    jnp.zeros(3, dtype=jnp.int32).at[0].set(2.5)


CASES: dict[str, tuple[Callable[[], None], list[str]]] = {
    "donation": (donate_in_vain, ["warning_donation"]),
    "dtype_unavailable": (ask_for_float64, ["warning_dtype_unavailable"]),
    "dtype_cast": (update_with_float, []),
}


def issued(program: Callable[[], None]) -> list[tuple[str, str, int]]:
    """Return text, file and line of the warnings that *program* issues."""
    jax.clear_caches()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        program()
    return [(str(one.message), one.filename, one.lineno) for one in found]


@pytest.mark.parametrize("kind", CASES)
def test_a_warning_is_counted_and_issued_as_always(kind: str) -> None:
    """With its line, and its function if it is compiled; hidden ones count as well."""
    program, topics = CASES[kind]
    before = issued(program)
    with instrumented() as agent:
        during = issued(program)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            jax.clear_caches()
            program()
        counted = value(agent, WARNINGS, kind=kind)
        overview = inside.overview(agent)

    assert before == during
    assert counted == 2
    (found,) = overview["warnings"]
    assert "test_jax_warnings.py:" in found["where"]
    assert found["function"].endswith("shrink") == (kind == "donation")
    found = [one.topic for one in find(read(overview)) if one.topic != "short"]
    assert found == topics
    assert before == issued(program)


def test_a_warning_that_is_an_error_is_raised_from_jax(agent: Agent) -> None:
    """It is counted, and its traceback has no line of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="float64") as caught:
            ask_for_float64()

    files = [one.filename for one in traceback.extract_tb(caught.value.__traceback__)]
    assert not [one for one in files if "/jaxmon/" in one]
    assert value(agent, WARNINGS, kind="dtype_unavailable") == 1


def test_what_jax_logs_is_counted(agent, caplog):
    """The record is handled as it would be; information is no warning."""
    logger = logging.getLogger("jax._src.xla_bridge")
    logger.warning("A GPU may be present. Falling back to %s.", "cpu")
    logger.info("all is well")

    assert value(agent, WARNINGS, kind="backend") == 1
    assert value(agent, WARNINGS) == 1
    assert "Falling back to cpu." in caplog.text
    (event,) = inside.events(agent).since(kind="warning")
    assert event.message == "A GPU may be present. Falling back to cpu."


def test_everything_is_as_before_afterwards() -> None:
    """Modules have their own ``warnings`` again, loggers their filters."""
    logger = logging.getLogger("jax._src.xla_bridge")
    module = sys.modules["jax._src.dtypes"]
    before = list(logger.filters)
    with instrumented():
        assert vars(module)["warnings"] is not warnings
        assert logger.filters != before

    assert vars(module)["warnings"] is warnings
    assert logger.filters == before


def test_a_healthy_program_has_no_warnings(agent: Agent) -> None:
    """Donating a state that is returned, and the default dtypes."""
    step = jax.jit(lambda state: (state * 0.9, jnp.sum(state)), donate_argnums=0)
    state = jnp.ones(8)
    for _ in range(3):
        state, _ = step(state)

    assert value(agent, WARNINGS) == 0
