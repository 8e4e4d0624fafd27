"""A convolutional autoencoder fed by a pipeline: shards are read from disk (slow), decoded in a small pool, shuffled, and put on the device two batches ahead.

Structure from the flax ImageNet example (prefetch to device) and grain-like pipelines with worker threads.
"""
import time
T0 = time.perf_counter()
import collections
import itertools
import json
import pathlib
import tempfile
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import optax

SHARDS, PER_SHARD, SIDE, BATCH, EPOCHS = 12, 256, 20, 64, 5


def write_shards(folder):
    rng = np.random.default_rng(0)
    grid = np.arange(SIDE) / SIDE
    for shard in range(SHARDS):
        phase = rng.uniform(0, 6, (PER_SHARD, 4, 1))
        waves = np.sin(6 * grid * phase[:, :1] + phase[:, 1:2])[..., None] * np.cos(6 * grid * phase[:, 2:3] + phase[:, 3:])[:, :, None].reshape(PER_SHARD, 1, 1, SIDE)
        np.save(folder / f"{shard:03d}.npy", (127 + 120 * waves.reshape(PER_SHARD, SIDE, SIDE, 1)).astype(np.uint8))


def read_shard(path):
    time.sleep(0.05)  # network storage
    return np.load(path).astype(np.float32) / 127.5 - 1.0


def shards_ahead(paths, pool, ahead=4):
    paths = iter(paths)
    waiting = collections.deque(pool.submit(read_shard, p) for p in itertools.islice(paths, ahead))
    while waiting:
        images = waiting.popleft().result()
        waiting.extend(pool.submit(read_shard, p) for p in itertools.islice(paths, 1))
        yield images


def batches(paths, pool, rng):
    for images in shards_ahead(rng.permutation(paths), pool):
        for index in rng.permutation(len(images)).reshape(-1, BATCH):
            yield images[index]


def on_device(iterator, ahead=2):
    waiting = collections.deque(jax.device_put(b) for b in itertools.islice(iterator, ahead))
    while waiting:
        yield waiting.popleft()
        waiting.extend(jax.device_put(b) for b in itertools.islice(iterator, 1))


def conv(x, w, stride=1):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def reconstruct(params, x):
    h = jax.nn.relu(conv(x, params["c1"], 2))
    h = jax.nn.relu(conv(h, params["c2"], 2))
    code = h.reshape(len(x), -1) @ params["code"]
    return (jax.nn.relu(code @ params["d1"]) @ params["d2"]).reshape(x.shape)


tx = optax.adam(1e-3)


@jax.jit
def train_step(params, opt, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((reconstruct(p, x) - x) ** 2))(params)
    updates, opt = tx.update(grads, opt)
    return optax.apply_updates(params, updates), opt, loss


shapes = {"c1": (3, 3, 1, 12), "c2": (3, 3, 12, 24), "code": (600, 16), "d1": (16, 256), "d2": (256, SIDE * SIDE)}
keys = jax.random.split(jax.random.key(0), len(shapes))
params = {n: jax.random.normal(k, s) * float(np.prod(s[:-1])) ** -0.5 for k, (n, s) in zip(keys, shapes.items())}
opt = tx.init(params)
rng = np.random.default_rng(1)
with tempfile.TemporaryDirectory() as tmp, ThreadPoolExecutor(2) as pool:
    write_shards(pathlib.Path(tmp))
    paths = sorted(str(p) for p in pathlib.Path(tmp).iterdir())
    for epoch in range(EPOCHS):
        for x in on_device(batches(paths, pool, rng)):
            params, opt, loss = train_step(params, opt, x)
        print(f"epoch {epoch}: loss {float(loss):.4f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
