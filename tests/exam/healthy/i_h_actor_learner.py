"""IMPALA-like actor-learner: two actor threads with JAX environments put trajectories into a bounded queue (they block when the learner is behind, as they should); the learner publishes parameters every few updates."""
import time
T0 = time.perf_counter()
import json
import queue
import threading

import jax
import jax.numpy as jnp
import optax

T, ENVS, OBS, ACTIONS, UPDATES = 64, 32, 6, 3, 250


def net(p, x):
    h = jnp.tanh(jnp.tanh(x @ p["a"]) @ p["b"])
    return h @ p["pi"], (h @ p["v"])[..., 0]


@jax.jit
def rollout(p, state, key):
    def step(s, k):
        k1, k2 = jax.random.split(k)
        logits, _ = net(p, s)
        act = jax.random.categorical(k1, logits)
        logp = jnp.take_along_axis(jax.nn.log_softmax(logits), act[:, None], 1)[:, 0]
        new = 0.9 * s + 0.2 * (jax.nn.one_hot(act, OBS) - 0.3) + 0.05 * jax.random.normal(k2, s.shape)
        return new, {"obs": s, "act": act, "logp": logp, "rew": -jnp.abs(new[:, :3] - 0.4).mean(-1)}

    return jax.lax.scan(step, state, jax.random.split(key, T))


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.rmsprop(5e-4))


@jax.jit
def learn(p, opt, traj):
    def loss_fn(p):
        logits, v = net(p, traj["obs"])
        lp_all = jax.nn.log_softmax(logits)
        logp = jnp.take_along_axis(lp_all, traj["act"][..., None], -1)[..., 0]
        rho = jnp.minimum(1.0, jnp.exp(jax.lax.stop_gradient(logp) - traj["logp"]))
        ret = jax.lax.scan(lambda c, r: (r + 0.95 * c,) * 2, jax.lax.stop_gradient(v[-1]), traj["rew"], reverse=True)[1]
        adv = jax.lax.stop_gradient(ret - v)
        entropy = -jnp.sum(jnp.exp(lp_all) * lp_all, -1).mean()
        return -jnp.mean(rho * adv * logp) + 0.5 * jnp.mean((ret - v) ** 2) - 0.01 * entropy

    loss, g = jax.value_and_grad(loss_fn)(p)
    up, opt = tx.update(g, opt)
    return optax.apply_updates(p, up), opt, loss


class Store:
    def __init__(self, params):
        self.lock, self.params, self.version = threading.Lock(), params, 0

    def publish(self, params):
        with self.lock:
            self.params, self.version = params, self.version + 1

    def get(self):
        with self.lock:
            return self.params


def actor(seed, store, out, stop):
    key, state = jax.random.key(seed), jnp.zeros((ENVS, OBS))
    while not stop.is_set():
        key, k = jax.random.split(key)
        state, traj = rollout(store.get(), state, k)
        while not stop.is_set():
            try:
                out.put(traj, timeout=0.2)
                break
            except queue.Full:
                continue


ks = jax.random.split(jax.random.key(0), 4)
p = {"a": 0.4 * jax.random.normal(ks[0], (OBS, 128)), "b": 0.1 * jax.random.normal(ks[1], (128, 128)),
     "pi": 0.01 * jax.random.normal(ks[2], (128, ACTIONS)), "v": 0.1 * jax.random.normal(ks[3], (128, 1))}
opt, store, trajectories, stop = tx.init(p), Store(p), queue.Queue(maxsize=4), threading.Event()
actors = [threading.Thread(target=actor, args=(s, store, trajectories, stop), name=f"actor-{s}") for s in (1, 2)]
for a in actors:
    a.start()
rewards = []
for i in range(UPDATES):
    traj = trajectories.get()
    p, opt, loss = learn(p, opt, traj)
    rewards.append(traj["rew"].mean())
    if i % 4 == 3:
        store.publish(p)
stop.set()
for a in actors:
    a.join()
r = jax.device_get(rewards)
print("reward %.3f -> %.3f, %d versions" % (r[0], r[-1], store.version))
print(json.dumps({"wall": time.perf_counter() - T0}))
