"""Reviews are classified with a small transformer. Most have forty words, a few five hundred. Throughput in words per
second is a tenth of what the model reaches on a synthetic benchmark.

Truth: each batch is padded to the maximum of 512 though the median review has 40 words: about 85 % of the computed positions are padding.
Advice: sort into a few length buckets and pad to the bucket, or pack several reviews into a row.

Source: AI-Hypercomputer/maxtext#2884 (also domerin0/neural-sentiment#9).
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"pad", r"bucket|pack|length|wast|useful|share|%|real|short")
LONGEST, BATCH, WIDTH, BATCHES = 512, 16, 64, 36
BUCKETS = (64, 160, LONGEST) if FIXED else (LONGEST,)  # fault

rng = np.random.default_rng(0)
lengths = np.clip(rng.lognormal(3.7, 0.75, BATCH * BATCHES), 5, LONGEST).astype(int)
reviews = [(rng.integers(1, 1000, n), int(rng.integers(2))) for n in lengths]


def batches():
    """Groups by bucket; the order is shuffled within and between groups."""
    shelves = {b: [] for b in BUCKETS}
    for words, label in reviews:
        limit = next(b for b in BUCKETS if len(words) <= b)
        shelves[limit].append((words, label))
        if len(shelves[limit]) == BATCH:
            group, shelves[limit] = shelves[limit], []
            tokens = np.zeros((BATCH, limit), np.int32)  # fault
            for row, (words, _) in enumerate(group):
                tokens[row, : len(words)] = words
            yield tokens, np.array([label for _, label in group])


def score(params, tokens):
    mask = tokens > 0
    x = params["embed"][tokens]
    for p in params["layers"]:
        q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
        weights = jnp.where(mask[:, None, :], q @ k.swapaxes(1, 2) / WIDTH**0.5, -1e9)
        x = x + jax.nn.softmax(weights) @ v
        x = x + jax.nn.relu(x @ p["up"]) @ p["down"]
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True) @ params["head"]


optimizer = optax.adam(1e-3)


@jax.jit
def train_step(params, opt_state, tokens, labels):
    loss, grads = jax.value_and_grad(lambda p: optax.softmax_cross_entropy_with_integer_labels(score(p, tokens), labels).mean())(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


key = jax.random.key(0)
draw = lambda i, *s: jax.random.normal(jax.random.fold_in(key, i), s) / s[0] ** 0.5
layers = [{"qkv": draw(3 * i, WIDTH, 3 * WIDTH), "up": draw(3 * i + 1, WIDTH, 128), "down": draw(3 * i + 2, 128, WIDTH)} for i in range(2)]
params = {"embed": draw(90, 1000, WIDTH), "layers": layers, "head": draw(91, WIDTH, 2)}
opt_state = optimizer.init(params)
for bucket in BUCKETS:  # compile before the clock counts
    train_step(params, opt_state, np.ones((BATCH, bucket), np.int32), np.zeros(BATCH, int))
lost = 0.0
for tokens, labels in batches():
    t = time.perf_counter()
    params, opt_state, loss = train_step(params, opt_state, tokens, labels)
    loss.block_until_ready()
    lost += (time.perf_counter() - t) * float((tokens == 0).mean())
print("loss", float(loss))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
