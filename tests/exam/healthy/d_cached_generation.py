"""Generation with a preallocated key/value cache: prefill and a scan over the new tokens in one compiled function; structure as in the decoding loops of gemma and MaxText."""
import time
T0 = time.perf_counter()
import json

import jax
import jax.numpy as jnp
import numpy as np

DIM, HEADS, LAYERS, VOCAB, PROMPT, NEW, BATCH = 128, 4, 2, 600, 32, 48, 4
HEAD = DIM // HEADS


def init(key):
    keys = iter(jax.random.split(key, 1 + 4 * LAYERS))
    mat = lambda a, b: jax.random.normal(next(keys), (a, b)) / a**0.5
    layers = [{"qkv": mat(DIM, 3 * DIM), "o": mat(DIM, DIM), "up": mat(DIM, 4 * DIM), "down": mat(4 * DIM, DIM)} for _ in range(LAYERS)]
    return {"embed": mat(VOCAB, DIM), "layers": layers}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def forward(params, cache, tokens, start):
    """tokens: (batch, n) at the positions start, start+1, ...; returns logits of the last and the cache."""
    x = params["embed"][tokens]
    n = tokens.shape[1]
    rows = start + jnp.arange(n)
    mask = jnp.arange(PROMPT + NEW)[None, :] <= rows[:, None]
    new_cache = []
    for layer, (ks, vs) in zip(params["layers"], cache):
        q, k, v = jnp.split((norm(x) @ layer["qkv"]).reshape(BATCH, n, 3 * HEADS, HEAD), 3, axis=2)
        ks = jax.lax.dynamic_update_slice(ks, k, (0, start, 0, 0))
        vs = jax.lax.dynamic_update_slice(vs, v, (0, start, 0, 0))
        scores = jnp.where(mask, jnp.einsum("bqhd,bkhd->bhqk", q, ks) / HEAD**0.5, -1e9)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), vs).reshape(BATCH, n, DIM)
        x = x + mixed @ layer["o"]
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
        new_cache.append((ks, vs))
    return norm(x[:, -1]) @ params["embed"].T, new_cache


@jax.jit
def generate(params, prompts, key):
    empty = [(jnp.zeros((BATCH, PROMPT + NEW, HEADS, HEAD)),) * 2 for _ in range(LAYERS)]
    logits, cache = forward(params, empty, prompts, 0)

    def step(carry, inputs):
        logits, cache = carry
        position, k = inputs
        token = jax.random.categorical(k, logits / 0.8)
        logits, cache = forward(params, cache, token[:, None], position)
        return (logits, cache), token

    _, tokens = jax.lax.scan(step, (logits, cache), (PROMPT + jnp.arange(NEW), jax.random.split(key, NEW)))
    return tokens.T


def main():
    params = init(jax.random.key(0))
    rng, key, total = np.random.default_rng(0), jax.random.key(1), 0
    for n in range(16):
        prompts = rng.integers(0, VOCAB, (BATCH, PROMPT)).astype(np.int32)
        text = np.asarray(generate(params, prompts, jax.random.fold_in(key, n)))
        total += text.size
        if n % 5 == 0:
            print("batch", n, text[0, :8].tolist())
    print(total, "tokens")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))


main()
