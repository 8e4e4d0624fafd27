"""DQN on a small grid world with a NumPy replay memory.

Structure: google-deepmind/dqn_zoo and the rlax examples/simple_dqn.py (actor step, replay, learner step, target network refreshed at intervals).
"""
import json
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZE, CAPACITY, BATCH, FRAMES, LEARN_EVERY, TARGET_EVERY = 7, 4096, 64, 5000, 4, 200


class Grid:
    """Walk from the middle to the treasure, shown as two one-hot maps."""

    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def observe(self):
        view = np.zeros((2, SIZE, SIZE), np.float32)
        view[0, *self.agent], view[1, *self.goal] = 1, 1
        return view.ravel()

    def reset(self):
        self.agent, self.goal, self.t = np.array([SIZE // 2] * 2), self.rng.integers(0, SIZE, 2), 0
        return self.observe()

    def step(self, action):
        self.agent = np.clip(self.agent + [(0, 1), (1, 0), (0, -1), (-1, 0)][action], 0, SIZE - 1)
        self.t += 1
        found = bool((self.agent == self.goal).all())
        return self.observe(), 1.0 if found else -0.02, found, found or self.t >= 30


def q_values(params, obs):
    h = jax.nn.relu(obs @ params["w1"] + params["b1"])
    return jax.nn.relu(h @ params["w2"]) @ params["w3"]


greedy = jax.jit(lambda params, obs: q_values(params, obs).argmax(-1))
optimizer = optax.adam(1e-3)


@jax.jit
def learn(params, target, opt_state, obs, action, reward, nxt, terminal):
    def loss_fn(p):
        goal = reward + 0.97 * (1 - terminal) * q_values(target, nxt).max(-1)
        chosen = jnp.take_along_axis(q_values(p, obs), action[:, None], 1)[:, 0]
        return optax.huber_loss(chosen, goal).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


rng = np.random.default_rng(0)
env, inputs = Grid(rng), 2 * SIZE * SIZE
k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
params = {"w1": jax.random.normal(k1, (inputs, 128)) / 5, "b1": jnp.zeros(128), "w2": jax.random.normal(k2, (128, 128)) / 11, "w3": 0.1 * jax.random.normal(k3, (128, 4))}
target, opt_state = params, optimizer.init(params)
memory = {"obs": np.zeros((CAPACITY, inputs), np.float32), "action": np.zeros(CAPACITY, np.int32), "reward": np.zeros(CAPACITY, np.float32), "nxt": np.zeros((CAPACITY, inputs), np.float32), "terminal": np.zeros(CAPACITY, np.float32)}
obs, returns, total = env.reset(), [], 0.0
for frame in range(FRAMES):
    explore = rng.random() < max(0.05, 1 - frame / 3000)
    action = int(rng.integers(4)) if explore else int(greedy(params, obs))
    nxt, reward, terminal, over = env.step(action)
    row = frame % CAPACITY
    for name, value in zip(memory, (obs, action, reward, nxt, terminal)):
        memory[name][row] = value
    total += reward
    obs = nxt
    if over:
        returns.append(total)
        obs, total = env.reset(), 0.0
    if frame >= 500 and frame % LEARN_EVERY == 0:
        rows = rng.integers(0, min(frame, CAPACITY), BATCH)
        params, opt_state, loss = learn(params, target, opt_state, *(memory[n][rows] for n in memory))
    if frame % TARGET_EVERY == 0:
        target = params
    if frame % 1000 == 999:
        print(f"frame {frame + 1}: mean return of the last 50 episodes {np.mean(returns[-50:]):.2f}")
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": 0.0}))
