"""A small convolutional classifier trained for a few epochs on synthetic digits.

Structure: google/flax examples/mnist (train_epoch with a permutation, jitted gradient and update functions, test metrics per epoch).
"""
import json
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

BATCH, EPOCHS, TRAIN, TEST = 128, 4, 4096, 512


class Digits(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(12, (3, 3), strides=2)(x))
        x = nn.relu(nn.Conv(24, (3, 3), strides=2)(x))
        x = nn.relu(nn.Dense(64)(x.reshape((x.shape[0], -1))))
        return nn.Dense(10)(x)


def synthetic(rng, count, stencils):
    labels = rng.integers(0, 10, count)
    return (stencils[labels] + 0.7 * rng.normal(size=(count, 20, 20, 1))).astype(np.float32), labels.astype(np.int32)


def metrics(logits, labels):
    return {"loss": optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), "accuracy": (logits.argmax(-1) == labels).mean()}


@jax.jit
def train_step(state, images, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), logits

    (_, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), metrics(logits, labels)


@jax.jit
def evaluate(state, images, labels):
    return metrics(state.apply_fn({"params": state.params}, images), labels)


def main():
    rng = np.random.default_rng(0)
    stencils = rng.normal(size=(10, 20, 20, 1))
    images, labels = synthetic(rng, TRAIN, stencils)
    test = synthetic(rng, TEST, stencils)
    model = Digits()
    params = jax.jit(model.init)(jax.random.key(0), images[:1])["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.sgd(0.05, momentum=0.9))
    for epoch in range(1, EPOCHS + 1):
        order = rng.permutation(TRAIN).reshape(-1, BATCH)
        collected = []
        for rows in order:
            state, m = train_step(state, images[rows], labels[rows])
            collected.append(m)
        collected = jax.device_get(collected)
        held_out = jax.device_get(evaluate(state, *test))
        print(f"epoch {epoch}: train loss {np.mean([m['loss'] for m in collected]):.4f}, test accuracy {held_out['accuracy']:.3f}")


main()
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
