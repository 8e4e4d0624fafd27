"""
Whatever a function is called, its figures are on the page once, and hooks stay on.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from prometheus_client.parser import text_string_to_metric_families

from jaxmon.agent import Agent
from jaxmon.exposition.encode import encode
from tests.helpers import inside
from tests.helpers.agents import instrumented
from tests.helpers.processes import some


pytestmark = pytest.mark.ground_truth

CALLS = "jaxmon_jit_calls"


AGENT = {"sample_rate": 0}


def page_calls(agent: Agent) -> list[tuple[str, float]]:
    """Return label and value of each series of calls, as a client reads the page."""
    page = encode(agent.collect()).decode()
    return [
        (sample.labels["function"], sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if family.name == CALLS
    ]


def called(name: Any) -> Callable[..., Any]:
    def work(x: Any) -> Any:
        return x + 1

    # JAX gives __name__ to XLA, which has its own mind about it.
    work.__qualname__ = name
    return work


class Raising:
    """Any access to a name goes too far."""

    asked = 0

    def __call__(self, x: Any) -> Any:
        return x + 1

    @property
    def __name__(self) -> Any:
        type(self).asked += 1
        raise OSError


def of_class(**variables: Any) -> Any:
    return type("Work", (), {"__call__": lambda _, x: x + 1, **variables})()


def with_variables(**variables: Any) -> Any:
    work = of_class()
    vars(work).update(variables)
    return work


class Text(str):
    """Text that lies about itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise OSError

    def __hash__(self) -> int:
        raise OSError

    def partition(self, _: Any, /) -> Any:
        raise OSError


def without_module(module: Any) -> Any:
    work = called("work")
    work.__module__ = module
    return work


ODD: dict[str, Callable[[], Any]] = {
    "class without module": lambda: of_class(__module__=None),
    "class with a number": lambda: of_class(__module__=3),
    "class with a property": lambda: of_class(__module__=property(lambda _: 1 / 0)),
    "function without module": lambda: without_module(None),
    "function with a number": lambda: without_module(3),
    "function with odd text": lambda: without_module(Text("odd")),
    "method": lambda: types.MethodType(of_class(__module__=None), 1.0).__func__,
    "bound": lambda: functools.partial(
        of_class(__module__=None, go=lambda _, x: x + 1).go
    ),
    "name is a number": lambda: with_variables(__name__=3, __qualname__=[]),
    "name is odd text": lambda: with_variables(__qualname__=Text("odd")),
    "name is empty": lambda: called(""),
    "name is huge": lambda: called("x" * 100_000),
    "name has lines": lambda: called("two\nlines\r\0\x1b[31m\u2028"),
    "name is a surrogate": lambda: called("\udc80"),
    "name has quotes": lambda: called('a"b\\c{}'),
    "no class": lambda: with_variables(__class__=None),
    "wrapped by itself": lambda: with_variables(__wrapped__=None),
}


@pytest.mark.parametrize("name", some(ODD))
def test_odd_functions_switch_no_hook_off(agent: Agent, name: str) -> None:
    """A dozen of a kind get a label of moderate length, and no hook fails."""
    fun = ODD[name]()
    for size in range(1, 13):
        try:
            jitted = jax.jit(fun)
            jitted(np.ones(size)), jitted(np.ones(size))
        except Exception:  # noqa: BLE001 - JAX itself does not take it
            pytest.skip("JAX does not take it")

    found = page_calls(agent)
    assert sum(calls for _, calls in found) == 24
    assert len({label for label, _ in found}) == len(found)
    for label, _ in found:
        assert label.isprintable()
        assert len(label) <= 300
    assert all(inside.hooks(agent).active().values())
    assert inside.guard(agent).failures() == {}


def test_names_that_differ_in_what_no_page_can_say_have_a_series_each(agent):
    """Lone surrogates are no UTF-8, and control characters end a page for some."""
    names = ["f\udc80", "f\udc81", "f\n", "f\0", "f", "f" * 5000, "f" * 5001]
    for name in names:
        jax.jit(called(name))(1.0)

    found = page_calls(agent)
    assert len(found) == len(names)
    assert all(calls == 1 for _, calls in found)
    assert len(dict(found)) == len(names)


