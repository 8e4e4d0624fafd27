"""An inference worker that warms up its sequence buckets, then serves. "It needs minutes to become ready, and the autoscaler kills it. The machine is fine once it is up."

Truth: the 28 identical layers are a Python for loop inside jit, so each layer is traced and compiled again, for each bucket: nearly all the start-up is compilation.
Advice: stack the layers' parameters and run them with lax.scan (one layer is compiled), and/or the persistent compilation cache.
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac|lower", r"loop|unroll|layers|scan|large|big|long|equations|operations|ops|most of|size|seconds|% of|start")
D, HEADS, LAYERS, BUCKETS = 128, 4, 28, (16, 32, 64)
rng = np.random.default_rng(0)
layers = {k: (rng.standard_normal((LAYERS, *s)) * 0.05).astype(np.float32) for k, s in
          {"qkv": (D, 3 * D), "o": (D, D), "gate": (D, 4 * D), "up": (D, 4 * D), "down": (4 * D, D), "n1": (D,), "n2": (D,)}.items()}
layers = jax.device_put(layers)


def norm(x, g):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * (1 + g)


def rotate(x):
    t, h = x.shape[-2], x.shape[-1] // 2
    ang = jnp.arange(t)[:, None] / 10000 ** (jnp.arange(h) / h)
    a, b = x[..., :h], x[..., h:]
    return jnp.concatenate([a * jnp.cos(ang) - b * jnp.sin(ang), a * jnp.sin(ang) + b * jnp.cos(ang)], -1)


def layer(x, p):
    t = x.shape[0]
    q, k, v = (norm(x, p["n1"]) @ p["qkv"]).reshape(t, 3, HEADS, D // HEADS).transpose(1, 2, 0, 3)
    s = rotate(q) @ rotate(k).swapaxes(1, 2) / (D // HEADS) ** 0.5
    s = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e9), -1)
    x = x + (s @ v).transpose(1, 0, 2).reshape(t, D) @ p["o"]
    h = norm(x, p["n2"])
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


@jax.jit
def forward(layers, x):
    if FIXED:
        return jax.lax.scan(lambda x, p: (layer(x, p), None), x, layers)[0][-1]
    for i in range(LAYERS):  # fault
        x = layer(x, jax.tree.map(lambda w: w[i], layers))  # fault
    return x[-1]


t = time.perf_counter()
for n in BUCKETS:
    forward(layers, np.zeros((n, D), np.float32)).block_until_ready()  # fault
ready = time.perf_counter() - t
print("ready after", round(ready, 2))
for i in range(150):
    n = int(rng.integers(4, 64))
    x = np.zeros((min(b for b in BUCKETS if b >= n), D), np.float32)
    x[-n:] = rng.standard_normal((n, D))
    answer = np.asarray(forward(layers, x))
print("last answer", float(answer.sum()))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else ready * 0.9}))
