"""Parallel tempering on a mixture: vmapped Langevin chains, swaps in the scan, diagnostics per block; structure as in the tempering examples of blackjax and TFP."""
import time
T0 = time.perf_counter()
import json

import jax
import jax.numpy as jnp
import numpy as np

CHAINS, DIM, BLOCK, BLOCKS = 48, 16, 400, 12
centers = np.stack([np.full(DIM, -2.0), np.full(DIM, 2.0), np.tile([2.0, -2.0], DIM // 2)]).astype(np.float32)
betas = jnp.geomspace(0.05, 1.0, CHAINS)


def log_density(x):
    return jax.nn.logsumexp(-0.5 * jnp.sum((x - centers) ** 2, -1))


def langevin(x, beta, key):
    move, coin = jax.random.split(key)
    h = 0.12
    mean = lambda x: x + h * beta * jax.grad(log_density)(x)
    new = mean(x) + jnp.sqrt(2 * h) * jax.random.normal(move, x.shape)
    back = -jnp.sum((x - mean(new)) ** 2) / (4 * h)
    forth = -jnp.sum((new - mean(x)) ** 2) / (4 * h)
    accept = jnp.log(jax.random.uniform(coin)) < beta * (log_density(new) - log_density(x)) + back - forth
    return jnp.where(accept, new, x), accept


def swap(xs, key, parity):
    energy = jax.vmap(log_density)(xs)
    order = jnp.arange(CHAINS)
    partner = jnp.clip(jnp.where((order + parity) % 2 == 0, order + 1, order - 1), 0, CHAINS - 1)
    gain = (betas - betas[partner]) * (energy[partner] - energy)
    coin = jnp.log(jax.random.uniform(key, (CHAINS,)))[jnp.minimum(order, partner)]
    return jnp.where((coin < gain)[:, None], xs[partner], xs)


@jax.jit
def block(xs, key):
    def step(xs, inputs):
        key, n = inputs
        moves, exchange = jax.random.split(key)
        xs, accepted = jax.vmap(langevin)(xs, betas, jax.random.split(moves, CHAINS))
        xs = swap(xs, exchange, n % 2)
        return xs, (xs[-1], accepted.mean())
    xs, (cold, accepted) = jax.lax.scan(step, xs, (jax.random.split(key, BLOCK), jnp.arange(BLOCK)))
    return xs, cold, accepted.mean()


def main():
    key = jax.random.key(0)
    xs, samples = jax.random.normal(key, (CHAINS, DIM)), []
    for n in range(BLOCKS):
        xs, cold, accepted = block(xs, jax.random.fold_in(key, n))
        samples.append(cold)
        if n % 4 == 3:
            print(f"block {n} accepted {float(accepted):.2f}")
    samples = np.concatenate(jax.device_get(samples))
    print("mode weights", np.bincount(np.argmin(((samples[:, None] - centers) ** 2).sum(-1), 1), minlength=3) / len(samples))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))


main()
