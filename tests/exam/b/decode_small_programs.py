"""A small language model is served token by token. The model itself needs half a millisecond per token in the micro
benchmark, in the server a token takes many times that, at any batch size.

Truth: around the jitted model each decode step dispatches two dozen tiny eager operations (casts, key splits, penalties, top-k masks, bookkeeping); their dispatch takes longer than the model.
Advice: move sampling and bookkeeping into the jitted step (one program per token), fold the step number into the key inside.

Source: vllm-project/tpu-inference#3237.
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp

FIXED = "--fixed" in sys.argv
WORDS = (r"eager|dispatch|op.?by.?op|small (op|program|call)|tiny|un-?jitted|outside (of )?(the )?jit|many (op|program|call|small)|python|host", r"jit|fuse|one program|compile|together|overhead|single|dispatch|host")
BATCH, WIDTH, VOCAB, CONTEXT, TOKENS = 4, 96, 512, 64, 2200


def next_logits(params, cache, token, position):
    x = params["embed"][token]
    keys = cache["k"].at[:, position].set(x @ params["key"])
    values = cache["v"].at[:, position].set(x @ params["value"])
    scores = jnp.einsum("bd,btd->bt", x @ params["query"], keys) / WIDTH**0.5
    scores = jnp.where(jnp.arange(CONTEXT) <= position, scores, -1e9)
    x = x + jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), values)
    x = x + jax.nn.gelu(x @ params["up"]) @ params["down"]
    return (x @ params["embed"].T).astype(jnp.bfloat16), {"k": keys, "v": values}


def sample(key, logits, counts):
    """Penalise repetition, keep the forty best, temperature 0.8."""
    logits = logits.astype(jnp.float32)
    seen = counts > 0
    logits = jnp.where(seen, logits - 0.3 * counts, logits)
    logits = jnp.where(seen & (logits > 0), logits / 1.1, logits)
    best, _ = jax.lax.top_k(logits, 40)
    logits = jnp.where(logits < best[:, -1:], -1e9, logits / 0.8)
    gumbel = -jnp.log(-jnp.log(jax.random.uniform(key, logits.shape, minval=1e-9)))
    token = jnp.argmax(logits + gumbel, axis=-1)
    logprob = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logprob, token[:, None], axis=1)[:, 0]
    counts = counts.at[jnp.arange(BATCH), token].add(1.0)
    return token, chosen, counts * 0.99


model = jax.jit(next_logits)


@jax.jit
def whole_step(params, cache, token, position, key, counts):
    logits, cache = next_logits(params, cache, token, position)
    token, chosen, counts = sample(jax.random.fold_in(key, position), logits, counts)
    return token, chosen, counts, cache


draw = lambda i, *s: jax.random.normal(jax.random.fold_in(jax.random.key(0), i), s) / s[0] ** 0.5
params = {n: draw(i, WIDTH, WIDTH) for i, n in enumerate(("query", "key", "value"))}
params |= {"embed": draw(7, VOCAB, WIDTH), "up": draw(8, WIDTH, 4 * WIDTH), "down": draw(9, 4 * WIDTH, WIDTH)}


def generate(tokens, seed):
    cache = {n: jnp.zeros((BATCH, CONTEXT, WIDTH)) for n in "kv"}
    token, counts, key = jnp.arange(BATCH), jnp.zeros((BATCH, VOCAB)), jax.random.key(seed)
    total, outside = 0.0, 0.0
    for i in range(tokens):
        position = i % CONTEXT
        if FIXED:
            token, chosen, counts, cache = whole_step(params, cache, token, position, key, counts)
        else:
            logits, cache = jax.block_until_ready(model(params, cache, token, position))
            t = time.perf_counter()
            key, sub = jax.random.split(key)  # fault
            token, chosen, counts = jax.block_until_ready(sample(sub, logits, counts))  # fault
            outside += time.perf_counter() - t
        total += float(chosen.mean())
    return total / tokens, outside


generate(3, 0)
mean_logprob, lost = generate(TOKENS, 1)
print("mean log probability", round(mean_logprob, 3))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
