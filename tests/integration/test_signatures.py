"""What the observation of recompiles must not do to the program."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import jax
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.recompiles.signatures import SignatureBuilder
from tests.helpers import inside
from tests.helpers.agents import instrumented


class Config:
    """A static argument, hashed by identity."""


@jax.tree_util.register_pytree_node_class
class Module:
    """A class with a static part, for which JAX keeps a treedef."""

    def __init__(self, weight: Any, static: Any) -> None:
        self.weight, self.static = weight, static

    def tree_flatten(self) -> Any:
        return (self.weight,), self.static

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Module:
        return cls(children[0], static)


def causes(agent: Agent) -> list[str]:
    return [e.details["cause"] for e in inside.events(agent).since(kind="recompile")]


def test_functions_arguments_and_static_values_die_with_the_program(agent):
    """Once JAX forgets a call, nothing of it lives on in jaxmon."""

    def run() -> list[weakref.ref[Any]]:
        @functools.partial(jax.jit, static_argnums=0)
        def f(config: Config, module: Module) -> Any:
            return module.weight + 1

        kept: list[Any] = [f.__wrapped__]
        for size in (1, 2):
            config, static = Config(), Config()
            weight = jax.device_put(np.zeros(size, np.float32))
            f(config, Module(weight, static))
            kept += [config, static, weight]
        return [weakref.ref(one) for one in kept]

    references = run()
    assert causes(agent) == ["tree_structure"]
    jax.clear_caches()
    gc.collect()

    assert [reference() for reference in references] == [None] * len(references)


def test_static_values_can_be_kept_out_of_events() -> None:
    """With event_values off, a secret does not reach the event log."""
    with instrumented(event_values=False) as agent:

        @functools.partial(jax.jit, static_argnames="token")
        def f(x: Any, token: str) -> Any:
            return x + 1

        for token in ("secret-1", "secret-2"):
            f(np.float32(1), token=token)

        (event,) = inside.events(agent).since(kind="recompile")
        assert event.message == "static argument token: str → another str"
        assert "secret" not in str(event)


@pytest.mark.contained
def test_a_signature_that_fails_costs_the_words_only(agent, monkeypatch):
    """The call returns, and the recompile counts as unknown."""

    def refuse(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(SignatureBuilder, "of", refuse)
    f = jax.jit(lambda x: x + 1)

    results = [f(np.ones(size, np.float32)).shape for size in (1, 2)]

    assert results == [(1,), (2,)]
    assert (causes(agent), inside.guard(agent).failures()) == (
        ["unknown"],
        {"causes": 2},
    )


@pytest.mark.parametrize("static", [None, len, Config(), Config])
def test_a_static_part_made_anew_is_no_cause(agent: Agent, static: Any) -> None:
    """A new tuple of the same objects is no difference, another shape is."""
    f = jax.jit(lambda module: module.weight + 1)

    for size in (1, 1, 2):
        f(Module(np.ones(size, np.float32), (static, "relu")))

    (event,) = inside.events(agent).since(kind="recompile")
    assert event.details["cause"] == "shape"
    assert event.message == "argument module[0]: float32[1] → float32[2]"


@pytest.mark.exhaustive
def test_what_is_remembered_stays_bounded(agent: Agent) -> None:
    """Hundreds of shapes leave sixteen signatures, and every one was reported."""
    f = jax.jit(lambda x: x)
    for size in range(1, 101):
        f(np.ones(size, np.float32))

    histories = inside.causes(agent)._seen
    history = histories[id(f.__wrapped__)]
    assert len(history.signatures) == 16
    assert causes(agent) == ["shape"] * 99


def test_a_user_function_of_a_familiar_name_is_not_taken_for_jax(agent: Agent) -> None:
    """Frames of the user's may be called like those that are looked for."""

    def cache_miss(x: Any) -> Any:
        fun, jit_info, p = 1, 2, 3  # as JAX's variables are called
        return x + fun + jit_info + p

    f = jax.jit(cache_miss)
    for size in (1, 2):
        f(np.ones(size, np.float32))

    (event,) = inside.events(agent).since(kind="recompile")
    assert event.message == "argument x: float32[1] → float32[2]"
