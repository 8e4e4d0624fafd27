"""A small transformer, and the FLOPs of its training step by hand."""

from __future__ import annotations

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
