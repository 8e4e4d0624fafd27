"""
What jitted functions are while an agent counts their calls, and after it.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.calling.counted import CountedFunction
from jaxmon.agent.probe import Probe
from tests.instrumented import instrumented, value
from tests.jitting import CASES, attributes_of, body, comparable


CALLS = "jaxmon_jit_calls_total"
HITS = "jaxmon_jit_cache_hits_total"
MISSES = "jaxmon_jit_cache_misses_total"

# Bound before any agent: JAX's own.
PLAIN_JIT = jax.jit
PLAIN_PMAP = jax.pmap


@pytest.fixture
def agent() -> Iterator[Agent]:
    """
    Return an agent that serves nothing.
    """
    with instrumented() as running:
        yield running


@pytest.mark.parametrize("name", CASES)
def test_a_counted_function_behaves_as_a_jitted_one(name: str) -> None:
    """
    Results, errors, attributes and identity are those of JAX's own object.
    """
    case = CASES[name]

    expected = case(jax.jit)
    with instrumented():
        assert isinstance(jax.jit(body), CountedFunction)
        found = case(jax.jit)

    assert comparable(expected) == comparable(found)


# Cases about the making of a function, or about one that is new.
NOT_LATER = {"caches", "weakref", "not callable"}


@pytest.mark.parametrize("name", sorted(CASES.keys() - NOT_LATER))
def test_a_function_counted_once_works_after_uninstrument(name: str) -> None:
    """
    What was jitted during instrumentation works on, and counts nothing any more.
    """
    with instrumented() as agent:
        jit = jax.jit
        made: list[Any] = []

        def remembered(*args: Any, **kwargs: Any) -> Any:
            made.append(jit(*args, **kwargs))
            return made[-1]

        CASES[name](remembered)
    misses = value(agent, MISSES)
    waiting = iter(made)

    def again(*_: Any, **__: Any) -> Any:
        return next(waiting)

    expected, found = CASES[name](PLAIN_JIT), CASES[name](again)

    assert comparable(expected) == comparable(found)
    for jitted in made:
        assert callable(jitted)
    assert value(agent, MISSES) == misses


def test_looking_at_a_counted_function_is_not_a_call(agent: Agent) -> None:
    """
    Inspection, lowering and transformations without execution count nothing.
    """
    jitted = jax.jit(body)

    isinstance(jitted, jax.stages.Wrapped)
    callable(jitted)
    inspect.signature(jitted)
    inspect.unwrap(jitted)
    functools.wraps(jitted)(lambda: None)
    copy.copy(jitted)
    repr(jitted)
    dir(jitted)
    jax.tree_util.tree_leaves(jitted)
    jitted.lower(1.0)
    jax.eval_shape(jitted, 1.0)
    jax.make_jaxpr(jitted)(1.0)
    jax.vmap(jitted)
    jax.grad(jitted)
    jax.checkpoint(jitted)
    functools.partial(jitted, 1.0)
    jax.jit(jitted)
    for name in ("lower", "trace", "__wrapped__", "__name__", "no_such"):
        hasattr(jitted, name)

    assert value(agent, CALLS) == value(agent, HITS) == 0


def test_a_pmapped_function_looks_like_the_original(agent: Agent) -> None:
    """
    Name, module and documentation of a pmapped function are the user's.
    """
    plain, counted = PLAIN_PMAP(body), jax.pmap(body)

    assert attributes_of(plain) == attributes_of(counted)
    assert str(inspect.signature(plain)) == str(inspect.signature(counted))
    expected, found = plain(np.ones((1, 2))), counted(np.ones((1, 2)))
    assert expected.tolist() == found.tolist()


def test_a_pmapped_function_keeps_its_counts_when_its_twin_goes(agent: Agent) -> None:
    """
    Two pmaps of one function: dropping one does not turn misses of the other to hits.
    """

    def twin(x: Any) -> Any:
        return x + 1

    kept, dropped = jax.pmap(twin), jax.pmap(twin)
    dropped(np.ones((1, 2)))
    del dropped
    gc.collect()
    kept(np.ones((1, 3)))
    kept(np.ones((1, 3)))

    assert value(agent, CALLS) == 3
    assert value(agent, MISSES, function=f"{__name__}.{twin.__qualname__}") == 2
    assert value(agent, HITS) == 1


def test_what_jax_makes_can_be_sent_by_value() -> None:
    """
    Cloudpickle sends ``vmap(f)`` with the globals of JAX that it uses. What stands
    there for a hook arrives as JAX's own, where jaxmon is not.
    """
    with instrumented() as agent:
        patches = list(agent._hooks._patches._patches)
        probes = [one for one in patches if isinstance(one.ours, Probe)]
        sent = [pickle.dumps(one.ours) for one in probes]

    assert {one.name for one in probes} & {*jax.vmap(body).__code__.co_names}
    assert b"jaxmon" not in b"".join(sent)
    arrived = [pickle.loads(one) for one in sent]  # noqa: S301 - our own
    assert arrived == [one.original for one in probes]


def test_warnings_of_jit_name_the_line_of_the_user() -> None:
    """
    A deprecation is attributed to the caller of `jax.jit`, as without jaxmon.
    """
    device = jax.devices()[0]
    with pytest.warns(DeprecationWarning, match="device") as plain:
        jax.jit(body, device=device)
    with (
        instrumented(),
        pytest.warns(DeprecationWarning, match="device") as counted,
    ):
        jax.jit(body, device=device)

    assert [one.filename for one in plain] == [one.filename for one in counted]


def test_errors_of_jit_itself_have_the_same_traceback() -> None:
    """
    `jax.jit` of something else than a function fails with JAX's frames only.
    """
    plain = frames_of_not_jitted()
    with instrumented():
        counted = frames_of_not_jitted()

    assert plain == counted


def frames_of_not_jitted() -> list[str]:
    with pytest.raises(TypeError) as caught:
        jax.jit(3)
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
