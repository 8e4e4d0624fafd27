"""Collecting experience got far slower when the levels became procedurally generated, although an episode ends only
every 250 steps and the generator ought to run that seldom.

Truth: the `lax.cond` that guards `reset` is inside `vmap`, becomes a select, and generates a new level for every environment at every step.
Advice: take the condition out of the vmap (step all, then `lax.cond(done.any(), ...)` on the batch), or draw levels ahead and copy from a pool.

Source: instadeepai/Mava#1176 (the rule itself: jax-ml/jax#8409).
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp

FIXED = "--fixed" in sys.argv
WORDS = (r"reset|cond|branch|select", r"vmap|batch|every step|each step|both|always|select")
ENVS, SIZE, HORIZON, UNROLL, UPDATES = 128, 24, 250, 50, 50


def generate_level(key):
    """Cave-like terrain by smoothing noise."""
    field = jax.random.uniform(key, (SIZE, SIZE))

    def smooth(_, f):
        return 0.5 * f + 0.125 * sum(jnp.roll(f, s, a) for a in (0, 1) for s in (-1, 1))

    field = jax.lax.fori_loop(0, 40, smooth, field)
    return (field - field.mean()) / (field.std() + 1e-6)


def reset(key):
    key, sub = jax.random.split(key)
    return {"level": generate_level(sub), "pos": jnp.zeros(2, jnp.int32), "t": jnp.int32(0), "key": key}


def move(state, action):
    delta = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]])[action]
    pos = (state["pos"] + delta) % SIZE
    t = state["t"] + 1
    return {**state, "pos": pos, "t": t}, state["level"][pos[0], pos[1]], t >= HORIZON


def step_with_autoreset(state, action):
    state, reward, done = move(state, action)
    state = jax.lax.cond(done, lambda s: reset(s["key"]), lambda s: s, state)  # fault
    return state, reward


def batched_step(states, actions):
    if not FIXED:
        return jax.vmap(step_with_autoreset)(states, actions)  # fault
    states, rewards, done = jax.vmap(move)(states, actions)

    def renew(s):
        fresh = jax.vmap(reset)(s["key"])
        pick = lambda a, b: jnp.where(done.reshape((-1,) + (1,) * (a.ndim - 1)), a, b) if a.ndim else a
        return {k: (fresh[k] if k == "key" else pick(fresh[k], s[k])) for k in s}

    return jax.lax.cond(done.any(), renew, lambda s: s, states), rewards


@jax.jit
def unroll(states, weights, key):
    def body(carry, k):
        logits = weights[carry["t"] % weights.shape[0]]
        actions = jax.random.categorical(k, logits)
        return batched_step(carry, actions)

    return jax.lax.scan(body, states, jax.random.split(key, UNROLL))


states = jax.jit(jax.vmap(reset))(jax.random.split(jax.random.key(0), ENVS))
weights = jnp.zeros((HORIZON + 1, 4))
key, total = jax.random.key(1), 0.0
for update in range(UPDATES):
    key, sub = jax.random.split(key)
    states, rewards = unroll(states, weights, sub)
    total += float(rewards.mean())
print("mean reward", total / UPDATES)

lost = 0.0
if not FIXED:  # what one round of level making costs, times the rounds that nobody needed
    make = jax.jit(jax.vmap(lambda k: reset(k)["level"]))
    keys = jax.random.split(key, ENVS)
    make(keys).block_until_ready()
    t = time.perf_counter()
    for _ in range(5):
        make(keys).block_until_ready()
    lost = (time.perf_counter() - t) / 5 * (UPDATES * UNROLL) * (HORIZON - 1) / HORIZON
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
