"""Feature extraction with a process pool never finishes: no error, no CPU use, the pool's map just does not return. It worked before we warmed up the model first.

Truth: the pool forks the process after JAX has started its threads; the children inherit locks and a thread pool whose threads do not exist in them, so their first jax.numpy call waits for ever.
Advice: use the "spawn" (or "forkserver") start method, start the pool before the first JAX call and keep JAX out of the workers, or use threads.
"""
import json
import multiprocessing as mp
import os
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"fork|multiprocess|child|worker process|pool", r"hang|hung|dead ?lock|stuck|wait|blocked|no progress|not return|stall|spawn")


def spectrum(seed):
    wave = np.random.default_rng(seed).standard_normal((64, 4096)).astype(np.float32)
    power = jnp.abs(jnp.fft.rfft(jnp.asarray(wave))) ** 2
    return np.asarray(jnp.log1p(power).reshape(64, -1)[:, :2048].mean(0))


@jax.jit
def encode(weights, features):
    for w in weights:
        features = jnp.tanh(features @ w)
    return features


def give_up(start, hung_since):
    print(json.dumps({"wall": round(time.perf_counter() - start, 2), "lost": round(time.perf_counter() - hung_since[0], 2)}), flush=True)
    for child in mp.active_children():
        child.kill()
    os._exit(3)


def main():
    start, hung_since = time.perf_counter(), [time.perf_counter()]
    dog = threading.Timer(40, give_up, (start, hung_since))
    dog.daemon = True
    dog.start()
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.standard_normal((2048, 2048)) / 45, jnp.float32) for _ in range(3)]
    encode(weights, jnp.zeros((64, 2048))).block_until_ready()
    print("model is warm")
    with mp.get_context("spawn" if FIXED else "fork").Pool(2) as pool:  # fault
        hung_since[0] = time.perf_counter()
        features = pool.map(spectrum, range(64))  # fault
    for _ in range(20):
        codes = encode(weights, np.stack(features)).block_until_ready()
    print("mean code", float(codes.mean()))
    print(json.dumps({"wall": round(time.perf_counter() - start, 2), "lost": 0}))
    dog.cancel()


if __name__ == "__main__":
    main()
