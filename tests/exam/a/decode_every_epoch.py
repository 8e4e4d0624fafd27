"""Keyword spotting on a few hundred short clips. The model is tiny and the clips fit in memory many times over, yet an epoch takes seconds and the CPU of the process is busy in Python.

Truth: the loader decompresses and computes the spectrogram of every clip again in each epoch, in the training thread; the step waits for the loader most of the time.
Advice: decode and transform the clips once and keep the features in memory (or do it ahead in workers / prefetch).
"""
import time
T0 = time.perf_counter()
import json
import sys
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"load|input|data|batch|decod|fetch", r"wait|slow|decod|starv|prefetch|cache|bound|once")
CLIPS, SAMPLES, CLASSES, BATCH, EPOCHS = 384, 16000, 12, 32, 20
WINDOW = np.hanning(512)


def record_clips():
    rng = np.random.default_rng(3)
    clips = []
    for _ in range(CLIPS):
        label = int(rng.integers(CLASSES))
        wave = np.sin(np.arange(SAMPLES) * (0.02 + 0.01 * label)) + 0.3 * rng.standard_normal(SAMPLES)
        clips.append((zlib.compress((wave * 8000).astype(np.int16).tobytes(), 6), label))
    return clips


class ClipLoader:
    def __init__(self, clips):
        self.clips = clips
        self.features = [self.decode(raw) for raw, _ in clips] if FIXED else None

    def decode(self, raw):
        wave = np.frombuffer(zlib.decompress(raw), np.int16) / 32768.0  # fault
        frames = np.stack([wave[i : i + 512] * WINDOW for i in range(0, SAMPLES - 512, 128)])
        power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
        return np.log(power[:, :64] + 1e-6).mean(axis=0).astype(np.float32)

    def epoch(self, seed):
        order = np.random.default_rng(seed).permutation(len(self.clips))
        for start in range(0, len(order), BATCH):
            index = order[start : start + BATCH]
            if self.features is not None:
                x = np.stack([self.features[i] for i in index])
            else:
                x = np.stack([self.decode(self.clips[i][0]) for i in index])  # fault
            yield x, np.array([self.clips[i][1] for i in index])


def logits_of(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


tx = optax.sgd(1e-3, momentum=0.9)


@jax.jit
def train_step(params, opt, x, y):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(logits_of(p, x), y).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt = tx.update(grads, opt)
    return optax.apply_updates(params, updates), opt, loss


sizes = [64, 256, 256, CLASSES]
keys = jax.random.split(jax.random.key(0), 3)
params = [(jax.random.normal(k, (m, n)) * m**-0.5, jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:])]
opt = tx.init(params)
loader = ClipLoader(record_clips())
lost = 0.0
for epoch in range(EPOCHS):
    t = time.perf_counter()
    for x, y in loader.epoch(epoch):  # fault
        if epoch:
            lost += time.perf_counter() - t
        params, opt, loss = train_step(params, opt, x, y)
        loss.block_until_ready()
        t = time.perf_counter()
    if epoch % 5 == 0:
        print(f"epoch {epoch} loss {float(loss):.3f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(lost, 3)}))
