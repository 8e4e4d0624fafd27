"""Fully sharded training on 4 devices with asynchronous Orbax checkpoints, a planned preemption and a resume that must give the same losses.

The weights are sharded over the mesh, the batch over the same axis, the state is donated; the run is stopped at step 120, restored from step 80
(the steps 80 to 120 are computed twice, on the same batches, on purpose) and compared.
"""
import time
T0 = time.perf_counter()
import functools
import json
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
import tempfile
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec as P

DIM, HID, BATCH, STEPS, SAVE, PREEMPT = 128, 768, 512, 240, 80, 120
mesh = jax.make_mesh((4,), ("x",))
row, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
opt = optax.adamw(optax.cosine_decay_schedule(1e-3, STEPS))


def init(key):
    k = jax.random.split(key, 3)
    params = {n: jax.random.normal(kk, s) / np.sqrt(s[0]) for n, kk, s in
              zip(("w1", "w2", "w3"), k, ((DIM, HID), (HID, HID), (HID, 8)))}
    return {"params": params, "opt": opt.init(params), "step": jnp.int32(0)}


abstract = jax.eval_shape(init, jax.random.key(0))
shardings = jax.tree.map(lambda a: row if a.ndim == 2 else whole, abstract)
target = jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), abstract, shardings)


@functools.partial(jax.jit, donate_argnums=0, out_shardings=(shardings, whole))
def train_step(state, x, y):
    def loss_fn(p):
        h = jax.nn.gelu(x @ p["w1"])
        h = h + jax.nn.gelu(h @ p["w2"])
        return jnp.mean((h @ p["w3"] - y) ** 2)
    loss, grads = jax.value_and_grad(loss_fn)(state["params"])
    updates, opt_state = opt.update(grads, state["opt"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt": opt_state, "step": state["step"] + 1}, loss


def batch(step):
    rng = np.random.default_rng(1000 + step)
    x = rng.normal(size=(BATCH, DIM)).astype(np.float32)
    return jax.device_put((x, np.sin(x[:, :8])), row)


def run(manager, state, start, stop):
    losses = []
    for step in range(start, stop):
        state, loss = train_step(state, *batch(step))
        losses.append(loss)
        if (step + 1) % SAVE == 0:
            manager.save(step + 1, args=ocp.args.StandardSave(state))
            print(step + 1, "loss", float(loss), flush=True)
    return state, np.asarray(jax.device_get(losses))


def main(folder):
    with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        state, first = run(manager, jax.jit(init, out_shardings=shardings)(jax.random.key(0)), 0, PREEMPT)
        manager.wait_until_finished()
        del state
    with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        start = manager.latest_step()
        state, second = run(manager, manager.restore(start, args=ocp.args.StandardRestore(target)), start, STEPS)
        manager.wait_until_finished()
    print("resumed at", start, "largest difference", float(np.abs(first[start:] - second[:PREEMPT - start]).max()))


with tempfile.TemporaryDirectory() as folder:
    main(folder)
print(json.dumps({"wall": time.perf_counter() - T0}))
