"""The Q-learning agent learns from mini-batches of 256, and the network is tiny; still only about ten updates a second
come out, and the more transitions the replay memory holds the slower it gets.

Truth: drawing 256 indices with `jax.random.choice(..., replace=False)` shuffles (sorts) the whole memory for each update; that is nearly all of the time.
Advice: draw with replacement (`jax.random.randint`), or shuffle once per epoch and slice.

Source: jax-ml/jax#5328 (also instadeepai/jumanji#96).
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"choice|permut|shuffl|sort|sampl|random|draw", r"replace|sort|shuffl|randint|whole|index|slow|most of|share|%|time")
CAPACITY, BATCH, UPDATES = 200_000, 256, 90

key = jax.random.key(0)
memory = {
    "obs": jax.random.normal(key, (CAPACITY, 8)),
    "action": jax.random.randint(key, (CAPACITY,), 0, 4),
    "reward": jax.random.normal(key, (CAPACITY,)),
    "next_obs": jax.random.normal(jax.random.key(1), (CAPACITY, 8)),
}


@jax.jit
def sample(memory, key):
    if FIXED:
        index = jax.random.randint(key, (BATCH,), 0, CAPACITY)
    else:
        index = jax.random.choice(key, CAPACITY, (BATCH,), replace=False)  # fault
    return {name: column[index] for name, column in memory.items()}


def q_values(params, obs):
    hidden = jax.nn.relu(obs @ params["w1"] + params["b1"])
    return hidden @ params["w2"]


def td_loss(params, target, batch):
    chosen = jnp.take_along_axis(q_values(params, batch["obs"]), batch["action"][:, None], 1)[:, 0]
    goal = batch["reward"] + 0.99 * q_values(target, batch["next_obs"]).max(axis=1)
    return optax.huber_loss(chosen, jax.lax.stop_gradient(goal)).mean()


optimizer = optax.adam(1e-3)


@jax.jit
def update(params, target, opt_state, batch):
    loss, grads = jax.value_and_grad(td_loss)(params, target, batch)
    updates, opt_state = optimizer.update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    return params, optax.incremental_update(params, target, 0.01), opt_state, loss


params = {"w1": 0.1 * jax.random.normal(key, (8, 128)), "b1": jnp.zeros(128), "w2": 0.1 * jax.random.normal(key, (128, 4))}
target, opt_state = params, optimizer.init(params)
sampling = 0.0
for i in range(UPDATES):
    key, sub = jax.random.split(key)
    t = time.perf_counter()
    batch = jax.block_until_ready(sample(memory, sub))  # fault
    if i:
        sampling += time.perf_counter() - t
    params, target, opt_state, loss = update(params, target, opt_state, batch)
print("td loss", float(loss))
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(sampling, 2)}))
