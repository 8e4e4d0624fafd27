"""Programs whose FLOPs are known: a small transformer, and products of matrices."""

from collections.abc import Callable
from typing import Any


LAYERS, WIDTH, HEADS, HIDDEN, WORDS = 3, 8, 2, 12, 11
BATCH, LENGTH = 2, 5
TOKENS = BATCH * LENGTH
# Of a forward pass: queries, keys, values and outputs; scores and their use; the two
# layers of a perceptron; the words.
PROJECTIONS = 4 * 2 * TOKENS * WIDTH * WIDTH
ATTENTION = 2 * 2 * BATCH * LENGTH * LENGTH * WIDTH
PERCEPTRON = 2 * 2 * TOKENS * WIDTH * HIDDEN
LAYER = PROJECTIONS + ATTENTION + PERCEPTRON
LOGITS = 2 * TOKENS * WIDTH * WORDS
# Each product of a forward pass needs two more for the gradients of its operands.
STEP = 3 * (LAYERS * LAYER + LOGITS)


def ones(*shape: int, dtype: str = "float32") -> Any:
    import jax.numpy as jnp

    return jnp.ones(shape, dtype)


def layer(x: Any, weights: dict[str, Any]) -> Any:
    """Return what a layer of a transformer makes of *x*."""
    import jax
    import jax.numpy as jnp

    q, k, v = (jnp.einsum("bsd,dhk->bshk", x, weights[name]) for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bshk,bthk->bhst", q, k))
    mixed = jnp.einsum("bhst,bthk->bshk", scores, v)
    x = x + jnp.einsum("bshk,hkd->bsd", mixed, weights["o"])
    return x + jax.nn.gelu(x @ weights["in"]) @ weights["out"]


def weights_of(*leading: int) -> dict[str, Any]:
    """Return the weights of a layer, or of several that are scanned."""
    head = WIDTH // HEADS
    shapes = dict.fromkeys("qkv", (WIDTH, HEADS, head))
    others = {"o": (HEADS, head, WIDTH), "in": (WIDTH, HIDDEN), "out": (HIDDEN, WIDTH)}
    return {n: ones(*leading, *shape) for n, shape in (shapes | others).items()}


def step(body: Callable[..., Any], words: Any, layers: Any, tokens: Any) -> Any:
    """Train on *tokens*: a transformer whose *layers* are a list, or scanned."""
    import jax
    import jax.numpy as jnp

    def loss(layers: Any, words: Any) -> Any:
        x = words[tokens]
        if isinstance(layers, list):
            for one in layers:
                x = body(x, one)
        else:
            x, _ = jax.lax.scan(lambda x, one: (body(x, one), None), x, layers)
        logits = jax.nn.log_softmax(x @ words.T)
        return -jnp.mean(jnp.take_along_axis(logits, tokens[..., None], -1))

    value, slopes = jax.value_and_grad(loss, (0, 1))(layers, words)
    return value, jax.tree.map(lambda a, b: a - 0.1 * b, (layers, words), slopes)


def tokens() -> Any:
    import jax.numpy as jnp

    return jnp.zeros((BATCH, LENGTH), int)


PRODUCT = 2 * 4 * 6 * 6


def product(x: Any) -> Any:
    return x @ ones(6, 6)


def looped(trips: int, x: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, trips, lambda _, y: product(y), x)


def nested(x: Any) -> Any:
    import jax

    return jax.lax.scan(lambda y, _: (looped(5, y), None), x, length=7)[0]


def counted_while(start: int, step: int, goes_on: Callable[[Any], Any], x: Any) -> Any:
    import jax

    return jax.lax.while_loop(
        lambda state: goes_on(state[0]),
        lambda state: (state[0] + step, product(state[1])),
        (start, x),
    )


def branches(x: Any, other: Callable[[Any], Any]) -> Any:
    import jax

    return jax.lax.cond(x[0, 0] > 0, product, other, x)


def until_large(x: Any) -> Any:
    import jax

    return jax.lax.while_loop(lambda y: y.sum() < 1e6, product, x)


def times_to(x: Any, number: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, number, lambda _, y: product(y), x)


def convolution(x: Any, kernel: Any, **options: Any) -> Any:
    import jax

    options = {"window_strides": (1, 1), "padding": "VALID", **options}
    return jax.lax.conv_general_dilated(x, kernel, **options)


def slopes_of_convolution(x: Any, kernel: Any) -> Any:
    import jax

    return jax.grad(lambda x, kernel: convolution(x, kernel).sum(), (0, 1))(x, kernel)


def mapped(x: Any) -> Any:
    import jax

    return jax.vmap(product)(x)


def ragged(x: Any, groups: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.lax.ragged_dot(x, groups, jnp.array([1, 3]))


def jitted_twice(x: Any) -> Any:
    import jax

    once = jax.jit(product)
    return once(once(x))


def with_rules(x: Any) -> Any:
    import jax

    fun = jax.custom_vjp(product)
    fun.defvjp(lambda x: (product(x), None), lambda _, slope: (product(slope),))
    return jax.grad(lambda x: fun(x).sum())(x)


def outside(x: Any) -> Any:
    import jax

    ffi = jax.ffi if hasattr(jax, "ffi") else jax.extend.ffi
    kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return ffi.ffi_call("a_library", kind)(x)


def factored(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.linalg.cholesky(x @ x.T)


CONVOLVED = 2 * 2 * 5 * 7 * 7 * 3 * 3 * 3
