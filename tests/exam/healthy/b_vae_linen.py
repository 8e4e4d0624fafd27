"""A variational autoencoder on synthetic shapes, with samples from the prior at the end.

Structure: google/flax examples/vae (encoder, decoder, reparameterisation, KL + reconstruction, eval after each epoch).
"""
import json
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

PIXELS, LATENTS, BATCH, EPOCHS, COUNT = 400, 8, 128, 6, 5120


class VAE(nn.Module):
    def setup(self):
        self.enc = nn.Dense(200)
        self.mean, self.logvar = nn.Dense(LATENTS), nn.Dense(LATENTS)
        self.dec1, self.dec2 = nn.Dense(200), nn.Dense(PIXELS)

    def decode(self, z):
        return self.dec2(nn.relu(self.dec1(z)))

    def __call__(self, x, key):
        h = nn.relu(self.enc(x))
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
        return self.decode(z), mean, logvar


model, optimizer = VAE(), optax.adam(1e-3)


def elbo_loss(params, x, key):
    logits, mean, logvar = model.apply(params, x, key)
    bce = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1).mean()
    kl = -0.5 * (1 + logvar - mean**2 - jnp.exp(logvar)).sum(-1).mean()
    return bce + kl


@jax.jit
def train_step(params, opt_state, x, key):
    loss, grads = jax.value_and_grad(elbo_loss)(params, x, key)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def evaluate(params, x, key):
    return elbo_loss(params, x, key)


def make(rng, count):
    yy, xx = np.mgrid[:20, :20] / 20
    cx, cy = rng.uniform(0.25, 0.75, (2, count, 1, 1))
    radius = rng.uniform(0.08, 0.25, (count, 1, 1))
    return (((xx - cx) ** 2 + (yy - cy) ** 2) < radius**2).astype(np.float32).reshape(count, -1)


rng = np.random.default_rng(0)
train, test = make(rng, COUNT), make(rng, 512)
key = jax.random.key(0)
params = jax.jit(model.init)(key, train[:1], key)
opt_state = optimizer.init(params)
for epoch in range(EPOCHS):
    key, shuffle, held = jax.random.split(key, 3)
    for i, rows in enumerate(rng.permutation(COUNT).reshape(-1, BATCH)):
        params, opt_state, loss = train_step(params, opt_state, train[rows], jax.random.fold_in(shuffle, i))
    print(f"epoch {epoch}: train {float(loss):.2f}, test {float(evaluate(params, test, held)):.2f}")
samples = jax.jit(lambda p, z: jax.nn.sigmoid(model.apply(p, z, method=VAE.decode)))(params, jax.random.normal(key, (64, LATENTS)))
print("mean brightness of samples", round(float(samples.mean()), 3))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
