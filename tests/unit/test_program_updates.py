"""Updates in jaxprs that change nothing, and random numbers that repeat."""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from jaxmon.agent.jaxlink.executables import widened_at
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import redrawn
from jaxmon.agent.jaxlink.updates import unused, zeroed


LINES = SourceLineFinder(jax)


def jaxpr_of(fun, *given):
    return jax.make_jaxpr(fun)(*given).jaxpr


def at(fun, after):
    """Return the line that comes so many *after* the first of *fun*."""
    return f"test_program_updates.py:{fun.__code__.co_firstlineno + after}"


def loss(params, x):
    return ((x @ params["w"] + params["b"]) ** 2).mean()


def manual(rates, params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return {n: params[n] - rates[n] * grads[n] for n in params}, value  # the line


def by_optax(optimizer, params, state, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


def test_states_that_get_updates_of_zero_are_found():
    """By the line, if all that gets updates does; not if a layer is left as it is."""
    params = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    x = jnp.ones((4, 3))

    def found(weights, biases):
        rates = {"w": weights, "b": biases}
        return zeroed(jaxpr_of(partial(manual, rates), params, x), LINES)

    assert found(0.0, 0).outputs == ("params['b']", "params['w']")
    assert found(0.0, 0).where.endswith(at(manual, 2))
    assert [found(0.0, 0.1), found(0.1, 0.1), found(x.sum(), 0.0)] == [None] * 3
    for make in (optax.adamw, optax.adam, partial(optax.sgd, momentum=0.9)):
        for rate in (0.0, 0.1, optax.linear_schedule(0.0, 0.1, 9)):
            optimizer = make(rate)
            state = optimizer.init(params)
            jaxpr = jaxpr_of(partial(by_optax, optimizer), params, state, x)
            assert (zeroed(jaxpr, LINES) is not None) == (rate == 0.0)
    assert zeroed(jaxpr_of(lambda mean, x: 0.9 * mean + 0.0 * x, x, x), LINES) is None
    assert zeroed(jaxpr_of(lambda total, x: total + 0.0 * x, 1.0, 2.0), LINES) is None


def forgetful(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    optax.apply_updates(params, jax.tree.map(jnp.negative, grads))  # the line
    return value


def evaluated(params, x):
    value, _ = jax.value_and_grad(loss)(params, x)
    return value, jax.tree.map(lambda p: p + 1, params)["w"].sum()


def block(params, x):
    w, b = params["w"], params["b"]
    return {"w": w + jnp.tanh(w @ x), "b": b + jnp.tanh(b @ x)}


def pulled_back(params, x):
    return jax.vjp(block, params, x)[1](params)


def test_updates_that_nothing_returns_are_found():
    """With names and line; a loss of which the gradient is not used is no update."""
    params, x = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}, jnp.ones((4, 3))
    found = unused(jaxpr_of(forgetful, params, x), LINES)

    assert found is not None
    assert found.outputs == ("params['b']", "params['w']")
    assert found.where.endswith(at(forgetful, 2))
    for fun in (evaluated, partial(manual, {"w": 0.1, "b": 0.1})):
        assert unused(jaxpr_of(fun, params, x), LINES) is None
    # What a function returns whose cotangents alone are wanted is no update.
    for fun in (pulled_back, jax.jacrev(block)):
        assert unused(jaxpr_of(fun, params, jnp.ones((2, 2))), LINES) is None


def walked(key, x):
    def body(x, _):
        noise = jax.random.normal(key, x.shape)  # the line
        return x + noise, None

    return jax.lax.scan(body, x, length=8)


def stepped(key, x):
    def body(x, key):
        return x + jax.random.normal(key, x.shape), None

    return jax.lax.scan(body, x, jax.random.split(key, 8))


def folded_in(key, x):
    def body(at, x):
        return x + jax.random.normal(jax.random.fold_in(key, at), x.shape)

    return jax.lax.fori_loop(0, 8, body, x)


def carried(key, x):
    def body(carry, noise):
        key, split = jax.random.split(carry[0])
        return (key, carry[1] + jax.random.normal(split, x.shape) + noise), None

    return jax.lax.scan(body, (key, x), jax.random.normal(key, (8, *x.shape)))


def test_loops_that_draw_the_same_in_each_pass():
    """By the line, within vmap and jit, too; not keys that are split or folded in."""
    x, keys = jnp.ones(4), jax.random.split(jax.random.key(0), 3)
    legacy = jax.random.PRNGKey(0)

    for fun, given in (
        (walked, (keys[0], x)),
        (walked, (legacy, x)),
        (jax.jit(jax.vmap(walked, (0, None))), (keys, x)),
    ):
        assert redrawn(jaxpr_of(fun, *given), LINES).endswith(at(walked, 2))
    for fun in (stepped, folded_in, carried):
        for key in (keys[0], legacy):
            assert redrawn(jaxpr_of(fun, key, x), LINES) == ""


def layer(x, w):
    return jnp.tanh(x @ w)  # the line


def test_products_that_a_batch_of_float64_widens():
    """By the line; not if all is in float64, or is converted to it."""
    with jax.enable_x64(new_val=True):
        wide, narrow = jnp.ones((3, 3)), jnp.ones((3, 3), jnp.float32)
        found = widened_at(
            jaxpr_of(jax.grad(lambda *of: layer(*of).sum()), wide, narrow), LINES
        )
        assert found.endswith(at(layer, 1))
        assert widened_at(jaxpr_of(layer, wide, wide), LINES) == ""
        meant = jaxpr_of(lambda x, w: layer(x, w.astype(jnp.float64)), wide, narrow)
        assert widened_at(meant, LINES) == ""
