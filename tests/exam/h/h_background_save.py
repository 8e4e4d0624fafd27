"""A small language model with checkpoints written by a background thread. "The run ended fine, but the checkpoint folder is empty."

Truth: the train step donates the state, and the state is handed to the saver thread without a copy; when the saver reads it, it is deleted. The exception stays in the future nobody looks at.
Advice: jax.device_get the state before submitting (or copy on the device), and look at the futures' results.
"""
import time
T0 = time.perf_counter()
import functools
import json
import os
import pickle
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

FIXED = "--fixed" in sys.argv
WORDS = (r"donat|deleted|future|swallow|unread|never (read|looked|retriev|check)|silent", r"deleted|exception|error|fail|raised|RuntimeError|crash")
VOCAB, SEQ, BATCH, STEPS, EVERY = 128, 64, 16, 120, 20


class LM(nn.Module):
    @nn.compact
    def __call__(self, tok):
        x = nn.Embed(VOCAB, 128)(tok) + self.param("pos", nn.initializers.normal(0.02), (SEQ, 128))
        mask = nn.make_causal_mask(tok)
        for _ in range(2):
            x = x + nn.SelfAttention(4)(nn.LayerNorm()(x), mask)
            x = x + nn.Dense(128)(nn.gelu(nn.Dense(512)(nn.LayerNorm()(x))))
        return nn.Dense(VOCAB)(nn.LayerNorm()(x))


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, tok):
    def loss_fn(p):
        logits = state.apply_fn({"params": p}, tok[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tok[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def rotate(folder, keep=3):
    old = sorted(f for f in os.listdir(folder) if f.endswith(".pkl"))
    for f in old[:-keep]:
        os.remove(os.path.join(folder, f))
    time.sleep(0.3)                               # network file system


def save(folder, step, params):
    rotate(folder)
    host = jax.device_get(params)  # fault
    tmp = os.path.join(folder, f"tmp{step}")
    with open(tmp, "wb") as f:
        pickle.dump(host, f)
    os.replace(tmp, os.path.join(folder, f"step{step:06d}.pkl"))


def main():
    rng = np.random.default_rng(0)
    text = np.cumsum(rng.integers(0, 3, 100_000)) % VOCAB
    model = LM()
    params = model.init(jax.random.PRNGKey(0), jnp.zeros((1, SEQ), jnp.int32))["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))
    del params
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as saver:
        pending = []
        for step in range(1, STEPS + 1):
            at = rng.integers(0, len(text) - SEQ - 1, BATCH)
            state, loss = train_step(state, text[at[:, None] + np.arange(SEQ + 1)].astype(np.int32))
            if step % EVERY == 0 and step < STEPS:
                print(f"step {step} loss {float(loss):.3f}", flush=True)
                if FIXED:
                    pending.append(saver.submit(save, folder, step, jax.device_get(state.params)))
                else:
                    saver.submit(save, folder, step, state.params)  # fault
        for p in pending:
            p.result()
        saver.shutdown()
        print("checkpoints:", sorted(os.listdir(folder)))
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))


main()
