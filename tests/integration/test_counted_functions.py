"""What jitted functions are while an agent counts their calls, and after it."""

import copy
import doctest
import functools
import gc
import inspect
import operator
import pickle
import pydoc
import traceback
import types
import unittest.mock
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from jaxmon.agent import Agent, counted
from jaxmon.agent.counted import CountedFunction
from jaxmon.agent.jaxlink.listeners import Probe
from tests.helpers import inside
from tests.helpers.agents import instrumented, value
from tests.helpers.likeness import CASES, attributes_of, body, comparable, failure
from tests.helpers.processes import some


CALLS = "jaxmon_jit_calls_total"
HITS = "jaxmon_jit_cache_hits_total"
MISSES = "jaxmon_jit_cache_misses_total"

# Bound before any agent: JAX's own.
PLAIN_JIT = jax.jit
PLAIN_PMAP = jax.pmap


@pytest.mark.parametrize("name", some(CASES, 3))
def test_a_counted_function_behaves_as_a_jitted_one(name: str) -> None:
    """Results, errors, attributes and identity are those of JAX's own object."""
    case = CASES[name]

    expected = case(jax.jit)
    with instrumented():
        assert isinstance(jax.jit(body), CountedFunction)
        found = case(jax.jit)

    assert comparable(expected) == comparable(found)


# Cases about the making of a function, or about one that is new.
NOT_LATER = {"caches", "weakref", "not callable"}


@pytest.mark.parametrize("name", some(sorted(CASES.keys() - NOT_LATER)))
def test_a_function_counted_once_works_after_uninstrument(name: str) -> None:
    """What was jitted during instrumentation works on, and counts nothing any more."""
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
    """Inspection, lowering and transformations without execution count nothing."""
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


LOOKS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda f: f.__call__,
    "hasattr": lambda f: hasattr(f, "__call__"),  # noqa: B004 - as programs ask
    "members": inspect.getmembers,
    "autospec": unittest.mock.create_autospec,
    "mock": lambda f: unittest.mock.Mock(spec=f),
    "signature": lambda f: inspect.signature(f.__call__),
    "doctest": lambda f: doctest.DocTestFinder().find(f, "f"),
    "next": lambda f: failure(lambda: next(f)),
    "list": lambda f: failure(lambda: list(f)),
    "docs": pydoc.render_doc,
    "every attribute": lambda f: [getattr(f, name) for name in dir(f)],
    "type": lambda f: type(f).__call__,
}


@pytest.mark.ground_truth
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("make", ["jit", "pmap", "armed"])
def test_looks_of_every_kind_count_nothing(agent, look, make, monkeypatch):
    """Not even where the next call is to be sampled, which it still is."""
    f: Any = jax.pmap(body) if make == "pmap" else jax.jit(body)
    x = np.ones((1, 2), np.float32)
    f(x), f(x)
    inside.sampling(agent).stop()  # which arms what has been called
    if make == "armed":
        counted.arm(f, Unmoved())
    before = value(agent, CALLS), value(agent, HITS)

    LOOKS[look](f)

    assert (value(agent, CALLS), value(agent, HITS)) == before
    assert counted.armed(f) == (make == "armed")
    f(x)
    assert value(agent, CALLS) == before[0] + 1


class Unmoved:
    """Waits for calls, and does nothing."""

    def begin(self, *_: Any) -> None:
        pass


@pytest.mark.ground_truth
@pytest.mark.parametrize("make", ["jit", "pmap"])
def test_calls_count_whatever_way_they_are_made(agent: Agent, make: str) -> None:
    """Calls through a kept ``__call__``, copies and other callers count."""
    x = np.ones((1, 2), np.float32)
    jit: Any = getattr(jax, make)
    f = jit(body)
    kept = f.__call__
    orphan = jit(body).__call__
    copied, deep = copy.copy(f), copy.deepcopy({"steps": [f, f]})["steps"]
    ways = [
        f,
        kept,
        f.__call__,
        orphan,
        copied,
        copied.__call__,
        copy.copy(copied),
        deep[0],
        deep[1],
        copy.deepcopy(deep[0]),
        functools.partial(f),
        types.MethodType(operator.call, f),
        weakref.proxy(f),
        f.__get__(x),
        operator.methodcaller("__call__", x),
    ]
    for number, way in enumerate(ways):
        if number < 13:
            way(x)
        elif number == 13:
            way()
        else:
            way(f)
        gc.collect()

    assert deep[0] is deep[1]
    assert value(agent, CALLS) == len(ways)
    misses = value(agent, MISSES, function=f"{body.__module__}.body")
    assert value(agent, HITS) == len(ways) - misses


