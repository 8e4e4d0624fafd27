"""IMPALA-like actor/learner: two actor threads fill a bounded queue (back-pressure: actors wait most of the time), the learner stacks two rollouts per step and publishes weights every few steps; stale weights are normal. Poison-pill shutdown, joins at the end."""
import time
T0 = time.perf_counter()
import json
import queue
import threading
import jax
import jax.numpy as jnp
import numpy as np
import optax

ENVS, T, S, A, UPDATES = 32, 32, 16, 4, 220
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))


def init(key):
    ks = jax.random.split(key, 4)
    f = lambda k, a, b: jax.random.normal(k, (a, b)) / a ** 0.5
    return {"h1": f(ks[0], S, 256), "h2": f(ks[1], 256, 256), "pi": f(ks[2], 256, A) * 0.1, "v": f(ks[3], 256, 1) * 0.1}


def net(p, s):
    h = jnp.tanh(jnp.tanh(s @ p["h1"]) @ p["h2"])
    return h @ p["pi"], (h @ p["v"])[..., 0]


@jax.jit
def rollout(p, s, key):
    def body(s, k):
        ka, ks = jax.random.split(k)
        a = jax.random.categorical(ka, net(p, s)[0])
        r = jnp.take_along_axis(jnp.tanh(s[:, :A]), a[:, None], 1)[:, 0]
        return 0.9 * s + 0.3 * jax.random.normal(ks, s.shape), (s, a, r)
    return jax.lax.scan(body, s, jax.random.split(key, T))


@jax.jit
def learn(p, opt, trajs):
    s, a, r = jax.tree.map(lambda *x: jnp.concatenate(x, 1), *trajs)

    def loss(p):
        logits, v = net(p, s)
        ret = jax.lax.scan(lambda g, r: (r + 0.8 * g,) * 2, jax.lax.stop_gradient(v[-1]), r, reverse=True)[1]
        adv = ret - v
        lp = jnp.take_along_axis(jax.nn.log_softmax(logits), a[..., None], -1)[..., 0]
        return jnp.mean(-lp * jax.lax.stop_gradient(adv) + 0.5 * adv**2)

    l, g = jax.value_and_grad(loss)(p)
    up, opt = tx.update(g, opt)
    return optax.apply_updates(p, up), opt, l, r.mean()


class Weights:
    def __init__(self, p):
        self.p, self.lock = p, threading.Lock()

    def get(self):
        with self.lock:
            return self.p

    def set(self, p):
        with self.lock:
            self.p = p


def actor(seed, weights, out, stop):
    key = jax.random.key(seed)
    s, n = jnp.zeros((ENVS, S)), 0
    while not stop.is_set():
        s, traj = rollout(weights.get(), s, jax.random.fold_in(key, n))
        n += 1
        while not stop.is_set():
            try:
                out.put(traj, timeout=0.2)
                break
            except queue.Full:
                continue


params = jax.jit(init)(jax.random.key(0))
opt = jax.jit(tx.init)(params)
weights, q, stop = Weights(params), queue.Queue(maxsize=4), threading.Event()
threads = [threading.Thread(target=actor, args=(i + 1, weights, q, stop)) for i in range(2)]
for t in threads:
    t.start()
rewards = []
for it in range(1, UPDATES + 1):
    params, opt, loss, reward = learn(params, opt, (q.get(), q.get()))
    rewards.append(reward)
    if it % 4 == 0:
        weights.set(params)
    if it % 55 == 0:
        print("update", it, "reward", round(float(np.mean(jax.device_get(rewards[-20:]))), 4), flush=True)
stop.set()
for t in threads:
    t.join()
print(json.dumps({"wall": time.perf_counter() - T0}))
