"""Errors of jitted calls: each has its kind, and propagates as without jaxmon."""

import gc
import logging
import sys
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from tests.helpers import inside
from tests.helpers.agents import FULL, fail, instrumented, kinds, value


pytestmark = pytest.mark.ground_truth

RuntimeError_ = jax.errors.JaxRuntimeError


def as_float(x: Any) -> float:
    return float(x)


def as_bool(x: Any) -> Any:
    return 1 if x else 2


def as_array(x: Any) -> Any:
    return np.asarray(x)


def stops(_: Any) -> Any:
    raise StopIteration


def raises(_: Any) -> Any:
    error = ValueError("the user's")
    raise error


def makes_much() -> Any:
    return jnp.zeros(10**14)


def returns_text(_: Any) -> Any:
    return "text"


def takes_log(x: Any) -> Any:
    return jnp.log(x)


def uses_twice(key: Any) -> Any:
    return jax.random.normal(key) + jax.random.uniform(key)


def identity(x: Any) -> Any:
    return x


def calls_back(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct((), np.float32)
    return jax.pure_callback(refuse, shape, x)


def refuse(_: Any) -> Any:
    error = ValueError("in the callback")
    raise error


@pytest.mark.parametrize(
    ("function", "args", "kind"),
    [
        (as_float, (1.0,), "trace_error"),
        (as_bool, (1.0,), "trace_error"),
        (as_array, (1.0,), "trace_error"),
        (stops, (1.0,), "trace_error"),
        (raises, (1.0,), "trace_error"),
        (returns_text, (1.0,), "trace_error"),
        (makes_much, (), "oom"),
        (calls_back, (1.0,), "internal"),
    ],
)
def test_errors_of_a_call_have_their_kind(agent, function, args, kind):
    """Provoked for real, on each supported JAX, with a line of the user's."""
    fail(lambda: jax.block_until_ready(jax.jit(function)(*args)))

    assert kinds(agent) == {(function.__name__, kind): 1}
    (event,) = inside.events(agent).since(kind="error")
    assert event.details["error_kind"] == kind
    assert "test_errors.py:" in str(event.details["where"])


@pytest.mark.parametrize("function", [as_float, raises, makes_much])
def test_an_error_keeps_nothing_alive(agent, function):
    """What the frames hold that it passed can be collected with it."""

    class Held:
        pass

    def program() -> weakref.ref[Held]:
        held = Held()
        args = () if function is makes_much else (1.0,)
        inside.see_error(
            agent, fail(lambda: (held, jax.block_until_ready(jax.jit(function)(*args))))
        )
        return weakref.ref(held)

    found = program()
    gc.collect()

    assert found() is None
    assert inside.errors(agent)._seen_weakly == {}
    assert sum(kinds(agent).values()) == 1


def test_the_check_for_nan_has_its_kind(agent: Agent) -> None:
    """The check is counted on a miss and on a cached call, by function or operation."""
    jitted = jax.jit(takes_log)
    jitted(1.0)
    with jax.debug_nans(new_val=True):
        fail(jax.jit(lambda x: jnp.log(x) + 1), -1.0)
        error = fail(jitted, -1.0)
    inside.see_error(agent, error)

    first, second = kinds(agent)
    assert set(kinds(agent).values()) == {1}
    assert {first, second} - {("takes_log", "nan"), ("log", "nan")} == {
        ("<lambda>", "nan")
    }


def test_the_check_for_used_keys_has_its_kind(agent: Agent) -> None:
    """It is an error about types to JAX; here it stands for itself."""
    with jax.debug_key_reuse(new_val=True):
        fail(jax.jit(uses_twice), jax.random.key(0))

    assert {kind for _, kind in kinds(agent)} == {"key_reuse"}
    assert sum(kinds(agent).values()) == 1


def test_an_argument_that_jax_refuses(agent: Agent) -> None:
    """Neither traced nor sent: the caller's fault."""
    with jax.transfer_guard("disallow"):
        fail(jax.jit(identity), np.ones(3))

    assert kinds(agent) == {("identity", "invalid_argument"): 1}


def test_an_error_under_a_transformation_is_that_of_the_function(agent: Agent) -> None:
    """The outermost jitted function on the way is the one that failed."""
    fail(jax.grad(jax.jit(raises)), 1.0)
    fail(jax.vmap(jax.jit(as_float)), np.ones(3))

    expected = {("raises", "trace_error"): 1, ("as_float", "trace_error"): 1}
    assert kinds(agent) == expected


def test_an_interrupt_is_no_error(agent: Agent) -> None:
    """Ctrl-C and the end of a program are what the user wants."""

    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jax.jit(interrupted)(1.0)
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    sys.excepthook(SystemExit, SystemExit(1), None)

    assert kinds(agent) == {}


def test_the_users_own_messages_can_be_kept_out(tmp_path: Path) -> None:
    """Without values, an event contains only the class of the user's exception."""
    with instrumented(report_dir=str(tmp_path), event_values=False) as agent:
        fail(jax.jit(raises), 1.0)
        fail(jax.jit(makes_much))
        own, jaxs = inside.events(agent).since(kind="error")

    assert own.message == "ValueError"
    assert "Out of memory" in jaxs.message


# --- the exception itself ----------------------------------------------------------


def test_an_error_being_made_is_as_always(agent: Agent) -> None:
    """Arguments, keywords and complaints about them are those of the class."""
    error = RuntimeError_(FULL)

    assert str(error) == FULL
    assert isinstance(error, RuntimeError)
    with pytest.raises(TypeError) as caught:
        RuntimeError_(FULL, nonsense=1)
    frames = [entry.path for entry in caught.traceback]
    assert all("jaxmon" not in Path(path).parts[-2:] for path in frames)
    assert kinds(agent) == {("unknown", "oom"): 1} or kinds(agent) == {
        ("unknown", "oom"): 2
    }


def test_the_class_is_as_found_afterwards(tmp_path: Path) -> None:
    """Its constructor is its own again, or inherited again."""
    before = dict(RuntimeError_.__dict__)
    filters = list(logging.getLogger("asyncio").filters)

    with instrumented(report_dir=str(tmp_path)):
        assert dict(RuntimeError_.__dict__) != before
        assert logging.getLogger("asyncio").filters != filters

    assert dict(RuntimeError_.__dict__) == before
    assert logging.getLogger("asyncio").filters == filters


def test_an_error_counts_when_there_is_no_memory_to_place_it(agent, monkeypatch):
    """Memory that is not there is no failure of ours, and no reason not to count."""

    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(inside.errors(agent)._sites, "of", exhausted)
    monkeypatch.setattr(inside.events(agent), "add", exhausted)
    inside.observers(agent).error.insert(0, exhausted)
    fail(jax.jit(raises), 1.0)

    assert kinds(agent) == {("raises", "trace_error"): 1}
    assert value(agent, "jaxmon_internal_errors_total") == 0
