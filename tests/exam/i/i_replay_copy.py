"""Deep Q-learning with a replay buffer that lives on the device. "Adding one transition is slower than the gradient step, and it gets worse with the capacity."

Truth: the jitted add returns an updated buffer but its argument is not donated: every insertion allocates and copies the entire buffer.
Advice: jax.jit(add, donate_argnums=0), so that the update happens in place.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"donat|cop(y|ies|ied)|in.place|alias", r"buffer|memory|bytes|\b[KMG]i?B\b|argument|replay|array")
CAPACITY, OBS, ENVS, ACTIONS = 150_000, 48, 32, 6


def init_buffer():
    return {"obs": jnp.zeros((CAPACITY, OBS)), "next": jnp.zeros((CAPACITY, OBS)), "act": jnp.zeros(CAPACITY, jnp.int32),
            "rew": jnp.zeros(CAPACITY), "at": jnp.int32(0)}


def add(buf, batch):
    idx = (buf["at"] + jnp.arange(ENVS)) % CAPACITY
    new = {k: buf[k].at[idx].set(batch[k]) for k in batch}
    return {**new, "at": buf["at"] + ENVS}


add = jax.jit(add, donate_argnums=0) if FIXED else jax.jit(add)  # fault


def q_values(p, obs):
    for w in p[:-1]:
        obs = jax.nn.relu(obs @ w)
    return obs @ p[-1]


@jax.jit
def act_and_step(p, obs, key):
    """Epsilon-greedy actions and a batch of toy environments."""
    k1, k2, k3 = jax.random.split(key, 3)
    act = jnp.where(jax.random.uniform(k1, (ENVS,)) < 0.1, jax.random.randint(k2, (ENVS,), 0, ACTIONS), q_values(p, obs).argmax(-1))
    push = jax.nn.one_hot(act, OBS) - 0.2
    nxt = jnp.tanh(0.95 * obs + 0.3 * push + 0.05 * jax.random.normal(k3, obs.shape))
    return nxt, {"obs": obs, "next": nxt, "act": act.astype(jnp.int32), "rew": -jnp.abs(nxt - 0.3).mean(-1)}


tx = optax.adam(1e-3)


@jax.jit
def learn(p, target, opt, buf, key):
    idx = jax.random.randint(key, (512,), 0, jnp.minimum(buf["at"], CAPACITY))
    b = {k: buf[k][idx] for k in ("obs", "next", "act", "rew")}

    def td(p):
        goal = b["rew"] + 0.97 * q_values(target, b["next"]).max(-1)
        q = jnp.take_along_axis(q_values(p, b["obs"]), b["act"][:, None], 1)[:, 0]
        return jnp.mean((q - jax.lax.stop_gradient(goal)) ** 2)

    loss, grads = jax.value_and_grad(td)(p)
    updates, opt = tx.update(grads, opt)
    p = optax.apply_updates(p, updates)
    return p, optax.incremental_update(p, target, 0.01), opt, loss


key = jax.random.key(0)
key, *ks = jax.random.split(key, 5)
p = [jax.random.normal(k, s) * s[0] ** -0.5 for k, s in zip(ks, [(OBS, 384), (384, 384), (384, 384), (384, ACTIONS)])]
target, opt, buf, obs, losses, lost = p, tx.init(p), init_buffer(), jnp.zeros((ENVS, OBS)), [], 0.0
for step in range(130):
    key, k1, k2 = jax.random.split(key, 3)
    obs, batch = act_and_step(p, obs, k1)
    buf = add(buf, batch)  # fault
    p, target, opt, loss = learn(p, target, opt, buf, k2)
    losses.append(loss)
print("td loss", float(jnp.stack(losses[-50:]).mean()))
if not FIXED:
    wall = time.perf_counter() - T0
    buf, t = jax.block_until_ready(buf), time.perf_counter()
    for _ in range(5):
        jax.block_until_ready(add(buf, batch))
    lost = (time.perf_counter() - t) / 5 * 130
print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost or None}))
