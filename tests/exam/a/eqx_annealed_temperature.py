"""Training a small discrete autoencoder (equinox) stalls for a moment at the start of every epoch; the epochs are short, so the whole run takes about twice as long as the steps add up to.

Truth: the annealed temperature is a Python float in the module, which eqx.filter_jit treats as static, so the train step is compiled anew in every epoch for the new value.
Advice: keep the temperature as a JAX array (jnp.asarray) or pass it as an array argument, so that a new value does not mean a new program.
"""
import time
T0 = time.perf_counter()
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"recompil|compil\w* (again|anew|\d+ times)|\d+ compil|new program", r"tau|temperature|static|float|scalar|python (value|number)")
EPOCHS, STEPS, BATCH, DIM, CODES = 6, 25, 64, 32, 32


class Block(eqx.Module):
    a: eqx.nn.Linear
    b: eqx.nn.Linear

    def __init__(self, width, key):
        ka, kb = jax.random.split(key)
        self.a = eqx.nn.Linear(width, 2 * width, key=ka)
        self.b = eqx.nn.Linear(2 * width, width, key=kb)

    def __call__(self, x):
        return x + self.b(jax.nn.gelu(self.a(x)))


class DiscreteAutoencoder(eqx.Module):
    encoder: list
    to_codes: eqx.nn.Linear
    codebook: eqx.nn.Linear
    decoder: list
    tau: float | jax.Array

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.encoder = [Block(DIM, k) for k in keys[:1]]
        self.decoder = [Block(DIM, k) for k in keys[1:2]]
        self.to_codes = eqx.nn.Linear(DIM, CODES, key=keys[2])
        self.codebook = eqx.nn.Linear(CODES, DIM, key=keys[3])
        self.tau = temperature(0)

    def __call__(self, x, key):
        for block in self.encoder:
            x = block(x)
        gumbel = jax.random.gumbel(key, (CODES,))
        x = self.codebook(jax.nn.softmax((self.to_codes(x) + gumbel) / jax.lax.stop_gradient(self.tau)))
        for block in self.decoder:
            x = block(x)
        return x


def temperature(epoch):
    tau = 2.0 * 0.85**epoch
    return jnp.asarray(tau, jnp.float32) if FIXED else tau  # fault


optimizer = optax.adam(1e-3)


@eqx.filter_jit
def train_step(model, opt_state, x, key):
    def loss_fn(m):
        out = jax.vmap(m)(x, jax.random.split(key, x.shape[0]))
        return jnp.mean((out - x) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_fn)(model)
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


key = jax.random.key(0)
model = DiscreteAutoencoder(key)
opt_state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
data = jax.random.normal(jax.random.key(1), (STEPS, BATCH, DIM)) * jnp.linspace(0.1, 1.0, DIM)
lost = 0.0
for epoch in range(EPOCHS):
    model = eqx.tree_at(lambda m: m.tau, model, temperature(epoch))  # fault
    times = []
    for i in range(STEPS):
        key, sub = jax.random.split(key)
        t = time.perf_counter()
        model, opt_state, loss = train_step(model, opt_state, data[i], sub)  # fault
        loss.block_until_ready()
        times.append(time.perf_counter() - t)
    if epoch:
        lost += max(0.0, times[0] - sorted(times)[STEPS // 2])
    print(f"epoch {epoch}: loss {float(loss):.4f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(lost, 3)}))
