"""DQN learner with a replay buffer and a target network; bad batches are skipped. "After the first target update the return doesn't move any more."

Truth: target = params only makes a second name for the same buffers; the train step donates params while it also reads target, so every call after that fails (donated/deleted buffer), and the except clause skips the step in silence.
Advice: copy at the target update (jax.tree.map(jnp.copy, params)) or don't donate; don't swallow RuntimeErrors.
"""
import time
T0 = time.perf_counter()
import json
import sys
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"donat|delet|alias|same buffer", r"buffer|array|argument|target|param|donat|again|twice|reus|call")
S, A, B, STEPS, EVERY = 24, 6, 256, 1500, 250
tx = optax.adam(5e-4)


def init(key):
    sizes = [S, 256, 256, A]
    return [(jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, jnp.zeros(b))
            for k, a, b in zip(jax.random.split(key, 3), sizes, sizes[1:])]


def q_values(p, s):
    for w, b in p[:-1]:
        s = jax.nn.relu(s @ w + b)
    return s @ p[-1][0] + p[-1][1]


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt_state, target, s, a, r, s2):
    goal = r + 0.9 * q_values(target, s2).max(-1)

    def loss(p):
        q = jnp.take_along_axis(q_values(p, s), a[:, None], 1)[:, 0]
        return jnp.mean(optax.huber_loss(q, goal))

    l, g = jax.value_and_grad(loss)(params)
    up, opt_state = tx.update(g, opt_state)
    return optax.apply_updates(params, up), opt_state, l


class Replay:
    def __init__(self, n):
        self.rng = np.random.default_rng(0)
        self.s = self.rng.normal(size=(n, S)).astype(np.float32)
        self.a = self.rng.integers(0, A, n).astype(np.int32)
        self.r = np.tanh(self.s[np.arange(n), self.a]).astype(np.float32)
        self.s2 = (0.9 * self.s + 0.1 * self.rng.normal(size=(n, S))).astype(np.float32)

    def sample(self):
        i = self.rng.integers(0, len(self.a), B)
        return self.s[i], self.a[i], self.r[i], self.s2[i]


replay = Replay(50_000)
params = init(jax.random.key(0))
target = jax.tree.map(jnp.copy, params)
opt_state = tx.init(params)
skipped, loss = 0, None
for step in range(1, STEPS + 1):
    batch = replay.sample()
    try:
        params, opt_state, loss = train_step(params, opt_state, target, *batch)  # fault
    except (ValueError, RuntimeError):
        skipped += 1                      # a bad batch: go on with the next
        continue
    if step % EVERY == 0:
        target = jax.tree.map(jnp.copy, params) if FIXED else params  # fault
        print("step", step, "td loss", float(loss), flush=True)
print("skipped batches:", skipped)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
