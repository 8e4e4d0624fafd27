"""What the arguments of a recompile are called: as they are where they are passed."""

import functools
import inspect
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from jaxmon.agent import Agent
from tests.helpers import inside
from tests.helpers.agents import instrumented
from tests.helpers.processes import require_module, some


pytestmark = pytest.mark.ground_truth

ONE, FOUR = np.ones(1, np.float32), np.ones(4, np.float32)


def differences(agent: Agent) -> list[str]:
    """Return what is reported about the only recompile."""
    (event,) = inside.events(agent).since(kind="recompile")
    return [one["text"] for one in event.details["differences"]]


def loss(weights: Any, batch: Any, scale: Any = 1) -> Any:
    return (weights * batch * scale).sum()


def other_parameters() -> Callable[..., Any]:
    @functools.wraps(loss)
    def wrapper(key: Any, weights: Any, batch: Any) -> Any:
        return loss(weights, batch) + key.sum()

    return wrapper


def fewer_parameters() -> Callable[..., Any]:
    @functools.wraps(loss)
    def wrapper(batch: Any) -> Any:
        return loss(2, batch)

    return wrapper


def passing_on() -> Callable[..., Any]:
    @functools.wraps(loss)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return loss(*args, **kwargs)

    return wrapper


def adding_one() -> Callable[..., Any]:
    @functools.wraps(loss)
    def wrapper(*args: Any) -> Any:
        return loss(2, *args)

    return wrapper


def lying() -> Callable[..., Any]:
    def function(batch: Any, weights: Any) -> Any:
        return loss(weights, batch)

    parameters = inspect.signature(loss).parameters.values()
    function.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    return function


def positional_only(weights: Any, /, *rest: Any, scale: Any = 1) -> Any:
    return loss(weights, rest[0], scale)


class Model:
    def step(self, weights: Any, batch: Any) -> Any:
        return loss(weights, batch)

    def __call__(self, weights: Any, batch: Any) -> Any:
        return loss(weights, batch)

    @functools.wraps(step)
    def passed(self, *args: Any) -> Any:
        return self.step(*args)


class Wrapping:
    """As `flax.nnx.jit` wraps what it is given."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self.inner = inner
        functools.update_wrapper(self, inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


# What is jitted, how many arguments come before and after the one whose shape changes,
# and what that one is called.
CASES: dict[str, tuple[Callable[[], Any], int, int, str]] = {
    "function": (lambda: loss, 1, 0, "batch"),
    "other parameters": (other_parameters, 2, 0, "batch"),
    "the first of others": (other_parameters, 0, 2, "key"),
    "fewer parameters": (fewer_parameters, 0, 0, "batch"),
    "passing on": (passing_on, 1, 0, "batch"),
    "adding one": (adding_one, 0, 0, "args[0]"),
    "a signature that lies": (lying, 0, 1, "batch"),
    "partial": (lambda: partial(loss, 2), 0, 0, "batch"),
    "partial of others": (lambda: partial(other_parameters(), ONE), 1, 0, "batch"),
    "partial passing on": (lambda: partial(passing_on(), ONE), 0, 1, "batch"),
    "partial by name": (lambda: partial(loss, scale=2), 1, 0, "batch"),
    "method": (lambda: Model().step, 1, 0, "batch"),
    "method passing on": (lambda: Model().passed, 1, 0, "batch"),
    "object": (Model, 1, 0, "batch"),
    "object passing on": (lambda: Wrapping(loss), 1, 0, "batch"),
    "positional only": (lambda: positional_only, 0, 1, "weights"),
    "the rest": (lambda: positional_only, 1, 0, "rest[0]"),
    "gradient": (lambda: jax.grad(loss), 0, 1, "weights"),
    "vmap of a partial": (lambda: jax.vmap(partial(loss, 2)), 0, 0, "batch"),
    "checkpoint": (lambda: jax.checkpoint(loss), 1, 0, "batch"),
    "jitted": (lambda: jax.jit(loss), 1, 0, "batch"),
    "builtin": (lambda: operator.neg, 0, 0, "a"),
}


@pytest.mark.parametrize("name", some(CASES, 3))
def test_the_argument_that_changed_is_named(name: str) -> None:
    """As the callable that is jitted calls it, whatever it says that it wraps."""
    make, before, after, called = CASES[name]
    jax.clear_caches()
    with instrumented() as agent:
        jitted = jax.jit(make())
        for changed in (ONE, FOUR):
            jitted(*[ONE] * before, changed, *[ONE] * after)
        (text,) = differences(agent)

    assert text.startswith(f"argument {called}: ")


def other_static() -> Callable[..., Any]:
    def inner(x: Any, n: int) -> Any:
        return x * n

    @functools.wraps(inner)
    def wrapper(key: Any, mode: str, x: Any) -> Any:
        return inner(x, len(mode)) + key

    return wrapper


@pytest.mark.parametrize("options", [{"static_argnums": 1}, {"static_argnames": "n"}])
def test_static_arguments_are_named_by_what_is_jitted(options: Any) -> None:
    """JAX asks the wrapped function which name is at which position."""
    with instrumented() as agent:
        jitted = jax.jit(other_static(), **options)
        jitted(ONE, "a", ONE), jitted(ONE, "b", ONE)
        assert differences(agent) == ["static argument mode: 'a' → 'b'"]
    with instrumented() as agent:
        jitted = jax.jit(other_static(), **options)
        jitted(ONE, "a", ONE), jitted(ONE, "a", FOUR)
        (text,) = differences(agent)
        assert text.startswith("argument x: ")


def test_pmapped_functions_name_their_own_arguments() -> None:
    """As jitted ones do."""
    with instrumented() as agent:
        jitted = jax.pmap(other_parameters())
        for changed in (ONE, FOUR):
            jitted(ONE[None], ONE[None], changed[None])
        (text,) = differences(agent)

    assert text.startswith("argument batch: ")


def test_numpy_arguments_that_miss_are_named_alike() -> None:
    """Why a call missed without a compile names the argument of the wrapper."""
    with instrumented() as agent:
        jitted = jax.jit(other_parameters())
        x = jax.numpy.ones(1)
        jitted(x, x, x), jitted(x, x, ONE)
        (event,) = inside.events(agent).since(kind="miss")

    assert event.message.startswith("argument batch: ")


def test_libraries_that_jit_for_their_users() -> None:
    """Calls that flax and equinox jit have the name of the user's function."""
    linen: Any = require_module("flax.linen")
    nnx = require_module("flax.nnx")
    equinox = pytest.importorskip("equinox")

    def step(weights: Any, batch: Any) -> Any:
        return loss(weights, batch)

    def double(self: Any, batch: Any) -> Any:
        del self
        return batch * 2

    module = type("Module", (linen.Module,), {"__call__": linen.jit(double)})

    def told(run: Callable[[Any], Any]) -> list[str]:
        with instrumented() as agent:
            run(ONE), run(FOUR)
            return differences(agent)

    jitted = nnx.jit(step)
    (text,) = told(lambda x: jitted(ONE, x))
    assert text.startswith("argument batch: ")
    (text,) = told(lambda x: module().apply({}, x))
    assert text.startswith("argument args[0]: ")
    filtered = equinox.filter_jit(step)
    (text,) = told(lambda x: filtered(ONE, x))
    assert not text.startswith(("argument weights", "argument batch: "))
