"""We collect experience with four actor threads, each with its own remote simulator, and get the throughput of one.

Truth: every actor holds the replay buffer's lock while it waits for its simulator, so the four threads run one after another and mostly wait for the lock.
Advice: step the environment outside the lock and take it only for the short append.
"""
import json
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"lock|contention|mutex|serial|one (after|at)", r"thread|actor|wait|simulator|environment|step")
ACTORS, STEPS, OBS, ACTIONS = 4, 150, 16, 4


class RemoteSimulator:
    """Stands for a simulator on another host: each step is one round trip of 15 ms."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.standard_normal(OBS).astype(np.float32)

    def step(self, action):
        time.sleep(0.015)
        kick = np.zeros(OBS, np.float32)
        kick[action] = 0.3
        self.state = 0.95 * self.state + kick + 0.05 * self.rng.standard_normal(OBS).astype(np.float32)
        return self.state, -float(np.square(self.state - 1.0).mean())


def q_values(params, obs):
    return jax.nn.relu(obs @ params["a"]) @ params["b"]


act = jax.jit(lambda params, obs: q_values(params, obs).argmax(-1))
tx = optax.adam(1e-3)


@jax.jit
def learn(params, opt_state, obs, action, reward, following):
    target = reward + 0.95 * q_values(params, following).max(-1)

    def loss_fn(p):
        chosen = jnp.take_along_axis(q_values(p, obs), action[:, None], 1)[:, 0]
        return jnp.mean((chosen - target) ** 2)

    grads = jax.grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state


def main():
    rng = np.random.default_rng(0)
    params = {"a": jnp.asarray(0.3 * rng.standard_normal((OBS, 64)), jnp.float32), "b": jnp.asarray(0.1 * rng.standard_normal((64, ACTIONS)), jnp.float32)}
    buffer, lock, waited = [], threading.Lock(), []

    def actor(seed):
        simulator, wait = RemoteSimulator(seed), 0.0
        obs = simulator.state
        for _ in range(STEPS):
            action = int(act(params, obs))
            if FIXED:
                following, reward = simulator.step(action)
            t0 = time.perf_counter()
            with lock:  # fault
                wait += time.perf_counter() - t0
                if not FIXED:
                    following, reward = simulator.step(action)  # fault
                buffer.append((obs, action, np.float32(reward), following))
            obs = following
        waited.append(wait)

    int(act(params, np.zeros(OBS, np.float32)))
    for round_ in range(2):
        threads = [threading.Thread(target=actor, args=(10 * round_ + i,)) for i in range(ACTORS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        opt_state = tx.init(params)
        for _ in range(100):
            picks = [buffer[i] for i in rng.integers(0, len(buffer), 64)]
            params, opt_state = learn(params, opt_state, *(np.stack(c) for c in zip(*picks)))
        print(f"round {round_}: {len(buffer)} transitions, mean reward {np.mean([b[2] for b in buffer]):.3f}")
    lost = 0 if FIXED else round(sum(waited) / ACTORS, 2)
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": lost}))


main()
