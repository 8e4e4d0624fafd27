"""GAN on 2-D Gaussians in Flax NNX: two networks, two optimizers, the discriminator frozen while the generator trains (and the other way round), generator trained every second step, losses kept on the device and read per report."""
import time
T0 = time.perf_counter()
import json
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

STEPS, B, Z = 900, 256, 16


class MLP(nnx.Module):
    def __init__(self, din, dout, rngs):
        self.a = nnx.Linear(din, 128, rngs=rngs)
        self.b = nnx.Linear(128, 128, rngs=rngs)
        self.c = nnx.Linear(128, dout, rngs=rngs)

    def __call__(self, x):
        return self.c(nnx.leaky_relu(self.b(nnx.leaky_relu(self.a(x)))))


@nnx.jit
def d_step(gen, disc, opt, real, key):
    fake = jax.lax.stop_gradient(gen(jax.random.normal(key, (B, Z))))

    def loss(disc):
        r, f = disc(real)[:, 0], disc(fake)[:, 0]
        return (optax.sigmoid_binary_cross_entropy(r, jnp.full_like(r, 0.9)) + optax.sigmoid_binary_cross_entropy(f, jnp.zeros_like(f))).mean()

    l, g = nnx.value_and_grad(loss)(disc)
    opt.update(disc, g)
    return l


@nnx.jit
def g_step(gen, disc, opt, key):
    def loss(gen):
        f = disc(gen(jax.random.normal(key, (B, Z))))[:, 0]
        return optax.sigmoid_binary_cross_entropy(f, jnp.ones_like(f)).mean()

    l, g = nnx.value_and_grad(loss)(gen)
    opt.update(gen, g)
    return l


def main():
    rng = np.random.default_rng(0)
    centers = 2 * np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], 1)
    gen, disc = MLP(Z, 2, nnx.Rngs(0)), MLP(2, 1, nnx.Rngs(1))
    g_opt = nnx.Optimizer(gen, optax.adam(2e-4, b1=0.5), wrt=nnx.Param)
    d_opt = nnx.Optimizer(disc, optax.adam(2e-4, b1=0.5), wrt=nnx.Param)
    keys = jax.random.split(jax.random.key(2), (STEPS, 2))
    d_losses, g_losses = [], []
    for step in range(STEPS):
        real = (centers[rng.integers(0, 8, B)] + 0.1 * rng.normal(size=(B, 2))).astype(np.float32)
        d_losses.append(d_step(gen, disc, d_opt, real, keys[step, 0]))
        if step % 2:
            g_losses.append(g_step(gen, disc, g_opt, keys[step, 1]))
        if (step + 1) % 300 == 0:
            d, g = jax.device_get((d_losses, g_losses))
            print(f"step {step + 1}: D {np.mean(d):.3f} G {np.mean(g):.3f}", flush=True)
            d_losses, g_losses = [], []


main()
print(json.dumps({"wall": time.perf_counter() - T0}))
