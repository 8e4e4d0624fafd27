"""Equinox fine-tuning: backbone frozen on purpose (partition by a filter spec), head and norm trained, features of variable-length sequences padded into three buckets (three compilations, no more), warmed up before the clock; a reference run evaluates the last, smaller batch with its own shape."""
import time
T0 = time.perf_counter()
import json
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

D, B, STEPS, BUCKETS = 96, 32, 450, (16, 32, 64)


class Classifier(eqx.Module):
    emb: eqx.nn.Embedding
    backbone: eqx.nn.MLP
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.emb = eqx.nn.Embedding(200, D, key=a)
        self.backbone = eqx.nn.MLP(D, D, 256, 2, activation=jax.nn.gelu, key=b)
        self.norm = eqx.nn.LayerNorm(D)
        self.head = eqx.nn.Linear(D, 5, key=c)

    def __call__(self, tok, n):
        h = jax.vmap(lambda t: self.backbone(self.emb(t)))(tok)
        mask = (jnp.arange(len(tok)) < n)[:, None]
        return self.head(self.norm(jnp.sum(h * mask, 0) / n))


def pad(seqs):
    width = next(b for b in BUCKETS if b >= max(map(len, seqs)))
    out = np.zeros((len(seqs), width), np.int32)
    for row, s in zip(out, seqs):
        row[:len(s)] = s
    return out, np.array([len(s) for s in seqs], np.int32)


tx = optax.adam(3e-3)


@eqx.filter_jit
def step(train, frozen, opt, tok, n, y):
    def loss(train):
        logits = jax.vmap(eqx.combine(train, frozen))(tok, n)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    l, g = eqx.filter_value_and_grad(loss)(train)
    up, opt = tx.update(g, opt)
    return eqx.apply_updates(train, up), opt, l


@eqx.filter_jit
def correct(train, frozen, tok, n, y):
    return (jax.vmap(eqx.combine(train, frozen))(tok, n).argmax(-1) == y).sum()


rng = np.random.default_rng(0)
data = []
for _ in range(5000):
    y = int(rng.integers(5))
    k = int(rng.integers(4, 65))
    seq = np.where(rng.random(k) < 0.5, 40 * y + rng.integers(0, 40, k), rng.integers(0, 200, k))
    data.append((seq, y))
train_set = sorted(data[:4500], key=lambda r: len(r[0]))
groups = [[r for r in train_set if lo < len(r[0]) <= hi] for lo, hi in zip((0,) + BUCKETS, BUCKETS)]
model = Classifier(jax.random.key(0))
spec = jax.tree.map(lambda _: False, model)
spec = eqx.tree_at(lambda m: (m.norm.weight, m.norm.bias, m.head.weight, m.head.bias), spec, (True,) * 4)
train, frozen = eqx.partition(model, spec)
opt = tx.init(eqx.filter(train, eqx.is_array))
for width in BUCKETS:                                   # warm-up of each shape; results thrown away
    jax.block_until_ready(step(train, frozen, opt, np.zeros((B, width), np.int32), np.ones(B, np.int32), np.zeros(B, np.int32)))
losses = []
for i in range(1, STEPS + 1):
    g = groups[rng.choice(3, p=[len(x) / 4500 for x in groups])]
    rows = [g[j] for j in rng.integers(0, len(g), B)]
    tok, n = pad([s for s, _ in rows])
    train, opt, l = step(train, frozen, opt, tok, n, np.array([y for _, y in rows], np.int32))
    losses.append(l)
    if i % 150 == 0:
        print("step", i, "loss", round(float(np.mean(jax.device_get(losses[-100:]))), 4), flush=True)
hits = []
for i in range(0, 500, 128):
    rows = data[4500 + i:4500 + i + 128][:500 - i]
    tok, n = pad([s for s, _ in rows])
    hits.append(correct(train, frozen, tok, n, np.array([y for _, y in rows], np.int32)))
print("accuracy", sum(map(int, hits)) / 500)
print(json.dumps({"wall": time.perf_counter() - T0}))
