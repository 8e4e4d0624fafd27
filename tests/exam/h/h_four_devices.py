"""Data-parallel image classifier on four devices. "Four devices are no faster than one."

Truth: the batch is placed with the replicated sharding made for the parameters; each device works through the whole batch, so three quarters of the work are repeated.
Advice: place the batch with NamedSharding(mesh, P("data")).
"""
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import time
T0 = time.perf_counter()
import json
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

FIXED = "--fixed" in sys.argv
WORDS = (r"replicat|not sharded|unsharded|same (work|batch|computation)|whole batch|each device|every device|redundan|duplicat", r"batch|input|data|work|shard|device")
BATCH, STEPS = 128, 60


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, x):
        b = x.shape[0]
        x = x.reshape(b, 8, 4, 8, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, 64, 48)
        x = nn.Dense(96)(x)
        for _ in range(2):
            y = nn.LayerNorm()(x).swapaxes(1, 2)
            x = x + nn.Dense(64)(nn.relu(nn.Dense(64)(y))).swapaxes(1, 2)
            x = x + nn.Dense(96)(nn.relu(nn.Dense(192)(nn.LayerNorm()(x))))
        return nn.Dense(10)(x.mean(1))


@jax.jit
def train_step(state, batch):
    def loss_fn(p):
        logits = state.apply_fn({"params": p}, batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def batches(rng, images, labels):
    while True:
        for idx in np.split(rng.permutation(len(images)), len(images) // BATCH):
            yield {"image": images[idx], "label": labels[idx]}


def main():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, BATCH * 12).astype(np.int32)
    centres = rng.normal(size=(10, 32, 32, 3)).astype(np.float32)
    images = centres[labels] * 0.2 + rng.normal(size=(len(labels), 32, 32, 3)).astype(np.float32)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    replicated = NamedSharding(mesh, P())
    data_sharding = NamedSharding(mesh, P("data")) if FIXED else replicated

    model = Mixer()
    params = model.init(jax.random.PRNGKey(0), jnp.zeros((1, 32, 32, 3)))["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    state = jax.device_put(state, replicated)
    losses, start = [], None
    for step, batch in zip(range(STEPS), batches(rng, images, labels)):
        batch = jax.device_put(batch, data_sharding)  # fault
        state, loss = train_step(state, batch)  # fault
        losses.append(loss)
        if step == 0:
            loss.block_until_ready()
            start = time.perf_counter()
    print("loss", [round(float(v), 3) for v in losses[::15]])
    print(json.dumps({"wall": time.perf_counter() - T0,
                      "lost": None if FIXED else 0.75 * (time.perf_counter() - start)}))


main()
