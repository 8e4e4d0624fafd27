"""A scoring server for short texts: requests of any length are padded to one of three lengths, batched, and answered by
programs that are compiled before the first request.

Structure: AI-Hypercomputer/JetStream's and sgl-project/sglang-jax's precompile-then-serve loop, in small (threads instead of gRPC).
"""
import json
import queue
import threading
import time
from concurrent.futures import Future

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np

BUCKETS, BATCH, WIDTH, VOCAB, REQUESTS = (16, 32, 64), 8, 64, 1000, 900


def score(params, tokens):
    mask = (tokens > 0)[..., None]
    x = params["embed"][tokens]
    for w_in, w_out in params["mlp"]:
        mixed = jnp.cumsum(x * mask, axis=1) / jnp.maximum(jnp.cumsum(mask, axis=1), 1)
        x = x + jax.nn.gelu(mixed @ w_in) @ w_out
    return jax.nn.sigmoid((x * mask).sum(1) / jnp.maximum(mask.sum(1), 1) @ params["head"])[:, 0]


class Server:
    def __init__(self, params):
        self.params, self.inbox = params, queue.Queue(64)
        fn = jax.jit(score)
        self.programs = {n: fn.lower(params, jax.ShapeDtypeStruct((BATCH, n), jnp.int32)).compile() for n in BUCKETS}
        threading.Thread(target=self.loop, daemon=True).start()

    def submit(self, tokens):
        done = Future()
        self.inbox.put((tokens, done))
        return done

    def loop(self):
        while True:
            group = [self.inbox.get()]
            while len(group) < BATCH:
                try:
                    group.append(self.inbox.get(timeout=0.002))
                except queue.Empty:
                    break
            longest = max(len(t) for t, _ in group)
            bucket = next(b for b in BUCKETS if b >= longest)
            tokens = np.zeros((BATCH, bucket), np.int32)
            for row, (t, _) in enumerate(group):
                tokens[row, : len(t)] = t
            answers = np.asarray(self.programs[bucket](self.params, tokens))
            for (_, done), value in zip(group, answers):
                done.set_result(float(value))


draw = lambda i, *s: jax.random.normal(jax.random.fold_in(jax.random.key(0), i), s) / s[0] ** 0.5
params = {"embed": draw(0, VOCAB, WIDTH), "mlp": [(draw(2 * i + 1, WIDTH, 4 * WIDTH), draw(2 * i + 2, 4 * WIDTH, WIDTH)) for i in range(3)], "head": draw(9, WIDTH, 1)}
server = Server(params)


def client(number, latencies, values):
    rng = np.random.default_rng(number)
    for _ in range(REQUESTS // 6):
        t = time.perf_counter()
        values.append(server.submit(rng.integers(1, VOCAB, rng.integers(3, 65))).result())
        latencies.append(time.perf_counter() - t)


latencies, values = [], []
clients = [threading.Thread(target=client, args=(i, latencies, values)) for i in range(6)]
for c in clients:
    c.start()
for c in clients:
    c.join()
print(f"{len(values)} answers, mean {np.mean(values):.3f}, p50 {1e3 * np.median(latencies):.1f} ms, p99 {1e3 * np.quantile(latencies, 0.99):.1f} ms")
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
