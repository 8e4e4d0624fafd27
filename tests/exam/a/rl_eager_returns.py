"""REINFORCE on a small pole-balancing task: the environment and the network are tiny and both jitted, still an episode takes over a hundred milliseconds.

Truth: the discounted returns are computed step by step with jnp scalars in a Python loop outside jit; each time step dispatches several tiny eager operations.
Advice: compute the returns with numpy or with lax.scan inside a jitted function.
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
WORDS = (r"eager|op.by.op|outside (of )?jit|without jit|not jitted|unjitted|dispatch|small op|tiny", r"jit|scan|numpy|loop|python")
HORIZON, EPISODES, GAMMA = 200, 700, 0.98


def policy(params, obs):
    return jnp.tanh(obs @ params["w1"] + params["b1"]) @ params["w2"]


def pole(state, action):
    x, v, angle, spin = state
    force = jnp.where(action == 1, 8.0, -8.0)
    acc = (9.8 * jnp.sin(angle) - jnp.cos(angle) * force / 1.1) / 0.7
    state = jnp.stack([x + 0.02 * v, v + 0.02 * force / 1.1, angle + 0.02 * spin, spin + 0.02 * acc])
    return state, jnp.where((jnp.abs(angle) < 0.25) & (jnp.abs(x) < 2.4), 1.0, 0.0)


@jax.jit
def rollout(params, key):
    def step(carry, key):
        state, alive = carry
        action = jax.random.categorical(key, policy(params, state))
        following, reward = pole(state, action)
        alive = alive * reward
        return (following, alive), (state, action, alive)

    start = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
    return jax.lax.scan(step, (start, 1.0), jax.random.split(key, HORIZON))[1]


@jax.jit
def scan_returns(rewards):
    return jax.lax.scan(lambda g, r: (r + GAMMA * g,) * 2, 0.0, rewards, reverse=True)[1]


def discounted_returns(rewards):
    if FIXED:
        return scan_returns(rewards)
    returns, total = [], jnp.float32(0.0)
    for reward in rewards[::-1]:  # fault
        total = reward + GAMMA * total  # fault
        returns.append(total)
    return jnp.stack(returns[::-1])  # fault


tx = optax.adam(1e-2)


@jax.jit
def update(params, opt, obs, actions, alive, returns):
    def loss_fn(p):
        logp = jax.nn.log_softmax(policy(p, obs))[jnp.arange(HORIZON), actions]
        advantage = (returns - returns.mean()) / (returns.std() + 1e-6)
        return -jnp.sum(logp * advantage * alive) / alive.sum()

    updates, opt = tx.update(jax.grad(loss_fn)(params), opt)
    return optax.apply_updates(params, updates), opt


keys = jax.random.split(jax.random.key(0), EPISODES + 2)
params = {"w1": jax.random.normal(keys[-1], (4, 32)) * 0.3, "b1": jnp.zeros(32), "w2": jax.random.normal(keys[-2], (32, 2)) * 0.1}
opt, lost = tx.init(params), 0.0
for episode in range(EPISODES):
    obs, actions, alive = rollout(params, keys[episode])
    alive.block_until_ready()
    t = time.perf_counter()
    returns = discounted_returns(alive).block_until_ready()
    lost += (time.perf_counter() - t) if episode else 0.0
    params, opt = update(params, opt, obs, actions, alive, returns)
    if episode % 100 == 99:
        print(f"episode {episode + 1}: length {float(alive.sum()):.0f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(lost, 3)}))
