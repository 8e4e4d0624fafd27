"""Arguments that do not advance: what samples of real calls show."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.linalg import lu_factor, lu_solve

from jaxmon.agent.checks.repeats import Repeats
from jaxmon.agent.context import Sample
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder


CALLS, SHAPE = 400, (64, 3)
OPTIMIZER = optax.adam(0.1)
PARAMS = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}


def gradients(params, x):
    return jax.value_and_grad(lambda p: ((x @ p["w"] + p["b"]) ** 2).mean())(params)


@jax.jit
def train(params, state, x):
    loss, grads = gradients(params, x)
    updates, state = OPTIMIZER.update(grads, state)
    return optax.apply_updates(params, updates), state, loss


@jax.jit
def descend(params, x):
    loss, grads = gradients(params, x)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss


@jax.jit
def accumulate(params, total, x):
    loss, grads = gradients(params, x)
    return jax.tree.map(jnp.add, total, grads), loss


@jax.jit
def perturb(params, x):
    return jax.tree.map(lambda p: p + x.sum(), params)


@jax.jit
def step(matrix, u):
    return jnp.linalg.solve(matrix, u)


@jax.jit
def substep(factors, u):
    return lu_solve(factors, u)


class Counted:
    """A function of the user's, as the table of functions has it."""

    internal, name = False, "step"

    def __init__(self, whole):
        self.whole = whole
        self.objects = SimpleNamespace(calls=0)


def judged(jitted, calls):
    """Return what is found of *calls* that a generator makes, by four samples."""
    traced: list[Any] = [None]
    function: Any = Counted(lambda: traced[0])
    context: Any = SimpleNamespace(jax=jax, sites=SimpleNamespace(places=list))
    repeats = Repeats(context, SourceLineFinder(jax))
    follow: list[Any] = []

    def followed(observe, passed):
        assert not passed
        follow.append(observe)

    def called(*args):
        outputs, count = jitted(*args), function.objects.calls + 1
        function.objects.calls = count
        traced[0] = traced[0] or jitted.trace(*args).jaxpr.jaxpr
        sample = Sample(function, jitted, args, {}, outputs, followed)
        waiting, follow[:] = follow.copy(), []
        for observe in waiting:
            observe(sample)
        if count % 90 == 1 and not waiting:
            repeats.sampled(sample)
        return outputs

    calls(called)
    return repeats.all().get(function)


def batches():
    rng = np.random.default_rng(0)
    return (rng.normal(size=SHAPE).astype(np.float32) for _ in range(CALLS))


def dropped(step):
    state = OPTIMIZER.init(PARAMS)
    for x in batches():
        step(PARAMS, state, x)


def dropped_by_hand(step):
    for x in batches():
        step(PARAMS, x)


def timed(step):
    state = OPTIMIZER.init(PARAMS)
    for _ in range(CALLS):
        step(PARAMS, state, FIXED)


def only_the_state_kept(step):
    state = OPTIMIZER.init(PARAMS)
    for x in batches():
        _, state, _ = step(PARAMS, state, x)


def trained(data):
    def loop(step):
        params, state = PARAMS, OPTIMIZER.init(PARAMS)
        for x in data:
            params, state, _ = step(params, state, x)

    return loop


def proposed(step):
    params = PARAMS
    for number, x in enumerate(batches()):
        new, _ = step(params, x)
        params = params if number % 40 else new


def accumulated(step):
    total = jax.tree.map(jnp.zeros_like, PARAMS)
    for x in batches():
        total, _ = step(PARAMS, total, x)


def simulated(matrix):
    def loop(step):
        u = jnp.ones(64)
        for _ in range(CALLS):
            u = step(matrix, u)

    return loop


MATRIX = 2 * jnp.eye(64)


def again():
    """Return the first batch, made anew for each step."""
    return (next(iter(batches())) for _ in range(CALLS))


FIXED = next(iter(batches()))


@pytest.mark.parametrize(
    ("jitted", "calls", "counts"),
    [
        (train, dropped, True),
        (train, only_the_state_kept, True),
        (descend, dropped_by_hand, False),
    ],
)
def test_updates_that_are_dropped(jitted, calls, counts):
    """All that the function updates is the same in all samples."""
    found = judged(jitted, calls)
    assert (found.kind, found.counts) == ("state", counts)
    assert found.arguments == ("params['b']", "params['w']")
    assert found.calls >= 300


def refilled():
    """Yield one array with other values each time."""
    for x in batches():
        FILLED[:] = x
        yield FILLED


FILLED = np.empty(SHAPE, np.float32)


@pytest.mark.parametrize(
    ("jitted", "calls"),
    [
        (train, trained(batches())),
        (train, trained(refilled())),
        (train, trained(FIXED for _ in range(CALLS))),
        (train, trained(FIXED[:60] for _ in range(CALLS))),
        (train, trained(jnp.asarray(FIXED) for _ in range(CALLS))),
        (train, trained(np.ones(SHAPE, np.float32) for _ in range(CALLS))),
        (train, timed),
        (descend, proposed),
        (accumulate, accumulated),
        (perturb, dropped_by_hand),
        (substep, simulated(lu_factor(MATRIX))),
    ],
)
def test_what_advances_or_is_the_same_on_purpose(jitted, calls):
    """Training; a benchmark; proposals, some accepted; gradients; draws."""
    assert judged(jitted, calls) is None


def test_a_batch_that_does_not_advance():
    """It is made anew, with the same values."""
    found = judged(train, trained(again()))
    assert (found.kind, found.arguments) == ("batch", ("x",))


def test_work_on_what_does_not_advance():
    """A matrix is decomposed in each call, which another form does once."""
    found = judged(step, simulated(MATRIX))
    assert (found.kind, found.operation, found.arguments) == ("work", "lu", ("matrix",))
    assert "test_repeats.py:" in found.where
