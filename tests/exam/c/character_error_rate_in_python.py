"""Training an epoch takes a second, but the time between two epochs is much longer; the accelerator is idle most of the time.

Truth: after each epoch the evaluation computes the character error rate with a pure Python edit distance on the main thread, which takes most of the run while JAX has nothing to do.
Advice: compute the edit distances for the whole batch at once (NumPy or a jitted scan), in a C library, or on fewer samples, less often, or in another process.
"""
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"eval|metric|edit|error rate|python|host", r"idle|python|host|most of|time|seconds|wait|share|%")
LENGTH, FEATURES, SYMBOLS = 48, 24, 28


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (ca != cb))
    return row[-1]


def edit_distances(a, b):
    steps = np.arange(b.shape[1] + 1)
    rows = np.tile(steps, (len(a), 1))
    for i in range(a.shape[1]):
        diagonal = rows[:, :-1] + (a[:, i : i + 1] != b)
        rows = np.concatenate([np.full((len(a), 1), i + 1), np.minimum(rows[:, 1:] + 1, diagonal)], axis=1)
        rows = np.minimum.accumulate(rows - steps, axis=1) + steps
    return rows[:, -1]


def character_error_rate(guess, truth):
    if FIXED:
        return edit_distances(guess, truth).mean() / LENGTH
    return np.mean([edit_distance(g, t) for g, t in zip(guess.tolist(), truth.tolist())]) / LENGTH  # fault


def predict(params, sound):
    return jax.nn.relu(jax.nn.relu(sound @ params["a"]) @ params["b"]) @ params["c"]


def main():
    rng = np.random.default_rng(0)
    text = rng.integers(0, SYMBOLS, (4096, LENGTH))
    voice = rng.standard_normal((SYMBOLS, FEATURES))
    sound = (voice[text] + 1.2 * rng.standard_normal((4096, LENGTH, FEATURES))).astype(np.float32)
    shapes = {"a": (FEATURES, 48), "b": (48, 48), "c": (48, SYMBOLS)}
    params = {k: jnp.asarray(rng.standard_normal(s) / np.sqrt(s[0]), jnp.float32) for k, s in shapes.items()}
    tx = optax.adam(2e-3)
    opt_state = tx.init(params)

    @jax.jit
    def step(params, opt_state, sound, text):
        def loss_fn(p):
            return optax.softmax_cross_entropy_with_integer_labels(predict(p, sound), text).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    decode = jax.jit(lambda params, sound: predict(params, sound).argmax(-1))
    lost = 0.0
    for epoch in range(5):
        for rows in rng.permutation(3072).reshape(-1, 64):
            params, opt_state, loss = step(params, opt_state, sound[rows], text[rows])
        guess = np.asarray(decode(params, sound[3072:]))
        t0 = time.perf_counter()
        rate = character_error_rate(guess, text[3072:])  # fault
        lost += 0.0 if FIXED else time.perf_counter() - t0
        print(f"epoch {epoch} loss {float(loss):.4f} character error rate {rate:.3f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
