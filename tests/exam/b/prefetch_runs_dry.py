"""For the first twenty steps the training is quick, from then on it stutters: some steps at full speed, then one that takes
four times as long, again and again. The prefetch queue was made twice as deep; then it was quick for forty steps.

Truth: the loader fetches windows of four batches in one blocking request, one request at a time, at a lower rate than the steps need; the warm queue only hides it, then the loop waits for data.
Advice: fetch several windows concurrently (or batch by batch in parallel) so that the sustained rate exceeds the consumption; a deeper queue does not help.

Source: marin-community/marin#7474.
"""
import json
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"data|loader|input|queue|prefetch|iterator|batch", r"wait|starv|slow|stall|idle|drain|empty|behind|bound|bottleneck")
STEPS, DEPTH, WINDOW, CONCURRENT = 110, 8, 4, 4 if FIXED else 1  # fault


def get_batch(window):
    """One range request to the object store for WINDOW batches; the wait stands for the network."""
    time.sleep(0.42)
    rng = np.random.default_rng(window)
    return [rng.normal(size=(64, 128)).astype(np.float32) for _ in range(WINDOW)]


class Loader:
    def __init__(self):
        self.queue, self.waited = queue.Queue(DEPTH), 0.0
        threading.Thread(target=self.produce, daemon=True).start()

    def produce(self):
        windows = -(-STEPS // WINDOW)
        with ThreadPoolExecutor(CONCURRENT) as pool:
            for batches in pool.map(get_batch, range(windows)):  # fault
                for batch in batches:
                    self.queue.put(batch)

    def __iter__(self):
        for _ in range(STEPS):
            t = time.perf_counter()
            batch = self.queue.get()  # fault
            self.waited += time.perf_counter() - t
            yield batch


optimizer = optax.adam(1e-3)


@jax.jit
def train_step(params, opt_state, x):
    def loss_fn(p):
        code = jax.nn.relu(x @ p["enc"] + p["bias"])
        return jnp.mean((code @ p["dec"] - x) ** 2) + 1e-4 * jnp.abs(code).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


key = jax.random.key(0)
params = {"enc": jax.random.normal(key, (128, 2048)) / 12, "bias": jnp.zeros(2048), "dec": jax.random.normal(key, (2048, 128)) / 45}
opt_state = optimizer.init(params)
jax.block_until_ready(train_step(params, opt_state, np.zeros((64, 128), np.float32)))
loader = Loader()
time.sleep(1.0)  # other set-up work, the queue fills meanwhile
for step, batch in enumerate(loader):
    for _ in range(3):  # three passes over each batch
        params, opt_state, loss = train_step(params, opt_state, batch)
    loss.block_until_ready()
    if step % 20 == 0:
        print("step", step, "loss", float(loss))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(loader.waited, 2)}))
