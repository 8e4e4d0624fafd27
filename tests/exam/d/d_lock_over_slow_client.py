"""Server that streams generated samples to clients. "A few clients on slow lines make everybody slow."

Truth: the lock of the model is held while the answer is written to the client: during slow writes the others wait for the lock and the device idles.
Advice: hold the lock only for the computation; copy the result to the host, release, then write.
"""
import time
T0 = time.perf_counter()
import json
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"lock|contention|acquire|mutex|serial", r"wait|held|hold|writ|send|block|idle|client|slow")
lost_by_thread = []


@jax.jit
def generate(params, key):
    def step(x, k):
        x = x - 0.05 * jnp.tanh(x @ params["a"]) @ params["b"] + 0.05 * jax.random.normal(k, x.shape)
        return x, None
    x, _ = jax.lax.scan(step, jax.random.normal(key, (64, 256)), jax.random.split(key, 20))
    return x


class Line:
    """Stands for a socket; `delay` per 16 kB is what the client's line takes."""
    def __init__(self, delay):
        self.delay, self.sent = delay, 0

    def write(self, data):
        for _ in range(0, len(data), 16_384):
            time.sleep(self.delay)
        self.sent += len(data)


def session(n, line, params, model_lock, requests):
    waited = 0.0
    for i in range(requests):
        key = jax.random.fold_in(jax.random.key(n), i)
        t = time.perf_counter()
        with model_lock:  # fault
            waited += time.perf_counter() - t
            sample = np.asarray(generate(params, key))
            if not FIXED:
                line.write(sample.tobytes())  # fault
        if FIXED:
            line.write(sample.tobytes())
    lost_by_thread.append(waited)


def main():
    k = jax.random.split(jax.random.key(1), 2)
    params = {"a": jax.random.normal(k[0], (256, 256)) / 16, "b": jax.random.normal(k[1], (256, 256)) / 16}
    generate(params, jax.random.fold_in(jax.random.key(0), 0)).block_until_ready()
    lines = [Line(0.04) for _ in range(3)] + [Line(0.002)]
    model_lock = threading.Lock()
    sessions = [threading.Thread(target=session, args=(n, line, params, model_lock, 15)) for n, line in enumerate(lines)]
    t = time.perf_counter()
    [s.start() for s in sessions]
    [s.join() for s in sessions]
    print(f"60 samples in {time.perf_counter() - t:.2f} s")
    # what a client waited for the lock on average
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": sum(lost_by_thread) / len(lost_by_thread)}))


main()