@pytest.mark.ground_truth
def test_copies_and_originals_that_are_gone_leave_their_counts(agent: Agent) -> None:
    """A structure copied again and again keeps no copy alive and loses no call."""

    class Model:
        def __init__(self) -> None:
            self.step = jax.jit(self.run)

        def run(self, x: Any) -> Any:
            return x + 1

    model = Model()
    for _ in range(10):
        model.step(1.0)
        model = copy.deepcopy(model)
        gc.collect()
    reference = weakref.ref(model.step)
    model.step(1.0)
    del model
    gc.collect()

    assert reference() is None
    assert value(agent, CALLS) == 11


@pytest.mark.ground_truth
def test_a_copy_that_fails_shows_jaxs_frames_only(agent: Agent) -> None:
    """What is copied within may be the user's, and so may the error."""

    class Stubborn:
        def __call__(self, x: Any) -> Any:
            return x

        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError

    with pytest.raises(RuntimeError) as caught:
        copy.deepcopy(jax.jit(Stubborn()))

    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [one.name for one in frames if "jaxmon/" in one.filename] == []


def test_a_pmapped_function_looks_like_the_original() -> None:
    """Name, module and documentation of a pmapped function are the user's."""
    plain = jax.pmap(body)
    with instrumented():
        ours = jax.pmap(body)
    assert type(ours) is CountedFunction

    assert attributes_of(plain) == attributes_of(ours)
    assert str(inspect.signature(plain)) == str(inspect.signature(ours))
    expected, found = plain(np.ones((1, 2))), ours(np.ones((1, 2)))
    assert expected.tolist() == found.tolist()


def test_a_pmap_is_counted_whoever_has_wrapped_or_imported_it(monkeypatch):
    """A wrapper around `jax.pmap`, of any kind, keeps the hook from nothing."""
    wrapper = unittest.mock.Mock(wraps=jax.pmap)
    monkeypatch.setattr(jax, "pmap", wrapper)
    with instrumented() as agent:
        for make in (jax.pmap, PLAIN_PMAP):
            make(body)(np.ones((1, 2)))
        assert value(agent, CALLS) == 2

    assert jax.pmap is wrapper


def test_a_pmapped_function_keeps_its_counts_when_its_twin_goes(agent: Agent) -> None:
    """Dropping a pmap of a function turns no miss of its twin into a hit."""

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
    """What cloudpickle sends by value loads without jaxmon, as JAX's own."""
    with instrumented() as agent:
        patches = inside.replaced(agent)
        probes = [one for one in patches if isinstance(one.ours, Probe)]
        sent = [pickle.dumps(one.ours) for one in probes]

    assert {one.name for one in probes} & {*jax.vmap(body).__code__.co_names}
    assert b"jaxmon" not in b"".join(sent)
    arrived = [pickle.loads(one) for one in sent]  # noqa: S301 - our own
    assert arrived == [one.original for one in probes]


def test_warnings_of_jit_name_the_line_of_the_user() -> None:
    """A deprecation is attributed to the caller of `jax.jit`, as without jaxmon."""
    device = jax.devices()[0]
    with pytest.warns(DeprecationWarning, match="device") as plain:
        jax.jit(body, device=device)
    with (
        instrumented(),
        pytest.warns(DeprecationWarning, match="device") as observed,
    ):
        jax.jit(body, device=device)

    assert [one.filename for one in plain] == [one.filename for one in observed]


def test_errors_of_jit_itself_have_the_same_traceback() -> None:
    """`jax.jit` of something else than a function fails with JAX's frames only."""
    plain = frames_of_not_jitted()
    with instrumented():
        observed = frames_of_not_jitted()

    assert plain == observed


def frames_of_not_jitted() -> list[str]:
    with pytest.raises(TypeError) as caught:
        jax.jit(3)
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
