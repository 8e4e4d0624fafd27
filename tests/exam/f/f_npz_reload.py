"""Flax Linen image classifier that reads its data from an .npz file. "The step takes 20 ms, yet the loop makes 7 steps a second; the data are in memory!"

Truth: np.load of an .npz returns a lazy NpzFile: every data["images"] in the loop reads and decompresses the whole array again, for one batch of it.
Advice: take the arrays out once before the loop (images = data["images"]), or memory-map an .npy.
"""
import time
T0 = time.perf_counter()
import json
import os
import sys
import tempfile
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"npz|np\.load|decompress|unzip|zip|zlib|\bread|\bload|__getitem__|input|data|host|batch",
         r"npz|np\.load|decompress|zip|zlib|again|every (step|batch|iteration)|each (step|batch|iteration)|per (step|batch)|re-?(read|load)|starv|wait|input|idle|slow|host")
N, BATCH, STEPS = 12000, 128, 130


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(32, (3, 3), strides=2)(x))
        x = nn.relu(nn.Conv(64, (3, 3), strides=2)(x))
        x = nn.relu(nn.Dense(512)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


net, opt = CNN(), optax.adam(1e-3)


@jax.jit
def train_step(params, opt_state, x, y):
    def loss_fn(p):
        logits = net.apply(p, x.astype(jnp.float32) / 255.0)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = opt.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def write(path):
    rng = np.random.default_rng(0)
    proto = rng.integers(0, 160, (10, 28, 28, 1), dtype=np.uint8)
    labels = rng.integers(0, 10, N).astype(np.int32)
    images = proto[labels] + rng.integers(0, 96, (N, 28, 28, 1), dtype=np.uint8)
    np.savez_compressed(path, images=images, labels=labels)


def main(path):
    write(path)
    data = np.load(path)
    if FIXED:
        data = dict(data)
    params = jax.jit(net.init)(jax.random.key(0), jnp.zeros((1, 28, 28, 1)))
    opt_state = opt.init(params)
    rng, spent, losses, order = np.random.default_rng(1), 0.0, [], []
    for step in range(STEPS):
        if len(order) < BATCH:
            order = rng.permutation(N)
        idx, order = order[:BATCH], order[BATCH:]
        t = time.perf_counter()
        x = data["images"][idx]  # fault
        y = data["labels"][idx]  # fault
        spent += time.perf_counter() - t
        params, opt_state, loss = train_step(params, opt_state, x, y)
        losses.append(loss)
        if step % 65 == 64:
            print(step + 1, "loss", float(jnp.mean(jnp.stack(losses[-65:]))), flush=True)
    return None if FIXED else spent


with tempfile.TemporaryDirectory() as folder:
    lost = main(os.path.join(folder, "train.npz"))  # fault
print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))
