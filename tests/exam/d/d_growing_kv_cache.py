"""Text generation with a small decoder. "The first story takes ages, token by token, the next one is fine; a longer one is slow again."

Truth: the key/value cache grows by concatenation, so each token has arrays of a new shape and decode_step is compiled anew for each position.
Advice: allocate the cache once at the maximal length, write with dynamic_update_slice and mask the positions behind the current one.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"shape|length|size|grow|concat|cache")
DIM, HEADS, LAYERS, VOCAB, LONGEST = 128, 4, 2, 512, 14


def init(key):
    keys = iter(jax.random.split(key, 2 + 4 * LAYERS))
    mat = lambda a, b: jax.random.normal(next(keys), (a, b)) / a**0.5
    return {"embed": mat(VOCAB, DIM), "out": mat(DIM, VOCAB),
            "layers": [{"qkv": mat(DIM, 3 * DIM), "o": mat(DIM, DIM), "up": mat(DIM, 4 * DIM), "down": mat(4 * DIM, DIM)}
                       for _ in range(LAYERS)]}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


@jax.jit
def decode_step(params, cache, token, pos):
    x = params["embed"][token]
    new_cache = []
    for layer, (ks, vs) in zip(params["layers"], cache):
        q, k, v = jnp.split((norm(x) @ layer["qkv"]).reshape(3 * HEADS, -1), 3)
        if FIXED:
            ks = jax.lax.dynamic_update_slice(ks, k[None], (pos, 0, 0))
            vs = jax.lax.dynamic_update_slice(vs, v[None], (pos, 0, 0))
        else:
            ks, vs = jnp.concatenate([ks, k[None]]), jnp.concatenate([vs, v[None]])  # fault
        scores = jnp.einsum("hd,thd->ht", q, ks) / (DIM // HEADS) ** 0.5
        scores = jnp.where(jnp.arange(ks.shape[0]) <= pos, scores, -1e9)
        x = x + jnp.einsum("ht,thd->hd", jax.nn.softmax(scores), vs).reshape(-1) @ layer["o"]
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
        new_cache.append((ks, vs))
    return jnp.argmax(norm(x) @ params["out"]).astype(jnp.int32), new_cache


def main():
    params = init(jax.random.key(0))
    lost, compiled = 0.0, 0
    for story in range(80):
        room = LONGEST if FIXED else 0
        cache = [(jnp.zeros((room, HEADS, DIM // HEADS)),) * 2 for _ in range(LAYERS)]
        token, text = jnp.int32(story), []
        for pos in range(10 if story < 40 else LONGEST):
            t = time.perf_counter()
            token, cache = decode_step(params, cache, token, jnp.int32(pos))  # fault
            text.append(int(token))  # the reader sees each word at once
            if decode_step._cache_size() > compiled:
                compiled += 1
                lost += time.perf_counter() - t if compiled > 1 else 0.0
        if story % 20 == 0:
            print("story", story, text[:8])
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))


main()
