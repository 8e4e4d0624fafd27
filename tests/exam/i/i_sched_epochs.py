"""A Flax classifier on a stream of synthetic spectra. "It learns for the first moments, then the accuracy stays exactly where it is."

Truth: decay_steps of the cosine schedule is given in epochs (8) and warm-up likewise, but optax counts optimizer steps: after 8 steps the learning rate is 0 and the parameters no longer change.
Advice: decay_steps = EPOCHS * STEPS_PER_EPOCH (and the warm-up in steps).
"""
import time
T0 = time.perf_counter()
import json
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

FIXED = "--fixed" in sys.argv
WORDS = (r"learning.rate|\blr\b|schedule|updates?\b|param|weight|loss", r"zero|\b0(\.0*)?\b|stop|not (mov|chang|learn|improv)|unchanged|frozen|no longer|plateau|constant|same|stall|never")
EPOCHS, STEPS_PER_EPOCH, BATCH, CLASSES = 8, 40, 256, 10


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x[..., None]
        for width in (16, 32):
            x = nn.Conv(width, (7,), strides=(4,))(x)
            x = nn.LayerNorm()(nn.gelu(x))
        x = nn.Dense(128)(x.reshape(x.shape[0], -1))
        return nn.Dense(CLASSES)(nn.gelu(x))


def make_schedule():
    scale = STEPS_PER_EPOCH if FIXED else 1
    return optax.warmup_cosine_decay_schedule(  # fault
        init_value=0.0, peak_value=1e-3, warmup_steps=1 * scale, decay_steps=EPOCHS * scale, end_value=0.0)  # fault


@jax.jit
def make_batch(key):
    """Spectra: two peaks whose positions depend on the class, an offset and noise."""
    k1, k2, k3 = jax.random.split(key, 3)
    label = jax.random.randint(k1, (BATCH,), 0, CLASSES)
    grid = jnp.linspace(0, 1, 256)
    shift = 0.02 * jax.random.normal(k2, (BATCH, 1))
    peak = lambda c, w: jnp.exp(-((grid - c[:, None] - shift) / w) ** 2)
    x = peak(0.2 + 0.03 * label, 0.02) + peak(0.9 - 0.05 * (label % 5), 0.03)
    return x + 0.4 * jax.random.normal(k3, x.shape), label


@jax.jit
def train_step(state, x, label):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean(), (logits.argmax(-1) == label).mean()

    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), loss, acc  # fault


key = jax.random.key(0)
key, k = jax.random.split(key)
net = Net()
state = TrainState.create(apply_fn=net.apply, params=jax.jit(net.init)(k, jnp.zeros((1, 256)))["params"], tx=optax.adamw(make_schedule()))  # fault
for epoch in range(EPOCHS):
    metrics = []
    for _ in range(STEPS_PER_EPOCH):
        key, k = jax.random.split(key)
        state, loss, acc = train_step(state, *make_batch(k))  # fault
        metrics.append((loss, acc))
    loss, acc = jnp.array(jax.device_get(metrics)).mean(0)
    print("epoch %d  loss %.3f  accuracy %.3f" % (epoch, loss, acc), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
