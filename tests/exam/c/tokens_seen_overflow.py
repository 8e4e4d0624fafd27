"""The language model resumed from its two-billion-token checkpoint and trained on happily; an hour later (here: after 70 steps) the loss is NaN, each time at the same step.

Truth: the count of tokens seen is an int32 array; it passes 2**31, wraps to a negative number without an error, and the inverse-square-root schedule takes the root of a negative number.
Advice: count tokens as a Python integer on the host, in float32 or in units of thousands (or with x64), and guard the schedule.
"""
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"overflow|wrap|int32|negative|2\*\*31|2\^31|nan|not finite|non-?finite",)
TOKENS_PER_STEP = 2048 * 1024
VOCAB, DIM, CONTEXT = 96, 128, 8


def init(key):
    a, b, c = jax.random.split(key, 3)
    return {
        "embed": 0.1 * jax.random.normal(a, (VOCAB, DIM)),
        "mix": jax.random.normal(b, (CONTEXT * DIM, DIM)) / np.sqrt(CONTEXT * DIM),
        "head": jax.random.normal(c, (DIM, VOCAB)) / np.sqrt(DIM),
    }


def loss_fn(params, window, target):
    h = params["embed"][window].reshape(len(window), -1)
    logits = jnp.tanh(h @ params["mix"]) @ params["head"]
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(target)), target])


@jax.jit
def step(state, window, target):
    loss, grads = jax.value_and_grad(loss_fn)(state["params"], window, target)
    lr = 0.5 * jnp.sqrt(1e9 / state["tokens"])
    params = jax.tree.map(lambda p, g: p - lr * g, state["params"], grads)
    return {"params": params, "tokens": state["tokens"] + TOKENS_PER_STEP}, loss  # fault


def main():
    rng = np.random.default_rng(4)
    text = np.cumsum(rng.integers(1, 4, 200_000)) % VOCAB
    seen = 2_000_000_000
    tokens = jnp.float32(seen) if FIXED else jnp.int32(seen)  # fault
    state = {"params": jax.jit(init)(jax.random.key(0)), "tokens": tokens}
    offsets = np.arange(CONTEXT + 1)
    for i in range(400):
        rows = text[rng.integers(0, len(text) - CONTEXT - 1, 512)[:, None] + offsets]
        state, loss = step(state, rows[:, :-1], rows[:, -1])
        if i % 40 == 39:
            print(f"step {i + 1} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": None if not FIXED else 0}))


main()
