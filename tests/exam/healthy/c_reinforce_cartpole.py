"""REINFORCE on a cart-pole written in JAX: rollout and update in one jitted function, metrics fetched every ten updates. Structure: purejaxrl and gymnax examples, rebuilt."""
import json
import time

import jax
import jax.numpy as jnp
import optax

START = time.perf_counter()
ENVS, HORIZON = 128, 128
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


def dynamics(s, action):
    x, dx, th, dth = s
    force = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(th), jnp.cos(th)
    tmp = (force + 0.05 * dth**2 * sin) / 1.1
    acc = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    return jnp.array([x + 0.02 * dx, dx + 0.02 * (tmp - 0.05 * acc * cos / 1.1), th + 0.02 * dth, dth + 0.02 * acc])


def policy(params, obs):
    return jnp.tanh(obs @ params["a"] + params["b"]) @ params["c"]


def rollout(params, key):
    reset_key, act_key = jax.random.split(key)
    start = jax.random.uniform(reset_key, (ENVS, 4), minval=-0.05, maxval=0.05)

    def body(carry, key):
        s, alive = carry
        action = jax.random.categorical(key, policy(params, s))
        nxt = jax.vmap(dynamics)(s, action)
        still = alive & (jnp.abs(nxt[:, 0]) < 2.4) & (jnp.abs(nxt[:, 2]) < 0.21)
        nxt = jnp.where(still[:, None], nxt, 0.0)
        return (nxt, still), (s, action, alive)

    _, out = jax.lax.scan(body, (start, jnp.ones(ENVS, bool)), jax.random.split(act_key, HORIZON))
    return out


@jax.jit
def update(params, opt_state, key):
    obs, action, alive = rollout(params, key)
    reward = alive.astype(jnp.float32)
    _, returns = jax.lax.scan(lambda g, r: (r + 0.98 * g,) * 2, jnp.zeros(ENVS), reward, reverse=True)
    adv = (returns - returns.mean(1, keepdims=True)) / (returns.std() + 1e-6)

    def loss_fn(p):
        logp = jax.nn.log_softmax(policy(p, obs))
        return -jnp.mean(jnp.take_along_axis(logp, action[..., None], -1)[..., 0] * adv * reward)

    grads = jax.grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, reward.sum(0).mean()


def main():
    a, c, key = jax.random.split(jax.random.key(0), 3)
    params = {"a": 0.5 * jax.random.normal(a, (4, 64)), "b": jnp.zeros(64), "c": 0.01 * jax.random.normal(c, (64, 2))}
    opt_state = tx.init(params)
    for i in range(200):
        key, sub = jax.random.split(key)
        params, opt_state, length = update(params, opt_state, sub)
        if i % 50 == 49:
            print(f"update {i + 1} mean length {float(length):.1f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0}))


main()
