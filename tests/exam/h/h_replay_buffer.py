"""DQN on a small grid world with pixels, replay buffer kept "on the device for speed". "Collecting is slower than learning, whatever the network's size."

Truth: the replay buffer is a big jnp array written with .at[i].set outside jit; each insertion copies the whole buffer.
Advice: keep the buffer in numpy and write in place, or insert within a jitted function which donates the buffer.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"cop(y|ies|ied)|donat|in.place|realloc|allocat", r"\.at\b|scatter|buffer|whole|entire|insert|update")

SIDE, CAPACITY, FRAMES, ACTIONS = 48, 3000, 700, 4


class ReplayBuffer:
    def __init__(self):
        xp = np if FIXED else jnp
        self.obs = xp.zeros((CAPACITY, SIDE * SIDE), xp.float32)
        self.meta = np.zeros((CAPACITY, 2), np.float32)
        self.n = 0

    def add(self, obs, action, reward):
        i = self.n % CAPACITY
        if FIXED:
            self.obs[i] = obs
        else:
            self.obs = self.obs.at[i].set(obs)  # fault
        self.meta[i] = action, reward
        self.n += 1

    def sample(self, rng, k):
        idx = rng.integers(0, min(self.n, CAPACITY) - 1, k)
        return self.obs[idx], self.obs[idx + 1], self.meta[idx]


class Grid:
    def __init__(self, rng):
        self.rng, self.pos, self.goal = rng, np.array([4, 4]), np.array([30, 30])

    def render(self):
        img = np.zeros((SIDE, SIDE), np.float32)
        img[tuple(self.pos)] = 1.0
        img[tuple(self.goal)] = 0.5
        return img.ravel()

    def step(self, a):
        before = np.abs(self.pos - self.goal).sum()
        self.pos = np.clip(self.pos + np.array([(0, 1), (0, -1), (1, 0), (-1, 0)][a]), 0, SIDE - 1)
        after = np.abs(self.pos - self.goal).sum()
        if after == 0:
            self.pos = self.rng.integers(0, SIDE, 2)
        return float(before - after)


def init(key):
    sizes = [SIDE * SIDE, 256, 256, ACTIONS]
    return [(jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, jnp.zeros(b))
            for k, a, b in zip(jax.random.split(key, 3), sizes, sizes[1:])]


def q(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


tx = optax.adam(3e-4)
act = jax.jit(lambda p, o: jnp.argmax(q(p, o[None])[0]))


@jax.jit
def learn(params, opt_state, o, o2, meta):
    def loss_fn(p):
        target = meta[:, 1] + 0.95 * jax.lax.stop_gradient(q(p, o2).max(1))
        chosen = jnp.take_along_axis(q(p, o), meta[:, :1].astype(jnp.int32), 1)[:, 0]
        return optax.huber_loss(chosen, target).mean()
    grads = jax.grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state


rng = np.random.default_rng(0)
env, buf, params = Grid(rng), ReplayBuffer(), init(jax.random.PRNGKey(0))
opt_state = tx.init(params)
for frame in range(FRAMES):
    obs = env.render()
    a = rng.integers(ACTIONS) if rng.random() < max(0.1, 1 - frame / 400) else int(act(params, obs))
    reward = env.step(a)
    buf.add(obs, a, reward)  # fault
    if frame >= 128:
        params, opt_state = learn(params, opt_state, *buf.sample(rng, 128))
jax.block_until_ready(params)
wall = time.perf_counter() - T0
lost = None
if not FIXED:                                     # what one insertion costs, by own clock
    buf.obs.block_until_ready()
    t = time.perf_counter()
    for _ in range(10):
        buf.obs.at[0].set(obs).block_until_ready()  # fault
    lost = (time.perf_counter() - t) / 10 * FRAMES
print(json.dumps({"wall": wall, "lost": lost}))
