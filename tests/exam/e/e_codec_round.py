"""Learned compression: encoder, rounded latents, decoder; Flax Linen. "The reconstruction gets better, then stops at blurry means, whatever encoder I take."

Truth: jnp.round has a zero derivative, so no gradient gets to the encoder: its parameters never change, only the decoder trains.
Advice: straight-through rounding: z + lax.stop_gradient(jnp.round(z) - z), or additive noise.
"""
import time
T0 = time.perf_counter()
import json
import sys
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

FIXED = "--fixed" in sys.argv
WORDS = (r"(zero|no|never|not|n't|dead|vanish|without).{0,60}(grad|updat|train|chang|mov|learn)|unchanged|(grad|updat|train|chang|mov)\w*.{0,40}(zero|\b0\b|never|dead|vanish|nothing)|dead|frozen|stayed", r"encoder|enc\b|round|param|weight|leaf|leaves|layer")
STEPS, B, D, Z = 300, 256, 256, 12


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(256)(x))
        return nn.Dense(Z)(nn.gelu(nn.Dense(128)(x)))


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, z):
        z = nn.gelu(nn.Dense(128)(z))
        return nn.Dense(D)(nn.gelu(nn.Dense(256)(z)))


class Codec(nn.Module):
    def setup(self):
        self.encoder, self.decoder = Encoder(), Decoder()

    def __call__(self, x):
        z = self.encoder(x) * 2.0
        if FIXED:
            q = z + jax.lax.stop_gradient(jnp.round(z) - z)
        else:
            q = jnp.round(z)  # fault
        return self.decoder(q), q


@jax.jit
def train_step(ts, x):
    def loss_fn(p):
        rec, q = ts.apply_fn({"params": p}, x)
        return jnp.mean((rec - x) ** 2)
    loss, grads = jax.value_and_grad(loss_fn)(ts.params)  # fault
    return ts.apply_gradients(grads=grads), loss  # fault


model = Codec()
params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, D)))["params"]
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(2e-3, STEPS)))
ts = TrainState.create(apply_fn=model.apply, params=params, tx=tx)
rng = np.random.default_rng(0)
basis = rng.normal(size=(24, D)).astype(np.float32) / 3
for step in range(1, STEPS + 1):
    x = np.sin(rng.normal(size=(B, 24)).astype(np.float32) @ basis)
    ts, loss = train_step(ts, x)  # fault
    if step % 100 == 0:
        print("step", step, "mse", float(loss), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
