"""Whose compiles they are: each counts once, for a function that exists or for none."""

import functools
import importlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import Agent
from tests.helpers import inside
from tests.helpers.agents import instrumented, samples
from tests.helpers.processes import some


pytestmark = pytest.mark.ground_truth

COMPILES = re.compile(r'jaxmon_compiles_total{function="(.*)",outcome="(.*)"}')
PHASES = re.compile(r'jaxmon_compile_seconds_count{function="(.*)",phase="(.*)"}')
SOURCE = """
import jax
import jax.numpy as jnp
from tests.helpers.processes import some

def loss(x):
    return jnp.sum(jnp.sin(x) * {number})

jitted = jax.jit(loss)
"""


class Calls:
    """Counts the calls of ``compile_or_get_cached``, below the agent's hook."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original
        self.count = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self._original(*args, **kwargs)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Return the count of what JAX has compiled."""
    compiler: Any = jax._src.compiler
    calls = Calls(compiler.compile_or_get_cached)
    monkeypatch.setattr(compiler, "compile_or_get_cached", calls)
    yield calls
    monkeypatch.undo()


@pytest.fixture
def agent(compiled: Calls) -> Iterator[Agent]:
    jax.clear_caches()  # programs of other tests are none of ours
    with instrumented() as running:
        yield running


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ModuleType]:
    """Return two modules, each with a jitted function that is called ``loss``."""
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for number, name in enumerate(("labels_first", "labels_second")):
        (tmp_path / f"{name}.py").write_text(SOURCE.format(number=number + 2))
        found.append(importlib.import_module(name))
        monkeypatch.delitem(sys.modules, name)
    return found


def counts(agent: Agent, series: re.Pattern[str] = COMPILES) -> Counter[str]:
    """Return the figures above 0 of *series* by function."""
    found: Counter[str] = Counter()
    for name, number in samples(agent).items():
        if match := series.fullmatch(name):
            found[match[1]] += int(number)
    return +found


def users(found: Counter[str]) -> Counter[str]:
    """Return those of *found* that are no functions of JAX."""
    return Counter({k: n for k, n in found.items() if not k.startswith("jax.")})


def here(name: str) -> str:
    return f"{__name__}.{name}"


ROW = np.ones(3, np.float32)
ROWS = np.ones((1, 3), np.float32)


def square(x: Any) -> Any:
    return jnp.sum(jnp.sin(x) * x)


def rows(x: Any) -> Any:
    return x * jnp.sin(x)


class Energy:
    def __call__(self, x: Any) -> Any:
        return jnp.sum(x * jnp.cos(x))

    def method(self, x: Any) -> Any:
        return jnp.sum(x * jnp.tan(x))


def nested(x: Any) -> Any:
    return jax.jit(square)(x) + 1


def refused() -> None:
    lowered = jax.jit(square).lower(ROW)
    with pytest.raises(Exception, match="no_such_option"):
        lowered.compile(compiler_options={"no_such_option": "1"})


def sum_of_pmap(x: Any) -> Any:
    return jnp.sum(jax.pmap(rows)(x))


SQUARE = {here("square")}
# What is compiled, and whose it is, beside functions of JAX itself.
WAYS: dict[str, tuple[Callable[[], Any], set[str]]] = {
    "call": (lambda: jax.jit(square)(ROW), SQUARE),
    "calls": (lambda: [jax.jit(square)(np.ones(n)) for n in (1, 2, 2)], SQUARE),
    "ahead": (lambda: jax.jit(square).lower(ROW).compile()(ROW), SQUARE),
    "ahead of pmap": (
        lambda: jax.pmap(rows).lower(ROWS).compile(),
        {here("rows"), "unknown"},
    ),
    "grad": (lambda: jax.grad(jax.jit(square))(ROW), SQUARE),
    "vjp": (lambda: jax.vjp(jax.jit(square), ROW)[1](np.float32(1)), SQUARE),
    "vmap": (lambda: jax.vmap(jax.jit(square))(ROWS), SQUARE),
    "jvp": (lambda: jax.jvp(jax.jit(square), (ROW,), (ROW,)), SQUARE),
    "linearize": (lambda: jax.linearize(jax.jit(square), ROW)[1](ROW), SQUARE),
    "hessian": (lambda: jax.hessian(jax.jit(square))(ROW), SQUARE),
    "grad of vmap": (
        lambda: jax.grad(lambda x: jnp.sum(jax.vmap(jax.jit(rows))(x)))(ROWS),
        {here("rows")},
    ),
    "jit of grad": (lambda: jax.jit(jax.grad(jax.jit(square)))(ROW), SQUARE),
    "nested": (lambda: jax.jit(nested)(ROW), {here("nested")}),
    "grad of nested": (
        lambda: jax.grad(jax.jit(nested))(ROW),
        {here("nested"), *SQUARE},
    ),
    "eager": (lambda: jnp.linspace(0, 1, 7) @ jnp.arange(7.0), set()),
    "eager grad": (lambda: jax.grad(square)(ROW), set()),
    "eager loop": (lambda: jax.lax.scan(lambda c, x: (c + x, x), 0.0, ROW), set()),
    "random": (lambda: jax.random.normal(jax.random.PRNGKey(0), (3,)), set()),
    "pmap": (lambda: jax.pmap(rows)(ROWS), {here("rows")}),
    "grad of pmap": (lambda: jax.grad(sum_of_pmap)(ROWS), {here("rows"), "unknown"}),
    "method": (
        lambda: jax.grad(jax.jit(Energy().method))(ROW),
        {here("Energy.method")},
    ),
    "object": (
        lambda: jax.grad(jax.jit(Energy()))(ROW),
        {here("Energy"), "unknown"},
    ),
    "partial": (
        lambda: jax.grad(jax.jit(functools.partial(square)))(ROW),
        {*SQUARE, "unknown"},
    ),
    "lambdas": (
        lambda: [
            jax.grad(jax.jit(lambda x: jnp.sum(jnp.sin(x))))(ROW) for _ in range(2)
        ],
        {
            here("<lambda>.<locals>.<listcomp>.<lambda>"),
            here("<lambda>.<locals>.<lambda>"),
        },
    ),
    "refused": (refused, SQUARE),
}


