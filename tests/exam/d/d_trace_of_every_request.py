"""Translation worker, instrumented with the profiler. "Since we monitor the latency, the latency is bad."

Truth: jax.profiler.trace is around each request: starting, stopping and writing the trace takes much longer than the request.
Advice: profile a few requests on demand (every thousandth, or for a short time by a switch), measure latency otherwise with a clock.
"""
import time
T0 = time.perf_counter()
import json
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"profil|trace",)


@jax.jit
def translate(params, tokens):
    h = params["embed"][tokens]
    def layer(h, w):
        a = jax.nn.softmax(h @ h.T / 16) @ h
        return h + jax.nn.gelu(a @ w["up"]) @ w["down"], None
    h, _ = jax.lax.scan(layer, h, params["layers"])
    return jnp.argmax(h @ params["embed"].T, -1)


def answer(params, tokens):
    return np.asarray(translate(params, tokens))


def main():
    k = jax.random.split(jax.random.key(0), 3)
    params = {"embed": jax.random.normal(k[0], (2000, 128)),
              "layers": {"up": jax.random.normal(k[1], (8, 128, 512)) / 11, "down": jax.random.normal(k[2], (8, 512, 128)) / 23}}
    rng, lost, latencies, total = np.random.default_rng(0), 0.0, [], 0
    answer(params, np.zeros(64, np.int32))
    with tempfile.TemporaryDirectory() as folder:
        for request in range(300):
            tokens = rng.integers(0, 2000, 64).astype(np.int32)
            t = time.perf_counter()
            if FIXED:
                words = answer(params, tokens)
                latencies.append(time.perf_counter() - t)
            else:
                with jax.profiler.trace(folder):  # fault
                    begin = time.perf_counter()
                    words = answer(params, tokens)
                    latencies.append(time.perf_counter() - begin)
                lost += time.perf_counter() - t - latencies[-1]
            total += int(words.sum())
    print("checksum", total, "median latency", round(float(np.median(latencies)), 4))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))


main()
