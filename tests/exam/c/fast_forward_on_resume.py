"""After a preemption the job restores its checkpoint in no time and then does nothing for a long while before the first training step; the later the preemption, the longer.

Truth: on resume the script reads and decompresses all batches that were already trained on, only to throw them away, until it reaches the checkpoint's step.
Advice: save the loader's position and seek to it (skip indices or records, not decoded batches).
"""
import json
import pickle
import sys
import tempfile
import time
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"skip|resum|fast.?forward|load|data|input|batch|read|decompress|decod", r"wait|before|start|skip|seconds|discard|first step|idle|input|decompress|%")
RESUME_AT, LAST = 800, 1000


def write_shards(folder):
    rng = np.random.default_rng(0)
    for n in range(20):
        block = rng.integers(0, 32, size=(256, 784), dtype=np.uint8)
        (folder / f"shard_{n:02d}.z").write_bytes(zlib.compress(block.tobytes(), 1))


def stream(folder, first=0):
    shards = sorted(folder.glob("*.z"))
    for n in range(first, LAST):
        raw = zlib.decompress(shards[n % len(shards)].read_bytes())
        batch = np.frombuffer(raw, np.uint8).reshape(256, 784)
        order = np.random.default_rng(n).permuted(np.tile(np.arange(784), (256, 1)), axis=1)[:, :78]
        image = batch / np.float32(32)
        np.put_along_axis(image, order, 0, axis=1)
        yield n, image, batch[:, 0] // 4


tx = optax.adam(1e-3)


@jax.jit
def step(state, image, label):
    def loss_fn(p):
        h = jax.nn.relu(image @ p["w1"])
        return optax.softmax_cross_entropy_with_integer_labels(h @ p["w2"], label).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state["params"])
    updates, opt = tx.update(grads, state["opt"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, loss


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder)
        rng = np.random.default_rng(1)
        params = {"w1": rng.standard_normal((784, 128)).astype(np.float32) / 28, "w2": np.zeros((128, 8), np.float32)}
        saved = folder / "checkpoint.pkl"
        saved.write_bytes(pickle.dumps({"step": RESUME_AT, "state": {"params": params, "opt": jax.device_get(tx.init(params))}}))

        checkpoint = pickle.loads(saved.read_bytes())
        state = jax.tree.map(jnp.asarray, checkpoint["state"])
        t0, lost = time.perf_counter(), 0.0
        for n, image, label in stream(folder, checkpoint["step"] if FIXED else 0):  # fault
            if n < checkpoint["step"]:
                lost = time.perf_counter() - t0
                continue  # fault
            state, loss = step(state, image, label)
            if n % 50 == 49:
                print(f"step {n + 1} loss {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
