"""Mistakes in the source of functions that JAX compiles, as findings."""

import functools
import gc
import inspect
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.scheduler import WorkBudget
from jaxmon.agent.tracing.part import TraceMistakes
from jaxmon.facts.process import read
from jaxmon.symptoms.findings import find
from jaxmon.symptoms.symptom import Finding
from tests.helpers import inside
from tests.helpers.agents import instrumented


pytestmark = pytest.mark.ground_truth

OURS = {"frozen_value", "dropped_update", "leaked_tracer", "printed_tracer"}
losses: list[Any] = []


@pytest.fixture
def agent() -> Iterator[Agent]:
    """Return an agent; what the functions of these tests leak is dropped."""
    with instrumented() as running:
        yield running
    losses.clear()


def found(agent: Agent) -> list[Finding]:
    """Return the findings on the source of what was compiled so far."""
    inside.part(agent, TraceMistakes).finish(60)
    return [one for one in find(read(inside.overview(agent))) if one.topic in OURS]


def line_of(function: Callable[..., Any], text: str) -> str:
    """Return the place of the line of *function* that contains *text*."""
    lines, first = inspect.getsourcelines(function)
    (at,) = [at for at, line in enumerate(lines) if text in line]
    return f"tests/integration/test_traced_mistakes.py:{first + at}"


def train(x: Any) -> Any:
    x.at[0].set(1.0)
    losses.append(x.sum())
    print("x is", x)  # noqa: T201 - a mistake
    return x + np.random.normal()  # noqa: NPY002 - another


def test_what_the_budget_does_not_cover_is_read_when_someone_asks(agent, monkeypatch):
    """Not before; the same function is read by itself within the budget."""
    covers = False
    monkeypatch.setattr(WorkBudget, "covers", lambda _: covers)
    part = inside.part(agent, TraceMistakes)
    for covers in (False, True):

        def step(x: Any) -> Any:
            x.at[0].set(1.0)
            return x

        jax.jit(step)(jnp.ones(3))
        assert part._worker.drain(60)
        assert bool(part.snapshot().mistakes) == covers
        assert part.explain().sections["tracing"]().mistakes
        part._found.clear()
        part._seen.clear()


def test_mistakes_are_found_in_what_is_compiled(agent: Agent) -> None:
    """Each is named with its line, the jitted function, and the calls it concerns."""
    step = jax.jit(train)
    for _ in range(5):
        step(jnp.ones(3))

    findings = {one.topic: one for one in found(agent)}
    places = {topic: one.where for topic, one in findings.items()}
    assert places == {
        "frozen_value": line_of(train, "np.random"),
        "dropped_update": line_of(train, ".at[0]"),
        "leaked_tracer": line_of(train, "losses"),
        "printed_tracer": line_of(train, "print"),
    }
    assert {one.subject for one in findings.values()} == {f"{__name__}.train"}
    assert "it was reused 4 times" in findings["frozen_value"].verdict
    assert "4 later calls" in findings["printed_tracer"].verdict


def initial() -> Any:
    return np.random.normal(size=3)  # noqa: NPY002 - a mistake unless called once


def test_a_function_that_is_called_once_may_draw(agent: Agent) -> None:
    """Random initial values are drawn while tracing; nothing reuses them."""
    init = jax.jit(initial)
    init()
    assert found(agent) == []

    init()
    (finding,) = found(agent)
    assert finding.topic == "frozen_value"
    assert "it was reused once" in finding.verdict


class Trainer:
    """A class whose method is jitted in the two usual ways."""

    def __init__(self) -> None:
        self.scale, self.seen = 2.0, list[Any]()

    @functools.partial(jax.jit, static_argnums=0)
    def decorated(self, x: Any) -> Any:
        self.seen.append(x)
        return x * self.scale

    def bound(self, x: Any) -> Any:
        self.last = x * self.scale
        return self.last


def test_methods_are_read(agent: Agent) -> None:
    """The object is an argument that is static, or is bound; it keeps what it gets."""
    trainer = Trainer()
    trainer.decorated(jnp.ones(3))
    jax.jit(trainer.bound)(jnp.ones(3))

    assert [one.where for one in found(agent)] == [
        line_of(Trainer.bound, "self.last = "),
        line_of(Trainer, "self.seen.append"),
    ]


def stochastic(params: Any, batch: Any) -> Any:
    keep = random.random() < 0.5  # noqa: S311 - the mistake
    if keep:
        batch = batch * 2
    return jnp.mean((batch @ params) ** 2)


def test_functions_under_transformations_are_read(agent: Agent) -> None:
    """A loss under grad in a jitted step, or jitted itself, is read as well."""
    params, batch = jnp.ones((3,)), jnp.ones((2, 3))

    def step(params: Any, batch: Any) -> Any:
        return params - jax.grad(stochastic)(params, batch)

    jitted = jax.jit(step)
    for _ in range(3):
        jitted(params, batch)
    gradient = jax.jit(jax.grad(stochastic))
    for _ in range(3):
        gradient(params, batch)

    (finding,) = found(agent)
    assert finding.where == line_of(stochastic, "random.random")


def test_nothing_of_the_program_is_kept(agent: Agent) -> None:
    """What was read is freed when the program drops it."""

    class Held:
        def step(self, x: Any) -> Any:
            return x + len(self.__dict__)

    held = Held()
    reference = weakref.ref(held)
    jax.jit(held.step)(1.0)
    assert found(agent) == []
    del held
    jax.clear_caches()
    gc.collect()

    assert reference() is None


def test_what_is_dropped_before_it_is_read_is_no_failure(agent, monkeypatch):
    """Another thread stops the part between a look at what waits and its turn."""
    part = inside.part(agent, TraceMistakes)
    monkeypatch.setattr(part._worker, "submit", bool)  # read here alone
    jax.jit(lambda x: x + 1.0)(1.0)
    waiting = len(part._unread)

    def drop() -> bool:
        part._unread.clear()
        return True

    part._read_while(drop)

    assert waiting == 1
