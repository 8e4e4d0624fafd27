"""Server of a small language model with warm-up. "After the warm-up the first request of each size still takes seconds."

Truth: the warm-up passes the temperature as a Python float (weak type), the requests pass np.float32 from the parsed message: another signature, so every bucket is compiled a second time, under traffic.
Advice: warm up with exactly the types of the requests (np.float32(1.0)), and check after the warm-up that nothing compiles any more.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"weak|dtype|type|warm|signature")
DIM, VOCAB, BUCKETS = 192, 1000, (32, 64, 128)


@jax.jit
def next_token(params, tokens, length, temperature, key):
    x = params["embed"][tokens]
    n = tokens.shape[0]
    causal = jnp.tril(jnp.ones((n, n), bool))
    for layer in params["layers"]:
        q, k, v = jnp.split(x @ layer["qkv"], 3, -1)
        weights = jax.nn.softmax(jnp.where(causal, q @ k.T / DIM**0.5, -1e9))
        x = x + weights @ v
        x = x + jax.nn.gelu(x @ layer["up"]) @ layer["down"]
    logits = x[length - 1] @ params["embed"].T / temperature
    top, ids = jax.lax.top_k(logits, 50)
    return ids[jax.random.categorical(key, top)]


def parse(message):
    """What comes in from the wire: fixed-width binary fields."""
    temperature = np.frombuffer(message[:4], np.float32)[0]
    return np.frombuffer(message[4:], np.int32), temperature


def pad(tokens):
    bucket = next(b for b in BUCKETS if b >= len(tokens))
    return np.pad(tokens, (0, bucket - len(tokens)))


def main():
    keys = iter(jax.random.split(jax.random.key(0), 40))
    mat = lambda a, b: jax.random.normal(next(keys), (a, b)) / a**0.5
    params = {"embed": mat(VOCAB, DIM), "layers": [{"qkv": mat(DIM, 3 * DIM), "up": mat(DIM, 4 * DIM), "down": mat(4 * DIM, DIM)} for _ in range(3)]}
    key = jax.random.key(1)
    for bucket in BUCKETS:
        temperature = np.float32(1.0) if FIXED else 1.0  # fault
        next_token(params, np.zeros(bucket, np.int32), np.int32(bucket), temperature, key).block_until_ready()  # fault
    print(f"warm after {time.perf_counter() - T0:.1f} s")
    rng, lost, compiled, slowest = np.random.default_rng(0), 0.0, next_token._cache_size(), 0.0
    for request in range(100):
        message = np.float32(0.8).tobytes() + rng.integers(0, VOCAB, rng.integers(5, 128)).astype(np.int32).tobytes()
        t = time.perf_counter()
        tokens, temperature = parse(message)
        token = int(next_token(params, pad(tokens), np.int32(len(tokens)), temperature, jax.random.fold_in(key, request)))  # fault
        took = time.perf_counter() - t
        slowest = max(slowest, took)
        if next_token._cache_size() > compiled:
            compiled, lost = next_token._cache_size(), lost + took
    print(f"last token {token}, slowest request {slowest:.2f} s")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))


main()