def test_a_program_of_xla_with_such_a_name_is_one_function(agent: Agent) -> None:
    """If only JAX's message has the name, it gets the same label again."""
    table = inside.table(agent)
    before = len(list(table))
    first, second = table.named("g\udc80"), table.named("g\udc80")

    assert first is second
    assert first is not table.named("g\udc81")
    assert len(list(table)) == before + 2


def test_names_are_looked_at_without_asking_the_user(agent: Agent) -> None:
    """A property called like a name runs as often as without us."""
    Raising.asked = 0
    with pytest.raises(OSError):  # noqa: PT011 - JAX asks, and so fails
        jax.jit(Raising())
    ours = Raising.asked
    inside.hooks(agent).detach()
    Raising.asked = 0
    with pytest.raises(OSError):  # noqa: PT011 - likewise
        jax.jit(Raising())

    assert ours == Raising.asked


@functools.wraps(jnp.cos)
def cosine(x: Any) -> Any:
    return x


def step(x: Any) -> Any:
    return (x * 2).sum()


def test_what_the_program_jits_is_its_own(agent: Agent) -> None:
    """Calls and compiles count under the program's function or jitting place."""
    # In a shape that no other test uses: JAX shares what it has traced and compiled.
    x = jax.device_put(np.ones(1013, np.float32))
    here = test_what_the_program_jits_is_its_own.__qualname__
    checked = functools.partial(checkify.checkify(step))
    jitted: dict[str, list[Callable[..., Any]]] = {
        f"{__name__}.step": [checked, step],
        f"{__name__}.cosine": [cosine],
        f"{__name__}.{here}.<locals>.sin": [jnp.sin],
        f"{__name__}.{here}.<locals>.dot": [jax.vmap(jnp.dot)],
        f"{__name__}.{here}.<locals>._lift_linearized": [jax.linearize(step, x)[1]],
    }
    for name, functions in jitted.items():
        for function in functions:
            given = [x, x] if name.endswith("dot") else [x]
            jax.jit(function)(*given)

    compiles = {
        one.name: one.compiles["compiled"].value
        for one in inside.table(agent)
        if not one.internal and one.compiles["compiled"].value
    }
    calls = {name: number for name, number in page_calls(agent) if number}
    assert calls == compiles == {name: len(every) for name, every in jitted.items()}


def test_what_jax_jits_is_its_own(agent: Agent) -> None:
    """Operations outside of jit are JAX's, whatever they are called with."""
    x = jnp.arange(7)
    jnp.sort(jnp.where(x > 2, x, 0)).block_until_ready()
    jax.random.normal(jax.random.key(0), (5,)).block_until_ready()
    jax.grad(lambda y: jnp.sum(jnp.sin(y) * y))(jnp.ones(9)).block_until_ready()

    own = [one for one in inside.table(agent) if not one.internal]
    assert [one.name for one in own if one.missed] == []
    assert page_calls(agent) == []


def test_functions_of_jax_may_be_one() -> None:
    """With few series, JAX's functions are one, and totals are the same."""
    with instrumented(
        sample_rate=0, jax_functions=False, few_buckets="compile"
    ) as agent:
        step = jax.jit(called("step"))
        for size in (2, 3):
            step(jnp.clip(jnp.linspace(0.0, 1.0, size), 0.1, 0.9))
        table = list(inside.table(agent))
        families = text_string_to_metric_families(encode(agent.collect()).decode())

    expected: dict[str, float] = {}
    for function in table:
        name = "jax" if function.internal else function.name
        if function.missed:
            expected[name] = expected.get(name, 0) + function.missed
    samples = [one for family in families for one in family.samples]
    misses = {
        one.labels["function"]: one.value
        for one in samples
        if one.name == "jaxmon_jit_cache_misses_total" and one.value
    }
    bounds = {
        one.labels["le"]
        for one in samples
        if one.name == "jaxmon_compile_seconds_bucket"
    }

    assert sum(function.internal for function in table) > 1
    assert expected["jax"] > 1
    assert misses == expected
    assert bounds == {"0.1", "1.0", "10.0", "100.0", "+Inf"}
