"""Image classification with flax linen and optax, one jitted step, metrics summed on the device and read once per epoch.

Structure from the flax MNIST example (flax/examples/mnist), with made-up images.
"""
import time
T0 = time.perf_counter()
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

BATCH, EPOCHS, CLASSES = 128, 4, 10


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.avg_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.avg_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        return nn.Dense(CLASSES)(nn.relu(nn.Dense(64)(x)))


def make_split(prototypes, count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count).astype(np.int32)
    images = prototypes[labels] + 0.7 * rng.standard_normal((count, 16, 16, 1), dtype=np.float32)
    return images, labels


def loss_and_correct(apply_fn, params, images, labels):
    logits = apply_fn({"params": params}, images)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, jnp.sum(jnp.argmax(logits, -1) == labels)


@jax.jit
def train_step(state, totals, images, labels):
    def loss_fn(params):
        return loss_and_correct(state.apply_fn, params, images, labels)

    (loss, correct), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), totals + jnp.stack([loss, correct / labels.shape[0]])


@jax.jit
def eval_step(state, images, labels):
    return loss_and_correct(state.apply_fn, state.params, images, labels)[1]


prototypes = np.random.default_rng(9).standard_normal((CLASSES, 16, 16, 1)).astype(np.float32)
images, labels = make_split(prototypes, 8192, 0)
test_images, test_labels = make_split(prototypes, 2048, 1)
model = CNN()
params = jax.jit(model.init)(jax.random.key(0), images[:1])["params"]
state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
rng = np.random.default_rng(2)
for epoch in range(EPOCHS):
    totals = jnp.zeros(2, jnp.float32)
    order = rng.permutation(len(images)).reshape(-1, BATCH)
    for index in order:
        state, totals = train_step(state, totals, images[index], labels[index])
    loss, accuracy = np.asarray(totals) / len(order)
    counts = [eval_step(state, test_images[i : i + BATCH], test_labels[i : i + BATCH]) for i in range(0, len(test_images), BATCH)]
    tested = sum(jax.device_get(counts)) / len(test_images)
    print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.3f} test {tested:.3f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
