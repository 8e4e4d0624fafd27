"""Data-parallel training on 4 devices with jit and NamedSharding. "Four devices are no faster than one."

Truth: the batch is placed with the empty PartitionSpec P(), i.e. replicated: every device computes the whole batch, the same work four times.
Advice: shard the batch's leading axis over the mesh: NamedSharding(mesh, P("data")).
"""
import time
T0 = time.perf_counter()
import json
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
import sys
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

FIXED = "--fixed" in sys.argv
WORDS = (r"replicat|same (work|computation|batch|data)|whole batch|full batch|every device|all (4|four|of the)? ?devices|not (sharded|split|partitioned)|unsharded|redundant|PartitionSpec",)
DIM, HID, BATCH, STEPS = 128, 1024, 1024, 64

mesh = Mesh(np.array(jax.devices()), ("data",))
replicated = NamedSharding(mesh, P())
batch_sharding = NamedSharding(mesh, P("data") if FIXED else P())  # fault
opt = optax.adamw(3e-4)


def init(key):
    ks = jax.random.split(key, 4)
    sizes = [(DIM, HID), (HID, HID), (HID, HID), (HID, 10)]
    return [(jax.random.normal(k, s) * np.sqrt(2 / s[0]), jnp.zeros(s[1])) for k, s in zip(ks, sizes)]


def forward(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


@jax.jit
def train_step(params, opt_state, x, y):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(forward(p, x), y).mean()
    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = opt.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


rng = np.random.default_rng(0)
proto = rng.normal(size=(10, DIM)).astype(np.float32)
params = jax.device_put(jax.jit(init)(jax.random.key(0)), replicated)
opt_state = jax.jit(opt.init, out_shardings=replicated)(params)
losses = []
for step in range(STEPS):
    y = rng.integers(0, 10, BATCH).astype(np.int32)
    x = proto[y] + 2 * rng.normal(size=(BATCH, DIM)).astype(np.float32)
    x, y = jax.device_put((x, y), batch_sharding)  # fault
    params, opt_state, loss = train_step(params, opt_state, x, y)  # fault
    losses.append(loss)
    if step % 16 == 15:
        print(step + 1, "loss", float(jnp.mean(jnp.stack(losses[-16:]))), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
