"""Fine-tuning in float16 with dynamic loss scaling, a frozen backbone and labels with gaps, evaluated on the same fixed noise each time.

The scale starts too high on purpose: the first gradients overflow to inf, those steps are skipped and the scale is halved; NaN labels mean "missing" and
are masked before the loss; frozen weights do not move by design; gradients are accumulated over four steps.
"""
import time
T0 = time.perf_counter()
import json
import jax
import jax.numpy as jnp
import numpy as np
import optax

DIM, HID, BATCH, STEPS = 64, 512, 256, 1440


def init(key):
    k = jax.random.split(key, 4)
    return {"backbone": {"w1": jax.random.normal(k[0], (DIM, HID)) / 8, "w2": jax.random.normal(k[1], (HID, HID)) / np.sqrt(HID)},
            "head": {"w3": jax.random.normal(k[2], (HID, HID)) / np.sqrt(HID), "w4": jax.random.normal(k[3], (HID, 4)) / np.sqrt(HID)}}


def forward(p, x):
    h = jax.lax.stop_gradient(jnp.tanh(jnp.tanh(x @ p["backbone"]["w1"]) @ p["backbone"]["w2"]))
    return jax.nn.relu(h @ p["head"]["w3"]) @ p["head"]["w4"]


tx = optax.multi_transform({"train": optax.MultiSteps(optax.adam(2e-3), 4), "freeze": optax.set_to_zero()},
                           {"backbone": "freeze", "head": "train"})


def masked_loss(p, x, y):
    known = ~jnp.isnan(y)
    err = jnp.where(known, forward(p, x) - jnp.where(known, y, 0.0), 0.0)
    return jnp.sum(err ** 2) / jnp.maximum(jnp.sum(known), 1)


@jax.jit
def train_step(params, opt_state, scale, good, x, y):
    def scaled(half):
        loss = masked_loss(half, x.astype(jnp.float16), y).astype(jnp.float32)
        return (loss * scale).astype(jnp.float32), loss
    half = jax.tree.map(lambda a: a.astype(jnp.float16), params)
    grads, loss = jax.grad(scaled, has_aux=True)(half)
    grads = jax.tree.map(lambda g: g.astype(jnp.float32) / scale, grads)
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]))
    updates, new_state = tx.update(grads, opt_state, params)
    keep = lambda new, old: jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)
    params, opt_state = keep(optax.apply_updates(params, updates), params), keep(new_state, opt_state)
    good = jnp.where(finite, good + 1, 0)
    scale = jnp.where(finite, jnp.where(good % 200 == 0, scale * 2, scale), scale / 2)
    return params, opt_state, scale, good, loss, finite


@jax.jit
def evaluate(params, key):
    x = jax.random.normal(key, (1024, DIM))
    return jnp.mean((forward(params, x) - jnp.sin(x[:, :4])) ** 2)


rng, eval_key = np.random.default_rng(0), jax.random.key(99)
params = jax.jit(init)(jax.random.key(0))
opt_state = tx.init(params)
scale, good = jnp.float32(2.0 ** 24), jnp.int32(0)
skipped, flags = 0, []
for step in range(STEPS):
    x = rng.normal(size=(BATCH, DIM)).astype(np.float32)
    y = np.sin(x[:, :4])
    y[rng.random(y.shape) < 0.1] = np.nan
    params, opt_state, scale, good, loss, finite = train_step(params, opt_state, scale, good, x, y)
    flags.append(finite)
    if step % 360 == 359:
        skipped += int(len(flags) - jnp.sum(jnp.stack(flags)))
        flags.clear()
        print(step + 1, "loss", float(loss), "eval", float(evaluate(params, eval_key)), "scale", float(scale), "skipped", skipped, flush=True)
print(json.dumps({"wall": time.perf_counter() - T0}))
