"""PPO on a vectorised JAX environment. "Rollout and update are jitted, yet the iteration takes a second and the CPU of the accelerator host is at 100 %."

Truth: the advantages (GAE) are computed in a Python loop over the time steps with jnp operations outside of jit: some ten small operations, dispatched one by one, per step.
Advice: put compute_gae under jit with a reversed lax.scan.
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"eager|un-?jitted|op.by.op|one by one|outside (of )?(a )?jit|not (under |in |inside )?(a )?jit|without jit|dispatch|small op|tiny", r"loop|step|jit|scan|each|many|thousand|calls|operations|ops\b")
T, ENVS, OBS, ACTIONS, GAMMA, LAM = 256, 16, 8, 4, 0.99, 0.95


def net(p, x):
    h = jnp.tanh(jnp.tanh(x @ p["w1"]) @ p["w2"])
    return h @ p["pi"], (h @ p["v"])[..., 0]


@jax.jit
def rollout(p, state, key):
    def step(state, k):
        k1, k2, k3 = jax.random.split(k, 3)
        logits, value = net(p, state)
        act = jax.random.categorical(k1, logits)
        new = 0.98 * state + 0.2 * jax.nn.one_hot(act, OBS) - 0.05 + 0.02 * jax.random.normal(k2, state.shape)
        done = jax.random.uniform(k3, (ENVS,)) < 0.01
        logp = jax.nn.log_softmax(logits)[jnp.arange(ENVS), act]
        out = dict(obs=state, act=act, logp=logp, value=value, reward=-jnp.abs(new - 0.3).mean(-1), done=done.astype(jnp.float32))
        return jnp.where(done[:, None], 0.0, new), out

    state, traj = jax.lax.scan(step, state, jax.random.split(key, T))
    return state, traj, net(p, state)[1]


def compute_gae(traj, last_value):
    advantages, gae, next_value = [], jnp.zeros(ENVS), last_value
    for t in reversed(range(T)):
        mask = 1.0 - traj["done"][t]  # fault
        delta = traj["reward"][t] + GAMMA * next_value * mask - traj["value"][t]  # fault
        gae = delta + GAMMA * LAM * mask * gae  # fault
        next_value = traj["value"][t]  # fault
        advantages.insert(0, gae)
    adv = jnp.stack(advantages)
    return adv, adv + traj["value"]


@jax.jit
def gae_scan(traj, last_value):
    def back(carry, x):
        gae, next_value = carry
        mask = 1.0 - x["done"]
        gae = x["reward"] + GAMMA * next_value * mask - x["value"] + GAMMA * LAM * mask * gae
        return (gae, x["value"]), gae

    adv = jax.lax.scan(back, (jnp.zeros(ENVS), last_value), traj, reverse=True)[1]
    return adv, adv + traj["value"]


tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))


@jax.jit
def update(p, opt, traj, adv, ret):
    def loss_fn(p):
        logits, value = net(p, traj["obs"])
        logp = jnp.take_along_axis(jax.nn.log_softmax(logits), traj["act"][..., None], -1)[..., 0]
        ratio, a = jnp.exp(logp - traj["logp"]), (adv - adv.mean()) / (adv.std() + 1e-8)
        return -jnp.minimum(ratio * a, jnp.clip(ratio, 0.8, 1.2) * a).mean() + 0.5 * jnp.mean((value - ret) ** 2)

    def epoch(c, _):
        grads = jax.grad(loss_fn)(c[0])
        up, opt = tx.update(grads, c[1])
        return (optax.apply_updates(c[0], up), opt), None

    return jax.lax.scan(epoch, (p, opt), None, length=3)[0]


ks = jax.random.split(jax.random.key(0), 4)
p = {"w1": 0.3 * jax.random.normal(ks[0], (OBS, 128)), "w2": 0.1 * jax.random.normal(ks[1], (128, 128)),
     "pi": jnp.zeros((128, ACTIONS)), "v": 0.1 * jax.random.normal(ks[2], (128, 1))}
opt, state, key, lost, rewards = tx.init(p), jnp.zeros((ENVS, OBS)), ks[3], 0.0, []
for it in range(40):
    key, k = jax.random.split(key)
    state, traj, last = rollout(p, state, k)
    t = time.perf_counter()
    adv, ret = gae_scan(traj, last) if FIXED else compute_gae(traj, last)  # fault
    lost += time.perf_counter() - t
    p, opt = update(p, opt, traj, adv, ret)
    rewards.append(traj["reward"].mean())
print("reward", [round(float(r), 3) for r in jax.device_get(rewards)[::13]])
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else lost}))
