"""Advantage actor-critic with the environment in JAX: 64 environments, rollout and update in one jitted function.

Structure from PureJaxRL (rollout in lax.scan, GAE in a reverse scan), rewritten for a small pendulum.
"""
import time
T0 = time.perf_counter()
import json

import jax
import jax.numpy as jnp
import optax

ENVS, HORIZON, UPDATES, GAMMA, LAM = 64, 64, 400, 0.98, 0.95
FORCES = jnp.array([-2.0, 0.0, 2.0], jnp.float32)


def init_params(key):
    k = jax.random.split(key, 4)
    return {
        "w1": jax.random.normal(k[0], (3, 64)) * 0.5,
        "w2": jax.random.normal(k[1], (64, 64)) * 0.12,
        "policy": jax.random.normal(k[2], (64, 3)) * 0.01,
        "value": jax.random.normal(k[3], (64, 1)) * 0.01,
    }


def network(params, obs):
    h = jnp.tanh(jnp.tanh(obs @ params["w1"]) @ params["w2"])
    return h @ params["policy"], (h @ params["value"])[..., 0]


def observe(state):
    return jnp.stack([jnp.cos(state[:, 0]), jnp.sin(state[:, 0]), state[:, 1] / 4], axis=-1)


def env_step(state, action):
    angle, speed = state[:, 0], state[:, 1]
    torque = FORCES[action]
    reward = -(1 - jnp.cos(angle)) - 0.01 * speed**2 - 0.001 * torque**2
    speed = jnp.clip(speed + 0.05 * (9.8 * jnp.sin(angle) * 0.5 + 3 * torque), -8, 8)
    return jnp.stack([angle + 0.05 * speed, speed], axis=-1), reward


tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))


@jax.jit
def update(params, opt, state, key):
    def act(carry, key):
        obs = observe(carry)
        logits, value = network(params, obs)
        action = jax.random.categorical(key, logits)
        following, reward = env_step(carry, action)
        return following, (obs, action, value, reward)

    state, (obs, actions, values, rewards) = jax.lax.scan(act, state, jax.random.split(key, HORIZON))
    last = network(params, observe(state))[1]

    def gae(carry, item):
        advantage, following = carry
        value, reward = item
        advantage = reward + GAMMA * following - value + GAMMA * LAM * advantage
        return (advantage, value), advantage

    advantages = jax.lax.scan(gae, (jnp.zeros(ENVS), last), (values, rewards), reverse=True)[1]

    def loss_fn(p):
        logits, value = network(p, obs)
        logp = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(logp, actions[..., None], axis=-1)[..., 0]
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
        return -(chosen * scaled).mean() + 0.5 * jnp.mean((value - advantages - values) ** 2) - 0.01 * entropy

    updates, opt = tx.update(jax.grad(loss_fn)(params), opt)
    return optax.apply_updates(params, updates), opt, state, rewards.mean()


key = jax.random.key(0)
params = init_params(key)
opt = tx.init(params)
state = jax.random.uniform(jax.random.key(1), (ENVS, 2), minval=-3.0, maxval=3.0)
for number in range(UPDATES):
    key, sub = jax.random.split(key)
    params, opt, state, reward = update(params, opt, state, sub)
    if number % 100 == 99:
        print(f"update {number + 1}: reward per step {float(reward):.3f}")
print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": 0}))
