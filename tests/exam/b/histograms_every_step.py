"""A hobby transformer with live charts. With the dashboard on it makes about half of the steps per second that it made
before; the dashboard writes to a local file and the file is small.

Truth: at every step each gradient and parameter array is fetched to the host and put into a NumPy histogram, while the device waits.
Advice: make histograms every hundred steps or so (scalars in between), or compute them inside the jitted step and fetch only the counts.

Source: wandb/client-ng#80 (default of wandb's histogram interval), wandb/wandb#3690 (logging under asynchronous dispatch).
"""
import json
import sys
import tempfile
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"histogram|log|host|python|fetch|transfer|asarray|callback|idle|wait", r"every step|each step|per step|less often|seldom|every \w+ steps|interval|steps?|between")
EVERY = 50 if FIXED else 1
WIDTH, LAYERS, BATCH, LENGTH, VOCAB, STEPS = 192, 4, 4, 16, 256, 90


def init(key):
    def dense(k, a, b):
        return jax.random.normal(k, (a, b)) / a**0.5

    ks = iter(jax.random.split(key, 2 + 4 * LAYERS))
    layers = [
        {"qkv": dense(next(ks), WIDTH, 3 * WIDTH), "out": dense(next(ks), WIDTH, WIDTH), "up": dense(next(ks), WIDTH, 4 * WIDTH), "down": dense(next(ks), 4 * WIDTH, WIDTH)}
        for _ in range(LAYERS)
    ]
    return {"embed": dense(next(ks), VOCAB, WIDTH), "layers": layers}


def logits_of(params, tokens):
    x = params["embed"][tokens]
    causal = jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool))
    for p in params["layers"]:
        q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
        scores = jnp.where(causal, q @ k.swapaxes(1, 2) / WIDTH**0.5, -1e9)
        x = x + jax.nn.softmax(scores) @ v @ p["out"]
        x = x + jax.nn.gelu(x / (1e-3 + x.std(-1, keepdims=True)) @ p["up"]) @ p["down"]
    return x @ params["embed"].T


optimizer = optax.adamw(1e-3)


@jax.jit
def train_step(params, opt_state, tokens):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(logits_of(p, tokens[:, :-1]), tokens[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss, grads


class Dashboard:
    def __init__(self, path):
        self.file, self.seconds = open(path, "w"), 0.0

    def histograms(self, step, **trees):
        t = time.perf_counter()
        for name, tree in trees.items():
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
                counts, edges = np.histogram(np.asarray(leaf), bins=64)  # fault
                self.file.write(json.dumps([step, name, jax.tree_util.keystr(path), counts.tolist(), edges.tolist()]) + "\n")
        self.seconds += time.perf_counter() - t


params = jax.jit(init)(jax.random.key(0))
opt_state = optimizer.init(params)
rng = np.random.default_rng(0)
with tempfile.NamedTemporaryFile(suffix=".jsonl") as out:
    board = Dashboard(out.name)
    for step in range(STEPS):
        tokens = np.cumsum(rng.integers(0, 3, (BATCH, LENGTH + 1)), axis=1) % VOCAB
        params, opt_state, loss, grads = train_step(params, opt_state, tokens)
        loss.block_until_ready()
        if step % EVERY == 0:
            board.histograms(step, gradients=grads, parameters=params)  # fault
    print("loss", float(loss))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(board.seconds, 2)}))
