"""Token generation is slow and gets slower the larger the key/value cache is allocated, although the append to the cache donates its buffer and only one row per layer is written.

Truth: donate_argnums stands on the inner jitted append, which is inlined into the outer jitted decode step; a donation there has no effect, so each token copies the whole cache.
Advice: donate the cache at the outer jit (donate_argnums on decode_step).
"""
import time
T0 = time.perf_counter()
import functools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"donat|in.?place|alias", r"copy|copie|cache|buffer|memory|inner|nested|outer|allocat")
LAYERS, SLOTS, WIDTH, VOCAB, TOKENS = 6, 16384, 256, 512, 100


@functools.partial(jax.jit, donate_argnums=0)  # fault
def append(cache, layer, position, row):
    return jax.lax.dynamic_update_slice(cache, row[None, None], (layer, position, 0))


def decode_step(cache, params, token, position):
    x = params["embed"][token]
    for layer in range(LAYERS):
        cache = append(cache, layer, position, x @ params["kv"][layer])  # fault
        window = jax.lax.dynamic_slice(cache, (layer, jnp.maximum(position - 63, 0), 0), (1, 64, WIDTH))[0]
        weights = jax.nn.softmax(window @ (x @ params["q"][layer]) * WIDTH**-0.5)
        x = x + (weights @ window) @ params["out"][layer]
    return cache, jnp.argmax(params["embed"] @ x), position + 1


if FIXED:
    decode = jax.jit(decode_step, donate_argnums=0)
else:
    decode = jax.jit(decode_step)  # fault

keys = jax.random.split(jax.random.key(0), 4)
params = {
    "embed": jax.random.normal(keys[0], (VOCAB, WIDTH)),
    "kv": jax.random.normal(keys[1], (LAYERS, WIDTH, WIDTH)) * 0.06,
    "q": jax.random.normal(keys[2], (LAYERS, WIDTH, WIDTH)) * 0.06,
    "out": jax.random.normal(keys[3], (LAYERS, WIDTH, WIDTH)) * 0.06,
}
cache = jnp.zeros((LAYERS, SLOTS, WIDTH))


def generate(decode, cache, count):
    token, position, times = jnp.int32(1), jnp.int32(0), []
    for _ in range(count):
        t = time.perf_counter()
        cache, token, position = decode(cache, params, token, position)
        int(token)
        times.append(time.perf_counter() - t)
    return cache, times


cache, times = generate(decode, cache, TOKENS)
print(f"cache {cache.nbytes / 2**20:.0f} MiB, token {1e3 * np.median(times):.1f} ms")
lost = 0.0
if not FIXED:  # the yardstick: the same step in place
    _, in_place = generate(jax.jit(decode_step, donate_argnums=0), cache, 10)
    lost = sum(times[1:]) - np.median(in_place) * TOKENS
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(float(lost), 3)}))
