"""NNX: a generator trained against a frozen, pretrained feature extractor (its parameters never change by design) and a small critic that is updated every second step; eager set-up code and a data-dependent initial scale."""
import time
T0 = time.perf_counter()
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

LATENT, DIM, FEATS, BATCH, STEPS = 16, 144, 128, 256, 260


class MLP(nnx.Module):
    def __init__(self, sizes, rngs):
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in zip(sizes, sizes[1:])])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.leaky_relu(layer(x), 0.2)
        return self.layers[-1](x)


def bce(logits, target):
    return optax.sigmoid_binary_cross_entropy(logits[:, 0], jnp.full(len(logits), target)).mean()


@nnx.jit
def generator_step(gen, critic, extractor, opt, real, key):
    z = jax.random.normal(key, (BATCH, LATENT))

    def loss_fn(g):
        fake = extractor(g(z))
        match = jnp.mean((fake.mean(0) - extractor(real).mean(0)) ** 2)
        return bce(critic(fake), 1.0) + match

    loss, grads = nnx.value_and_grad(loss_fn)(gen)
    opt.update(gen, grads)
    return loss


@nnx.jit
def critic_step(gen, critic, extractor, opt, real, key):
    fake = jax.lax.stop_gradient(extractor(gen(jax.random.normal(key, (BATCH, LATENT)))))
    truth = jax.lax.stop_gradient(extractor(real))
    loss, grads = nnx.value_and_grad(lambda c: bce(c(truth), 0.9) + bce(c(fake), 0.0))(critic)
    opt.update(critic, grads)
    return loss


def pretrained_extractor(rng):
    """Eager, once: random features with orthogonal weights, scaled by a sample of the data."""
    ext = MLP([DIM, 512, FEATS], nnx.Rngs(7))
    for layer in ext.layers:
        q, _ = np.linalg.qr(rng.normal(size=(max(layer.kernel.shape),) * 2))
        a, b = layer.kernel.shape
        layer.kernel[...] = jnp.asarray(q[:a, :b], jnp.float32)
    std = jnp.std(ext(sample(rng, 512)))
    ext.layers[-1].kernel[...] = ext.layers[-1].kernel[...] / std
    return ext


def sample(rng, n):
    g = np.linspace(-1, 1, 12, dtype=np.float32)
    c = rng.uniform(-0.5, 0.5, (n, 2, 1, 1)).astype(np.float32)
    img = np.exp(-((g[None, :, None] - c[:, 0]) ** 2 + (g[None, None] - c[:, 1]) ** 2) * 8)
    return img.reshape(n, DIM)


def main():
    rng, rngs = np.random.default_rng(0), nnx.Rngs(params=0, noise=1)
    extractor = pretrained_extractor(rng)
    gen, critic = MLP([LATENT, 768, 768, DIM], rngs), MLP([FEATS, 512, 256, 1], rngs)
    g_opt = nnx.Optimizer(gen, optax.adam(3e-4, b1=0.5), wrt=nnx.Param)
    c_opt = nnx.Optimizer(critic, optax.adam(1e-4, b1=0.5), wrt=nnx.Param)
    log = []
    for step in range(STEPS):
        real = sample(rng, BATCH)
        g_loss = generator_step(gen, critic, extractor, g_opt, real, rngs.noise())
        if step % 2:
            c_loss = critic_step(gen, critic, extractor, c_opt, real, rngs.noise())
            log.append((g_loss, c_loss))
        if step % 65 == 64:                                   # reads the loss of a while ago
            print(step, *(f"{float(v):.3f}" for v in log[-10]))
    jax.block_until_ready(nnx.state(gen))
    print(json.dumps({"wall": time.perf_counter() - T0}))


main()
