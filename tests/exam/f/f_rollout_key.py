"""REINFORCE on a batch of point-mass environments, rollouts in lax.scan. "Exploration is odd: within an episode every action has the same noise."

Truth: the scan's body draws each step's action noise from the same key (closed over, never split), so that the noise is identical in every step of an episode.
Advice: split the key per step: scan over jax.random.split(key, T), or carry the key and split it in the body, or fold_in the step index.
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"\bkeys?\b|prng|\brng\b|random", r"re-?us|same|identical|split|twice|again|repeat|more than once|every (step|iteration)|fold_in|loop")
ENVS, T, ITERS, HID = 256, 64, 120, 128
opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-3, ITERS)))


def init(key):
    ks = jax.random.split(key, 3)
    sizes = [(4, HID), (HID, HID), (HID, 2)]
    gains = [1.0, 1.0, 0.01]
    return [(g * jax.random.normal(k, s) / jnp.sqrt(s[0]), jnp.zeros(s[1])) for k, s, g in zip(ks, sizes, gains)]


def policy(params, obs):
    for w, b in params[:-1]:
        obs = jnp.tanh(obs @ w + b)
    w, b = params[-1]
    return obs @ w + b


def env_step(state, action):
    pos, vel = state[:, :2], state[:, 2:]
    vel = 0.95 * vel + 0.1 * jnp.clip(action, -2, 2)
    pos = pos + 0.1 * vel
    return jnp.concatenate([pos, vel], 1), -jnp.sum(pos * pos, 1)


def rollout(params, key):
    k0, key = jax.random.split(key)
    start = jnp.concatenate([jax.random.normal(k0, (ENVS, 2)), jnp.zeros((ENVS, 2))], 1)

    def body(state, step_key):
        k = step_key if FIXED else key
        noise = jax.random.normal(k, (ENVS, 2))  # fault
        action = jax.lax.stop_gradient(policy(params, state) + 0.5 * noise)
        nxt, reward = env_step(state, action)
        return nxt, (state, action, reward)
    _, traj = jax.lax.scan(body, start, jax.random.split(key, T) if FIXED else None, length=T)  # fault
    return traj


def loss_fn(params, obs, act, adv):
    logp = -0.5 * jnp.sum(((act - policy(params, obs)) / 0.5) ** 2, -1)
    return -jnp.mean(logp * adv)


@jax.jit
def train_iter(params, opt_state, key):
    obs, act, rew = rollout(params, key)  # fault
    ret = jax.lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (jnp.full_like(rew, 0.95), rew[::-1]))[1][::-1]
    adv = (ret - ret.mean(1, keepdims=True)) / (ret.std(1, keepdims=True) + 1e-6)
    grads = jax.grad(loss_fn)(params, obs, act, adv)
    updates, opt_state = opt.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, rew.sum(0).mean()


key = jax.random.key(0)
params = init(jax.random.key(1))
opt_state = opt.init(params)
for it in range(ITERS):
    key, sub = jax.random.split(key)
    params, opt_state, ret = train_iter(params, opt_state, sub)  # fault
    if it % 30 == 29:
        print(it + 1, "return", float(ret), flush=True)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
