"""Evaluation of an image classifier on 24k examples takes far longer than training on them; a profile shows the model's forward pass is a small part.

Truth: the confusion matrix is filled by indexing the device array of predictions once per example and turning each element into a Python int, i.e. thousands of tiny device operations with a host sync each.
Advice: bring the predictions of the batch to the host once (np.asarray / jax.device_get) and count with numpy.
"""
import time
T0 = time.perf_counter()
import json
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"sync|read|transfer|host|int\(|device_get|element|scalar|index", r"once|batch|np\.asarray|numpy|device_get|per (example|element)|eager|one (at|by)|vector|times|reads")
EXAMPLES, BATCH, CLASSES = 24576, 512, 20


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(8, (3, 3), strides=2)(x))
        x = nn.relu(nn.Conv(16, (3, 3), strides=2)(x))
        x = x.reshape(x.shape[0], -1)
        return nn.Dense(CLASSES)(nn.relu(nn.Dense(128)(x)))


model = Classifier()


@jax.jit
def predict(variables, images):
    return jnp.argmax(model.apply(variables, images), axis=-1)


def batches():
    rng = np.random.default_rng(0)
    prototypes = rng.standard_normal((CLASSES, 12, 12, 3)).astype(np.float32)
    for _ in range(EXAMPLES // BATCH):
        labels = rng.integers(CLASSES, size=BATCH)
        yield prototypes[labels] + 0.5 * rng.standard_normal((BATCH, 12, 12, 3), dtype=np.float32), labels


def evaluate(variables):
    confusion = np.zeros((CLASSES, CLASSES), np.int64)
    lost = 0.0
    for images, labels in batches():
        predictions = predict(variables, images)
        predictions.block_until_ready()
        t = time.perf_counter()
        if FIXED:
            predictions = np.asarray(predictions)
        for i in range(len(labels)):
            confusion[labels[i], int(predictions[i])] += 1  # fault
        lost += time.perf_counter() - t
    return confusion, lost


variables = model.init(jax.random.key(0), jnp.zeros((1, 12, 12, 3)))
confusion, lost = evaluate(variables)
recall = np.diag(confusion) / np.maximum(confusion.sum(axis=1), 1)
print(f"accuracy {np.trace(confusion) / confusion.sum():.3f}, worst class recall {recall.min():.3f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(lost, 3)}))
