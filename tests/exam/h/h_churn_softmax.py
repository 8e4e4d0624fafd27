"""Binary churn classifier in Flax. "The loss hovers at the same value from the first epoch on, whatever the learning rate."

Truth: softmax over a single output unit is always 1; the gradient is exactly zero and no parameter ever changes.
Advice: sigmoid (optax.sigmoid_binary_cross_entropy on the logit), or two output units.
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
WORDS = (r"gradient|grad|param|weight|loss|softmax", r"zero|never (chang|mov|updat)|not (chang|mov|updat|learn|improv|fall)|constant|unchanged|dead|always 1|flat|stuck|same")
ROWS, BATCH, EPOCHS = 32768, 512, 12


class Churn(nn.Module):
    @nn.compact
    def __call__(self, num, cat):
        emb = nn.Embed(500, 16)(cat).reshape(cat.shape[0], -1)
        x = jnp.concatenate([num, emb], -1)
        for width in (512, 512, 128):
            x = nn.relu(nn.LayerNorm()(nn.Dense(width)(x)))
        logits = nn.Dense(1)(x)
        if FIXED:
            return nn.sigmoid(logits)[:, 0]
        return nn.softmax(logits)[:, 0]  # fault


def bce(p, y):
    p = jnp.clip(p, 1e-6, 1 - 1e-6)
    return -jnp.mean(y * jnp.log(p) + (1 - y) * jnp.log(1 - p))


@jax.jit
def train_step(state, num, cat, y):
    def loss_fn(params):
        return bce(state.apply_fn({"params": params}, num, cat), y)  # fault

    loss, grads = jax.value_and_grad(loss_fn)(state.params)  # fault
    return state.apply_gradients(grads=grads), loss  # fault


def main():
    rng = np.random.default_rng(0)
    num = rng.normal(size=(ROWS, 20)).astype(np.float32)
    cat = rng.integers(0, 500, (ROWS, 4)).astype(np.int32)
    signal = num[:, 0] - num[:, 1] * num[:, 2] + (cat[:, 0] % 5 - 2) * 0.7
    y = (signal + 0.5 * rng.normal(size=ROWS) > 0).astype(np.float32)
    model = Churn()
    params = model.init(jax.random.PRNGKey(1), num[:1], cat[:1])["params"]
    schedule = optax.warmup_cosine_decay_schedule(1e-5, 1e-3, 50, EPOCHS * ROWS // BATCH)
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(schedule))
    for epoch in range(EPOCHS):
        losses = []
        for idx in np.split(rng.permutation(ROWS), ROWS // BATCH):
            state, loss = train_step(state, num[idx], cat[idx], y[idx])  # fault
            losses.append(loss)
        print(f"epoch {epoch} loss {float(jnp.stack(losses).mean()):.4f}")
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))


main()
