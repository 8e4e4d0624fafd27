"""A trainer thread that saves a checkpoint every 150 steps, and an evaluator (as in RL and LM repositories) that polls the folder, sleeps while there is
nothing new, evaluates each checkpoint once and keeps the two best files. The evaluator's waiting is deliberate. Nothing is wrong with it."""
import time
T0 = time.perf_counter()
import json
import os
import tempfile
import threading
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(0)
W = rng.standard_normal((48, 1)).astype(np.float32)


def data(n):
    x = rng.standard_normal((n, 48), np.float32)
    return x, np.sin(x @ W)[:, 0] + np.abs(x[:, 0])


(tx_, ty), (vx, vy) = data(32768), data(8192)
k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
params = {"a": jax.random.normal(k1, (48, 512)) * 0.15, "b": jax.random.normal(k2, (512, 512)) * 0.05, "c": jax.random.normal(k3, (512,)) * 0.05}
opt = optax.adamw(optax.cosine_decay_schedule(2e-3, 1200))


def model(p, x):
    return jax.nn.silu(jax.nn.silu(x @ p["a"]) @ p["b"]) @ p["c"]


@partial(jax.jit, donate_argnums=(0, 1))
def train(p, s, x, y):
    loss, g = jax.value_and_grad(lambda p: ((model(p, x) - y) ** 2).mean())(p)
    u, s = opt.update(g, s, p)
    return optax.apply_updates(p, u), s, loss


@jax.jit
def error(p, x, y):
    return ((model(p, x) - y) ** 2).mean()


def trainer(folder, done):
    p, s, r, step = params, opt.init(params), np.random.default_rng(1), 0
    for epoch in range(18):
        order = r.permutation(len(tx_))
        for rows in order.reshape(-1, 512):
            p, s, loss = train(p, s, tx_[rows], ty[rows])
            step += 1
            if step % 150 == 0:
                path = os.path.join(folder, f"{step:06d}.npz")
                with open(path + ".tmp", "wb") as f:
                    np.savez(f, **jax.device_get(p))
                os.replace(path + ".tmp", path)              # the evaluator never sees half a file
        print("epoch", epoch, "loss", float(loss))
    done.set()


with tempfile.TemporaryDirectory() as folder:
    done, seen = threading.Event(), {}
    thread = threading.Thread(target=trainer, args=(folder, done))
    thread.start()
    while True:
        finished = done.is_set()
        new = sorted(f for f in os.listdir(folder) if f.endswith(".npz") and f not in seen)
        for f in new:
            with np.load(os.path.join(folder, f)) as z:
                p = {k: z[k] for k in z.files}
            seen[f] = float(error(p, vx, vy))
            print(f, "validation error", round(seen[f], 4))
            for old in sorted(seen, key=seen.get)[2:]:
                if os.path.exists(path := os.path.join(folder, old)):
                    os.remove(path)
        if finished and not new:
            break
        if not new:
            done.wait(0.2)
    thread.join()
    print("kept", sorted(os.listdir(folder)))
print(json.dumps({"wall": time.perf_counter() - T0}))
