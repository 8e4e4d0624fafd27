"""Data-parallel training with shard_map on two devices; each device reads its own part of the data. "The loss looks good, but the saved model knows only half of the classes."

Truth: the gradients are not averaged over the mesh axis (no lax.pmean) and check_vma=False hides it, so the "replicated" parameters drift apart: each device trains its own model on its own shard, and device 0's copy is what is evaluated and saved.
Advice: grads = jax.lax.pmean(grads, "data") before the update, and leave check_vma on.
"""
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_cpu_enable_async_dispatch", False)   # one program at a time: host collectives in flight can starve two cores
FIXED = "--fixed" in sys.argv
WORDS = (r"replica|shard|device|copies|pmean|psum|all.?reduce", r"diverg|drift|differ|apart|unequal|not (the same|equal|averag|sync)|inconsisten|disagree|pmean|psum|out of sync")
mesh = Mesh(np.array(jax.devices()), ("data",))
rep, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
CLASSES, D, H, PER = 16, 64, 512, 2048
rng = np.random.default_rng(0)
centres = rng.standard_normal((CLASSES, D)).astype(np.float32)
files = [np.arange(8 * i, 8 * i + 8) for i in range(2)]       # the data set's two files hold eight classes each


def batch():
    y = np.concatenate([rng.choice(f, PER // 2) for f in files])
    return centres[y] + rng.standard_normal((len(y), D)).astype(np.float32), y


k1, k2 = jax.random.split(jax.random.key(0))
params = jax.device_put({"a": jax.random.normal(k1, (D, H)) * 0.1, "b": jax.random.normal(k2, (H, CLASSES)) * 0.05}, rep)
tx = optax.adam(3e-3)
opt = jax.device_put(tx.init(params), rep)


def logits(p, x):
    return jax.nn.relu(x @ p["a"]) @ p["b"]


def loss_fn(p, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits(p, x), y).mean()


def local_step(params, opt, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)  # fault
    if FIXED:
        grads = jax.lax.pmean(grads, "data")
    updates, opt = tx.update(grads, opt)  # fault
    return optax.apply_updates(params, updates), opt, loss[None]  # fault


step = jax.jit(jax.shard_map(local_step, mesh=mesh, in_specs=(P(), P(), P("data"), P("data")), out_specs=(P(), P(), P("data")), check_vma=False), donate_argnums=(0, 1))  # fault
losses = []
for i in range(400):
    x, y = batch()
    params, opt, loss = step(params, opt, jax.device_put(x, split), jax.device_put(y, split))  # fault
    losses.append(loss)
    if i % 100 == 99:
        print("step", i, "loss", float(loss.mean()))
saved = jax.device_get(params)
x, y = batch()
print("accuracy of the saved model", float((np.asarray(jax.jit(logits)(saved, x)).argmax(-1) == y).mean()))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
