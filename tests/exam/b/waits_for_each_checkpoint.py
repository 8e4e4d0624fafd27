"""We use Orbax's asynchronous checkpointing, and still the training pauses at each save, the longer the bigger the
model. The storage is a network share.

Truth: `wait_until_finished()` right after each `save()` makes the asynchronous save synchronous: the loop waits for the write.
Advice: call it once at the end of the run (the next save waits by itself if it must); save less often.

Source: AI-Hypercomputer/maxtext#347 (its standalone checkpointer), AI-Hypercomputer/maxtext#871.
"""
import json
import logging
import sys
import tempfile
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

logging.disable(logging.WARNING)
FIXED = "--fixed" in sys.argv
WORDS = (r"checkpoint|sav(e|ing)|write|orbax", r"wait|block|async|background|synchron|overlap|less often|pause|stall|seldom")
WIDTH, LAYERS, STEPS, EVERY = 512, 4, 84, 12


class SlowShare(ocp.PyTreeCheckpointHandler):
    """Stands for the network share: a flush that takes its time after the data have been handed over."""

    def finalize(self, directory):
        super().finalize(directory)
        time.sleep(0.8)


@jax.jit
def train_step(state, x):
    def loss_fn(params):
        h = x
        for w in params:
            h = jax.nn.silu(h @ w) + h
        return jnp.mean((h - jnp.roll(x, 1, axis=1)) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state["params"])
    updates, opt_state = optimizer.update(grads, state["opt"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt_state}, loss


optimizer = optax.adam(1e-4)
key = jax.random.key(0)
params = [0.3 * jax.random.normal(k, (WIDTH, WIDTH)) / WIDTH**0.5 for k in jax.random.split(key, LAYERS)]
state = {"params": params, "opt": optimizer.init(params)}
x = jax.random.normal(key, (896, WIDTH))
waited = 0.0
with tempfile.TemporaryDirectory() as folder:
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=True)
    manager = ocp.CheckpointManager(folder, ocp.AsyncCheckpointer(SlowShare()), options=options)
    for step in range(1, STEPS + 1):
        state, loss = train_step(state, x)
        loss.block_until_ready()
        if step % EVERY == 0:
            t = time.perf_counter()
            manager.save(step, state)
            if not FIXED:
                manager.wait_until_finished()  # fault
            waited += time.perf_counter() - t
            print("saved", step, "loss", float(loss))
    t = time.perf_counter()
    manager.wait_until_finished()
    manager.close()
    waited += time.perf_counter() - t
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(waited, 2)}))
