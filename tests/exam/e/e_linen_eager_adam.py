"""Character transformer in Flax Linen, AdamW with gradient clipping. "The forward and backward pass is jitted, still most of a step is somewhere else."

Truth: only value_and_grad is jitted; tx.update and apply_updates run eagerly, hundreds of tiny operations dispatched one by one from Python in every step.
Advice: put the whole update (tx.update, apply_updates) into the jitted train step.
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

FIXED = "--fixed" in sys.argv
WORDS = (r"eager|op[- ]by[- ]op|un-?jitted|not (\w+ )?(jitted|compiled)|outside.{0,20}jit|without.{0,10}jit|one (at a time|by one)|(small|tiny|many|separate|single).{0,30}(op|dispatch|program|kernel|launch)|dispatch",
         r"jit|compile|optax|update|optimi[sz]er|step")
V, L, B, D, STEPS = 64, 32, 4, 64, 90


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.SelfAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
        h = nn.gelu(nn.Dense(4 * D)(nn.LayerNorm()(x)))
        return x + nn.Dense(D)(h)


class LM(nn.Module):
    @nn.compact
    def __call__(self, tok):
        x = nn.Embed(V, D)(tok) + self.param("pos", nn.initializers.normal(0.02), (L, D))
        for _ in range(3):
            x = Block()(x)
        return nn.Dense(V)(nn.LayerNorm()(x))


model = LM()
params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, L), jnp.int32))["params"]
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=0.01))
opt_state = jax.jit(tx.init)(params)


def loss_fn(params, tok):
    logits = model.apply({"params": params}, tok[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tok[:, 1:]).mean()


grad_fn = jax.jit(jax.value_and_grad(loss_fn))


@jax.jit
def full_step(params, opt_state, tok):
    loss, grads = jax.value_and_grad(loss_fn)(params, tok)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


rng = np.random.default_rng(0)
text = (np.cumsum(rng.integers(0, 3, 50000)) % V).astype(np.int32)
lost = 0.0
for step in range(STEPS):
    start = rng.integers(0, len(text) - L - 1, B)
    tok = text[start[:, None] + np.arange(L + 1)]
    if FIXED:
        params, opt_state, loss = full_step(params, opt_state, tok)
    else:
        loss, grads = grad_fn(params, tok)
        t = time.perf_counter()
        updates, opt_state = tx.update(grads, opt_state, params)  # fault
        params = optax.apply_updates(params, updates)  # fault
        lost += time.perf_counter() - t
    if (step + 1) % 30 == 0:
        print("step", step + 1, "loss", float(loss), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))
