"""Equinox VAE with Gumbel-softmax codes, temperature annealed. "The GPU is idle, each new temperature takes ages, later steps are fast."

Truth: eqx.filter_jit treats the Python float `tau` as static, so each new temperature compiles the train step anew.
Advice: pass the temperature as an array, e.g. jnp.asarray(tau) (or a NumPy scalar array), so that it is traced.
"""
import time
T0 = time.perf_counter()
import json
import math
import sys
import jax
import jax.numpy as jnp
import equinox as eqx
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|retrac|re-?trac|specializ", r"tau|float|static|python (scalar|number|value)|constant|temperature|hash")
DIM, CODES, STEPS, EVERY = 512, 256, 240, 30


class GumbelVAE(eqx.Module):
    enc: eqx.nn.MLP
    dec: eqx.nn.MLP

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.enc = eqx.nn.MLP(DIM, CODES, 512, 2, activation=jax.nn.gelu, key=a)
        self.dec = eqx.nn.MLP(CODES, DIM, 512, 2, activation=jax.nn.gelu, key=b)

    def __call__(self, x, key, tau):
        logits = self.enc(x).reshape(16, 16)
        code = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape)) / tau)
        return self.dec(code.reshape(-1)), logits


opt = optax.adam(1e-3)


def loss_fn(model, x, keys, tau):
    out, logits = jax.vmap(model, (0, 0, None))(x, keys, tau)
    logq = jax.nn.log_softmax(logits)
    kl = jnp.mean(jnp.sum(jnp.exp(logq) * (logq + jnp.log(16.0)), (-2, -1)))
    return jnp.mean((out - x) ** 2) + 1e-3 * kl


@eqx.filter_jit
def train_step(model, opt_state, x, key, tau):
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model, x, jax.random.split(key, x.shape[0]), tau)
    updates, opt_state = opt.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


rng = np.random.default_rng(0)
data = np.tanh(rng.normal(size=(4096, 16)) @ rng.normal(size=(16, DIM))).astype(np.float32)
key = jax.random.key(0)
model = GumbelVAE(jax.random.key(1))
opt_state = opt.init(eqx.filter(model, eqx.is_array))
losses, first, other = [], [], []
for step in range(STEPS):
    tau = max(0.3, math.exp(-0.002 * (step // EVERY * EVERY)))
    x = data[rng.integers(0, len(data), 128)]
    key, sub = jax.random.split(key)
    t = time.perf_counter()
    if FIXED:
        model, opt_state, loss = train_step(model, opt_state, x, sub, jnp.asarray(tau))
    else:
        model, opt_state, loss = train_step(model, opt_state, x, sub, tau)  # fault
    (first if step % EVERY == 0 and step else other).append(time.perf_counter() - t)
    losses.append(loss)
    if step % 60 == 59:
        print(step + 1, round(tau, 3), float(jnp.mean(jnp.stack(losses[-60:]))), flush=True)
lost = None if FIXED else sum(first) - len(first) * float(np.median(other))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))
