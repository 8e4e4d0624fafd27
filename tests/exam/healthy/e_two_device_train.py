"""Equinox training on two (forced) host devices with a mesh: parameters deliberately replicated, the batch split, gradients averaged by the compiler,
evaluation between epochs with a padded last batch, metrics read once per epoch. Nothing is wrong with it."""
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
import time
T0 = time.perf_counter()
import json
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_cpu_enable_async_dispatch", False)   # one program at a time: host collectives in flight can starve two cores
mesh = Mesh(np.array(jax.devices()), ("batch",))
rep, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("batch"))
rng = np.random.default_rng(0)
truth = rng.standard_normal((96, 8)).astype(np.float32)


def make(n):
    x = rng.standard_normal((n, 96), np.float32)
    return x, (x @ truth + 0.5 * np.abs(x[:, :8])).argmax(-1).astype(np.int32)


(tx, ty), (vx, vy) = make(24576), make(3000)
model = eqx.nn.MLP(96, 8, 384, 2, key=jax.random.key(0))
optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=1e-3))
model = eqx.filter_shard(model, rep)
state = eqx.filter_shard(optim.init(eqx.filter(model, eqx.is_inexact_array)), rep)


@eqx.filter_jit(donate="all")
def step(model, state, x, y):
    def loss_fn(m):
        return optax.softmax_cross_entropy_with_integer_labels(jax.vmap(m)(x), y).mean()
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model)
    updates, state = optim.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), state, loss


@eqx.filter_jit
def evaluate(model, x, y, real):
    return jnp.sum((jax.vmap(model)(x).argmax(-1) == y) & real)


def batches(x, y, size, order=None):
    order = np.arange(len(x)) if order is None else order
    for i in range(0, len(order), size):
        rows = order[i:i + size]
        real = np.arange(size) < len(rows)
        rows = np.pad(rows, (0, size - len(rows)))
        yield jax.device_put((x[rows], y[rows], real), split)


best, patience = 0.0, 0
for epoch in range(12):
    losses = []
    for x, y, _ in batches(tx, ty, 1024, rng.permutation(len(tx))):
        model, state, loss = step(model, state, x, y)
        losses.append(loss)
    mean = float(np.mean(jax.device_get(losses)))
    right = sum(jax.device_get([evaluate(model, *b) for b in batches(vx, vy, 512)]))
    accuracy = float(right) / len(vx)
    print(f"epoch {epoch} loss {mean:.3f} accuracy {accuracy:.3f}")
    best, patience = (accuracy, 0) if accuracy > best else (best, patience + 1)
    if patience == 4:
        break
print("best", best)
print(json.dumps({"wall": time.perf_counter() - T0}))
