"""A small diffusion denoiser in Flax NNX with the functional (split/merge) API. "It trains for hours and the samples stay noise."

Truth: train_step returns the updated state, but the loop never feeds it back: every step starts from the initial weights and Adam state.
Advice: rebind the returned state (state, loss = train_step(graphdef, state, ...)).
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

FIXED = "--fixed" in sys.argv
WORDS = (r"loss|state|param|weight|result|output|argument|input",
         r"unchang|(not|n't|never|no)\b.{0,40}(chang|mov|updat|improv|decreas|fall|learn|train|advanc|used|kept|fed|assign|rebound|progress)|flat|stuck|same|identical|discard|dropped|thrown|stand(s|ing)? still|plateau|unused")
STEPS, B, D = 900, 256, 32
BETAS = jnp.linspace(1e-4, 0.02, 200)
ABAR = jnp.cumprod(1.0 - BETAS)


class Denoiser(nnx.Module):
    def __init__(self, rngs):
        self.inp = nnx.Linear(D + 32, 192, rngs=rngs)
        self.mid = nnx.Linear(192, 192, rngs=rngs)
        self.norm = nnx.LayerNorm(192, rngs=rngs)
        self.out = nnx.Linear(192, D, rngs=rngs)

    def __call__(self, x, t):
        ang = t[:, None] * jnp.exp(-jnp.arange(16) * 0.5)
        h = jnp.concatenate([x, jnp.sin(ang), jnp.cos(ang)], -1)
        h = nnx.silu(self.inp(h))
        h = h + nnx.silu(self.mid(self.norm(h)))
        return self.out(h)


def loss_fn(model, x0, key):
    kt, kn = jax.random.split(key)
    t = jax.random.randint(kt, (x0.shape[0],), 0, 200)
    eps = jax.random.normal(kn, x0.shape)
    a = ABAR[t][:, None]
    xt = jnp.sqrt(a) * x0 + jnp.sqrt(1 - a) * eps
    return jnp.mean((model(xt, t.astype(jnp.float32)) - eps) ** 2)


@jax.jit
def train_step(graphdef, state, x0, key):
    model, opt = nnx.merge(graphdef, state)
    loss, grads = nnx.value_and_grad(loss_fn)(model, x0, key)
    opt.update(model, grads)
    return nnx.state((model, opt)), loss


def main():
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(4, D)).astype(np.float32)
    data = np.tanh(rng.normal(size=(20000, 4)).astype(np.float32) @ basis)
    model = Denoiser(nnx.Rngs(0))
    opt = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    graphdef, state = nnx.split((model, opt))
    keys = jax.random.split(jax.random.key(1), STEPS)
    losses = []
    for step in range(STEPS):
        x0 = data[rng.integers(0, len(data), B)]
        if FIXED:
            state, loss = train_step(graphdef, state, x0, keys[step])
        else:
            new_state, loss = train_step(graphdef, state, x0, keys[step])  # fault
        losses.append(loss)
        if (step + 1) % 300 == 0:
            print("step", step + 1, "loss", float(np.mean(losses[-50:])), flush=True)
    model, opt = nnx.merge(graphdef, state)


main()  # fault
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
