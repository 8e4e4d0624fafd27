"""From which PRNG keys a program draws: real programs, as JAX lowers them."""

from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax, random

from jaxmon.agent import Agent
from jaxmon.agent.checks.keys import KeyCount, KeyPart
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.transforms import drawn_from
from jaxmon.facts.process import read
from jaxmon.symptoms.findings import find
from jaxmon.symptoms.symptom import Finding
from tests.helpers import inside
from tests.helpers.processes import some, until


# Made by the test that needs them: each worker collects all tests.
X = partial(jnp.ones, (4, 4))
NEW, OLD = partial(random.key, 0), partial(random.PRNGKey, 0)


def steps(key: Any, start: Any) -> Any:
    def more(carried: Any) -> Any:
        step, total = carried
        return step + 1, total + random.normal(random.fold_in(key, step))

    return lax.while_loop(lambda carried: carried[0] < 3, more, (start, 0.0))


def loss(x: Any, key: Any) -> Any:
    return jnp.sum(x * random.normal(key, x.shape))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[bool, ...]]] = {
    "typed": (lambda k, x: x + random.normal(k, x.shape), (NEW, X), (True,)),
    "raw": (lambda k, x: x + random.normal(k, x.shape), (OLD, X), (True,)),
    "split": (lambda k: random.uniform(random.split(k)[1]), (OLD,), (True,)),
    "folded": (lambda k, s: random.normal(random.fold_in(k, s)), (OLD, 3), (False,)),
    "folded constant": (
        lambda k: random.normal(random.fold_in(k, 3)),
        (OLD,),
        (True,),
    ),
    "folded and split": (
        lambda k, s: random.normal(random.split(random.fold_in(k, s))[0]),
        (NEW, 3),
        (False,),
    ),
    "folded data": (
        lambda k, x: random.normal(random.fold_in(k, x[0, 0].astype(int))),
        (NEW, X),
        (False,),
    ),
    "two": (
        lambda k, m, s: random.normal(k) + random.normal(random.fold_in(m, s)),
        (OLD, NEW, 3),
        (True, False),
    ),
    "loop": (
        lambda k: lax.scan(lambda c, one: (c, random.normal(one)), 0.0, k),
        (lambda: random.split(OLD(), 3),),
        (),
    ),
    "loop over parts": (
        lambda k: lax.scan(
            lambda c, one: (c, random.normal(one)), 0.0, random.split(k, 3)
        ),
        (OLD,),
        (True,),
    ),
    "while": (steps, (OLD, 0), (False,)),
    "branch": (
        lambda k, x: lax.cond(x[0, 0] > 0, lambda: random.normal(k), lambda: 0.0),
        (OLD, X),
        (True,),
    ),
    "gradient": (jax.grad(loss), (X, OLD), (True,)),
    "recomputed": (jax.grad(jax.checkpoint(loss)), (X, NEW), (True,)),
    "seed": (lambda s: random.normal(random.key(s)), (1,), ()),
    "none": (lambda x: x * 2, (X,), ()),
}


@pytest.mark.parametrize("name", some(CASES, 3))
def test_keys_are_followed_to_where_numbers_are_drawn(agent: Agent, name: str) -> None:
    """Directly or not, with other arguments mixed in or not."""
    function, given, expected = CASES[name]
    args = [one() if callable(one) else one for one in given]
    found: list[tuple[bool, ...]] = []

    def lowered(_: Function, frame: FrameType | None, jaxpr: Any) -> None:
        del frame
        found.append(drawn_from(jaxpr))

    inside.observers(agent).lowered.append(lowered)
    jax.jit(function)(*args)

    assert found[-1] == expected


@pytest.mark.parametrize(
    ("values", "run"),
    [("aaaaabbb", (5, 5)), ("aaabbbbb", (5, 5)), ("abcdefgh", (1, 1))],
)
def test_a_key_of_most_samples_counts(values: str, run: tuple[int, int]) -> None:
    """Though an evaluation at the end has others; not one that few samples had."""
    count = KeyCount()
    for call, value in enumerate(values, 1):
        count.add(value.encode(), call)
    assert count.run == run


def findings(agent: Agent) -> list[Finding]:
    every = find(read(inside.overview(agent), {}))
    return [finding for finding in every if finding.topic == "same_key"]


def test_a_key_that_never_changes_is_told(agent: Agent) -> None:
    """Also one that is made anew from the same seed; one that is split is not."""
    key = random.key(1)

    @jax.jit  # type: ignore[untyped-decorator]
    def same(key: Any) -> Any:
        return random.normal(key, (4,))

    @jax.jit  # type: ignore[untyped-decorator]
    def split(key: Any) -> Any:
        return random.normal(key, (4,)) * 2

    def told() -> list[str]:
        nonlocal key
        for _ in range(100):
            key, part = random.split(key)
            same(random.key(0)).block_until_ready()
            split(part).block_until_ready()
        return [one.subject for one in findings(agent)]

    until(told, "a finding", seconds=60)
    (name,) = told()
    assert name.endswith("same")


def test_a_line_that_draws_from_one_key_outside_of_jit_is_found(agent: Agent) -> None:
    """Not one whose key is split, nor what is drawn while a function is traced."""
    key = random.key(1)
    inside.part(agent, KeyPart)

    def noise(key: Any) -> Any:
        return random.normal(key, (4,))

    @jax.jit  # type: ignore[untyped-decorator]
    def traced(key: Any) -> Any:
        return random.uniform(key, (4,))

    traced(random.key(0))

    def found() -> list[str]:
        nonlocal key
        for _ in range(20):
            key, part = random.split(key)
            random.uniform(part, (4,))
            noise(random.key(0))
        return [finding.where for finding in findings(agent)]

    until(found, "a finding", seconds=60)
    line = noise.__code__.co_firstlineno + 1
    assert [place.rpartition("/")[2] for place in found()] == [f"test_keys.py:{line}"]
