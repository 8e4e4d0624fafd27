"""Ways to fail, each of another part of JAX."""

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


cases: dict[str, Callable[[], None]] = {}


def case(function):
    cases[function.__name__] = function
    return function


class RefusedError(Exception):
    """What the user's functions raise."""


def refuse(x):
    error = RefusedError("from the user's function")
    error.add_note("with a note")
    raise error


@jax.jit
def inner(x):
    return refuse(x)


@jax.jit
def outer(x):
    return inner(x) + 1


@jax.jit
def good(x):
    return jnp.sin(x) * 2


@jax.jit
def two(x, y):
    return x + y


class Model:
    @jax.jit
    def method(self, x):
        return refuse(x)


jax.tree_util.register_pytree_node(Model, lambda _: ((), None), lambda *_: Model())


@case
def traced_with_cause():
    def wraps(x):
        try:
            inner(x)
        except RefusedError as error:
            raise ValueError(error) from error

    jax.jit(wraps)(1.0)


@case
def traced_while_handling_another():
    try:
        os.environ["NO_SUCH_VARIABLE"]
    except KeyError:
        inner(1.0)


@case
def leaked_tracer():
    seen: list[Any] = []
    jax.jit(seen.append)(1.0)
    good(seen[0])


@case
def wrong_type_cached():
    good(1.0)
    good(object())


@case
def deleted_on_cached_call():
    array = jnp.ones(3)
    good(array)
    array.delete()
    good(array)


@case
def donated_on_cached_call():
    take = jax.jit(lambda x: x + 1, donate_argnums=0)
    array = jnp.ones(5)
    take(array)
    array.delete()
    take(array)


@case
def nan_on_cached_call():
    with jax.debug_nans(True):  # noqa: FBT003 - its signature
        good(1.0)
        good(np.nan)


@case
def callback_on_cached_call():
    def broken(x):
        raise RefusedError(x)

    shape = jax.ShapeDtypeStruct((), np.float32)
    called = jax.jit(lambda x: jax.pure_callback(broken, shape, x))
    jax.block_until_ready(called(np.float32(1)))


@case
def compile_refused():
    compiled = jax.jit(good).lower(1.0)
    compiled.compile(compiler_options={"xla_no_such_option": True})


@case
def compile_refused_in_call():
    if "compiler_options" not in inspect.signature(jax.jit).parameters:
        compile_refused()
    jax.jit(lambda x: x + 1, compiler_options={"xla_no_such_option": True})(1.0)


@case
def interrupted():
    def interrupt(_):
        raise KeyboardInterrupt

    jax.jit(interrupt)(1.0)


cases.update(
    traced=lambda: inner(1.0),
    traced_nested=lambda: outer(1.0),
    traced_through_vmap=lambda: jax.vmap(inner)(np.ones(3)),
    traced_through_grad=lambda: jax.grad(outer)(1.0),
    traced_through_jit_of_vmap_of_grad=lambda: jax.jit(jax.vmap(jax.grad(outer)))(
        np.ones(3)
    ),
    traced_through_scan=lambda: jax.lax.scan(
        lambda c, x: (inner(c), x), 1.0, np.ones(3)
    ),
    traced_through_checkpoint=lambda: jax.grad(jax.checkpoint(inner))(1.0),
    traced_through_pmap=lambda: jax.pmap(inner)(np.ones((2, 1))),
    traced_method=lambda: Model().method(1.0),
    traced_lambda_made_here=lambda: jax.jit(lambda x: refuse(x) + 1)(1.0),
    concretized=lambda: jax.jit(lambda x: 1 if x > 0 else 2)(1.0),
    wrong_shapes=lambda: two(np.ones(2), np.ones(3)),
    missing_argument=lambda: two(1.0),
    wrong_type=lambda: good("text"),
    unhashable_static=lambda: jax.jit(lambda x, _: x, static_argnums=1)(1.0, []),
    ahead_of_time_mismatch=lambda: good.lower(np.ones(3)).compile()(np.ones(4)),
    lowered=lambda: outer.lower(1.0),
    shape_evaluated=lambda: jax.eval_shape(outer, 1.0),
    jaxpr_made=lambda: jax.make_jaxpr(outer)(1.0),
    exited=lambda: jax.jit(lambda _: sys.exit(3))(1.0),
)