@pytest.mark.parametrize("way", some(WAYS, 3))
def test_each_compile_counts_once_for_a_function_that_exists(agent, compiled, way):
    """
    The sum over functions is the number of compiles; where JAX does not say whose a
    program is, it is that of ``unknown``, and never of a name that no function has.
    """
    run, owners = WAYS[way]
    run()
    found = counts(agent)

    assert found.total() == compiled.count > 0
    assert set(users(found)) <= owners
    assert set(users(counts(agent, PHASES))) <= owners
    assert bool(users(found)) == bool(owners)


def test_programs_of_two_functions_of_one_name_are_not_mixed_up(
    agent, compiled, modules
):
    """What JAX does not distinguish by module belongs to neither function."""
    names = {f"{module.__name__}.loss" for module in modules}
    jitted = [module.jitted for module in modules]
    for f in jitted:
        f(ROW)
        jax.grad(f)(ROW)
    for program in [f.lower(np.ones(5, np.float32)) for f in jitted]:
        program.compile()
    for pullback in [jax.vjp(f, np.ones(6, np.float32))[1] for f in jitted]:
        pullback(np.float32(1))
    found = counts(agent)

    assert found.total() == compiled.count
    assert names <= set(users(found)) <= names | {"unknown"}
    # Both compile the same number of programs.
    assert max(found[name] for name in names) <= users(found).total() / 2
    if jax.__version_info__ >= (0, 5):  # before, some of one's may be of ``unknown``
        assert len({found[name] for name in names}) == 1


def test_two_functions_of_one_name_in_a_module_are_told_apart(agent, compiled):
    """A call, a transformation and ahead of time, for one and for the other."""

    def first() -> Any:
        def loss(x: Any) -> Any:
            return jnp.sum(jnp.sin(x))

        return jax.jit(loss)

    def second() -> Any:
        def loss(x: Any) -> Any:
            return jnp.sum(jnp.cos(x))

        return jax.jit(loss)

    for f in (first(), second()):
        f(ROW)
        jax.grad(f)(ROW)
        f.lower(np.ones(5, np.float32)).compile()
    found = users(counts(agent))

    assert counts(agent).total() == compiled.count
    assert set(found) - {"unknown"} == {
        f"{__name__}.{test_two_functions_of_one_name_in_a_module_are_told_apart.__name__}"
        f".<locals>.{maker}.<locals>.loss"
        for maker in ("first", "second")
    }


def test_generated_functions_from_one_line_are_not_mixed_up(agent, compiled):
    """JAX confuses code that is no file: what it compiles then belongs to neither."""
    modules: list[dict[str, Any]] = [
        {"__name__": name} for name in ("made_first", "made_second")
    ]
    for number, module in enumerate(modules):
        exec(SOURCE.format(number=number + 2), module)  # noqa: S102 - our own
    lowered = [module["jitted"].lower(ROW) for module in modules]
    for one in lowered:
        one.compile()

    assert counts(agent).total() == compiled.count == 2
    assert users(counts(agent)) == {"unknown": 2}


def test_a_name_that_another_function_has_is_not_taken_for_it(agent, compiled, modules):
    """A program of a function that the agent never saw is not its namesake's."""
    first, second = (module.jitted for module in modules)
    lowered = second.lower(ROW)
    jaxmon.uninstrument()
    with instrumented() as later:
        first(ROW)
        lowered.compile()
        found = users(counts(later))

    assert found.total() == compiled.count == 2
    assert found == {f"{modules[0].__name__}.loss": 1, "unknown": 1}


def test_pages_and_reports_name_unknown_too(agent: Agent, compiled: Calls) -> None:
    """The input of `jaxmon explain` contains compiles without an owner."""
    jax.grad(sum_of_pmap)(ROWS)
    functions = inside.overview(agent)["functions"]

    assert counts(agent)["unknown"] == functions["unknown"]["compiles"]["compiled"]
