"""Regression training over a sharded dataset; a thread decodes shards ahead. "After an hour the job just sits there. No error, no CPU."

Truth: a shard is truncated; np.load raises within the producer that runs in a ThreadPoolExecutor, whose future nobody looks at, so no sentinel is ever put: the main thread waits in queue.get for ever.
Advice: catch the exception in the producer and put it (or a sentinel) into the queue / call future.result(); use a time limit in get.
"""
import time
T0 = time.perf_counter()
import json
import os
import queue
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"queue|\bget\b|wait|block|stuck|hang|hung", r"died|dead|exception|crash|raised|failed|ValueError|EOFError|ended|finished|terminat|no (other )?(thread|producer)|nobody|gone|future")
watchdog = threading.Timer(40, lambda: os._exit(0))
watchdog.daemon = True
watchdog.start()
ROOT = tempfile.mkdtemp()
rng = np.random.default_rng(0)
true = rng.standard_normal((64, 8)).astype(np.float32)
for s in range(12):
    x = rng.standard_normal((4096, 64)).astype(np.float32)
    np.save(f"{ROOT}/x-{s:05d}.npy", np.concatenate([x, np.tanh(x @ true)], 1))
with open(f"{ROOT}/x-00007.npy", "r+b") as f:  # an interrupted copy
    f.truncate(300_000)


class Shards:
    def __init__(self, root, batch, epochs):
        self.paths = sorted(os.path.join(root, n) for n in os.listdir(root))
        self.batch, self.epochs, self.q = batch, epochs, queue.Queue(maxsize=8)

    def fill(self):
        order = np.random.default_rng(1)
        for _ in range(self.epochs):
            for path in order.permutation(self.paths):
                try:
                    data = np.load(path)  # fault
                except ValueError as e:
                    if not FIXED:
                        raise
                    print("skipping", os.path.basename(path), e, file=sys.stderr)
                    continue
                order.shuffle(data)
                for i in range(0, len(data), self.batch):
                    rows = data[i:i + self.batch]
                    self.q.put((rows[:, :64], rows[:, 64:]))
        self.q.put(None)

    def __iter__(self):
        pool = ThreadPoolExecutor(1, thread_name_prefix="shards")
        pool.submit(self.fill)  # fault
        while (item := self.q.get()) is not None:  # fault
            yield item
        pool.shutdown()


tx = optax.adamw(1e-3)


@jax.jit
def train_step(p, opt, x, y):
    def loss_fn(p):
        h = jax.nn.gelu(x @ p["a"])
        h = h + jax.nn.gelu(h @ p["b"])
        return jnp.mean((h @ p["c"] - y) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(p)
    updates, opt = tx.update(grads, opt, p)
    return optax.apply_updates(p, updates), opt, loss


k = jax.random.split(jax.random.key(0), 3)
p = {n: jax.random.normal(kk, s) * s[0] ** -0.5 for n, kk, s in zip("abc", k, [(64, 512), (512, 512), (512, 8)])}
opt, losses = tx.init(p), []
for step, (x, y) in enumerate(Shards(ROOT, 256, epochs=4)):  # fault
    p, opt, loss = train_step(p, opt, x, y)
    losses.append(loss)
    if step % 100 == 0:
        print("step", step, "loss", float(loss), flush=True)
print(len(losses), "steps, loss", float(losses[-1]))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
