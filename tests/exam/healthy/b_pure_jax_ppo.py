"""PPO on a vectorised cart that must be balanced; collection and learning in one compiled update.

Structure: luchris429/purejaxrl ppo.py (scan over environment steps, GAE by reverse scan, epochs of minibatches in the same jit), called in chunks to report.
"""
import json
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import optax

ENVS, UNROLL, EPOCHS, MINIBATCHES, CHUNKS, UPDATES_PER_CHUNK = 64, 64, 3, 4, 8, 8


def env_reset(key):
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)


def env_step(key, s, action):
    x, v, a, w = s
    force = jnp.where(action == 1, 10.0, -10.0)
    temp = (force + 0.05 * w**2 * jnp.sin(a)) / 1.1
    alpha = (9.8 * jnp.sin(a) - jnp.cos(a) * temp) / (0.5 * (4 / 3 - 0.1 * jnp.cos(a) ** 2 / 1.1))
    acc = temp - 0.05 * alpha * jnp.cos(a) / 1.1
    s = jnp.array([x + 0.02 * v, v + 0.02 * acc, a + 0.02 * w, w + 0.02 * alpha])
    done = (jnp.abs(s[0]) > 2.4) | (jnp.abs(s[2]) > 0.21)
    return jnp.where(done, env_reset(key), s), 1.0 - done, done


def network(params, obs):
    h = jnp.tanh(obs @ params["w1"] + params["b1"])
    return h @ params["pi"], (h @ params["v"])[..., 0]


optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-3))


def ppo_loss(params, batch):
    logits, value = network(params, batch["obs"])
    logp = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logp, batch["action"][:, None], 1)[:, 0]
    ratio = jnp.exp(chosen - batch["logp"])
    adv = (batch["adv"] - batch["adv"].mean()) / (batch["adv"].std() + 1e-8)
    actor = -jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv).mean()
    return actor + 0.5 * jnp.mean((value - batch["target"]) ** 2) + 0.01 * (jnp.exp(logp) * logp).sum(-1).mean()


def update(carry, _):
    params, opt_state, obs, key = carry

    def act(c, _):
        obs, key = c
        key, k_act, k_env = jax.random.split(key, 3)
        logits, value = network(params, obs)
        action = jax.random.categorical(k_act, logits)
        logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        nxt, reward, done = jax.vmap(env_step)(jax.random.split(k_env, ENVS), obs, action)
        return (nxt, key), {"obs": obs, "action": action, "logp": logp, "value": value, "reward": reward, "done": done}

    (obs, key), traj = jax.lax.scan(act, (obs, key), None, UNROLL)
    last = network(params, obs)[1]

    def gae(c, t):
        adv, nxt = c
        delta = t["reward"] + 0.99 * nxt * (1 - t["done"]) - t["value"]
        adv = delta + 0.99 * 0.95 * (1 - t["done"]) * adv
        return (adv, t["value"]), adv

    _, adv = jax.lax.scan(gae, (jnp.zeros(ENVS), last), traj, reverse=True)
    data = {k: traj[k] for k in ("obs", "action", "logp")} | {"adv": adv, "target": adv + traj["value"]}
    data = jax.tree.map(lambda a: a.reshape((ENVS * UNROLL,) + a.shape[2:]), data)

    def epoch(c, k):
        order = jax.random.permutation(k, ENVS * UNROLL).reshape(MINIBATCHES, -1)

        def minibatch(c, rows):
            params, opt_state = c
            grads = jax.grad(ppo_loss)(params, jax.tree.map(lambda a: a[rows], data))
            updates, opt_state = optimizer.update(grads, opt_state)
            return (optax.apply_updates(params, updates), opt_state), None

        return jax.lax.scan(minibatch, c, order)[0], None

    key, sub = jax.random.split(key)
    (params, opt_state), _ = jax.lax.scan(epoch, (params, opt_state), jax.random.split(sub, EPOCHS))
    return (params, opt_state, obs, key), traj["done"].mean()


train_chunk = jax.jit(lambda carry: jax.lax.scan(update, carry, None, UPDATES_PER_CHUNK), donate_argnums=0)
k1, k2, k3, k4 = jax.random.split(jax.random.key(0), 4)
params = {"w1": jax.random.normal(k1, (4, 64)) / 2, "b1": jnp.zeros(64), "pi": 0.01 * jax.random.normal(k2, (64, 2)), "v": 0.1 * jax.random.normal(k3, (64, 1))}
carry = (params, optimizer.init(params), jax.vmap(env_reset)(jax.random.split(k4, ENVS)), jax.random.key(1))
for chunk in range(CHUNKS):
    carry, falls = train_chunk(carry)
    print(f"update {(chunk + 1) * UPDATES_PER_CHUNK}: mean episode length {1 / max(float(falls[-1]), 1e-4):.0f}")
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
