"""REINFORCE on a vectorised CartPole written in JAX. "It learns a little, then does well only on the episodes it was trained on."

Truth: the rollout gets the same PRNG key in every iteration, so the start states and the action noise are the same in each of them: there is no exploration, no fresh data.
Advice: split the key in every iteration (key, sub = jax.random.split(key)) or use fold_in(key, it).
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"\bkeys?\b|prng|rng|random|seed", r"same|reus|again|repeat|identical|(not|never|n't).{0,30}(split|chang|advanc|fresh|new)|constant|every (call|step|iteration)")
ENVS, T, ITERS = 4, 200, 300


def init_policy(key):
    k1, k2 = jax.random.split(key)
    return {"w1": jax.random.normal(k1, (4, 64)) * 0.5, "b1": jnp.zeros(64),
            "w2": jax.random.normal(k2, (64, 2)) * 0.1, "b2": jnp.zeros(2)}


def policy(p, s):
    return jnp.tanh(s @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def env_step(s, a):
    x, xd, th, thd = s
    f = jnp.where(a == 1, 10.0, -10.0)
    tmp = (f + 0.05 * thd**2 * jnp.sin(th)) / 1.1
    tha = (9.8 * jnp.sin(th) - jnp.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * jnp.cos(th) ** 2 / 1.1))
    xa = tmp - 0.05 * tha * jnp.cos(th) / 1.1
    s = jnp.stack([x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * tha])
    return s, (jnp.abs(s[0]) > 2.4) | (jnp.abs(s[2]) > 0.21)


@jax.jit
def rollout(p, key):
    k0, k1 = jax.random.split(key)
    s0 = jax.random.uniform(k0, (ENVS, 4), minval=-0.05, maxval=0.05)

    def body(carry, k):
        s, alive = carry
        a = jax.random.categorical(k, policy(p, s))
        s2, done = jax.vmap(env_step)(s, a)
        return (jnp.where(alive[:, None], s2, s), alive & ~done), (s, a, alive.astype(jnp.float32))

    _, traj = jax.lax.scan(body, (s0, jnp.ones(ENVS, bool)), jax.random.split(k1, T))
    return traj


tx = optax.adam(3e-3)


@jax.jit
def update(p, opt, traj):
    s, a, r = traj
    ret = jnp.cumsum(r[::-1], 0)[::-1]
    adv = (ret - ret.mean(1, keepdims=True)) / (ret.std() + 1e-6) * r

    def loss(p):
        lp = jnp.take_along_axis(jax.nn.log_softmax(policy(p, s)), a[..., None], -1)[..., 0]
        return -jnp.sum(lp * adv) / jnp.sum(r)

    l, g = jax.value_and_grad(loss)(p)
    upd, opt = tx.update(g, opt, p)
    return optax.apply_updates(p, upd), opt, l, r.sum(0).mean()


key = jax.random.key(0)
key, init_key = jax.random.split(key)
params = init_policy(init_key)
opt = tx.init(params)
lengths = []
for it in range(ITERS):
    if FIXED:
        key, sub = jax.random.split(key)
        traj = rollout(params, sub)
    else:
        traj = rollout(params, key)  # fault
    params, opt, loss, length = update(params, opt, traj)
    lengths.append(length)
    if (it + 1) % 100 == 0:
        print("iter", it + 1, "mean episode length", float(length), flush=True)
test = [rollout(params, k)[2].sum(0).mean() for k in jax.random.split(jax.random.key(99), 16)]
print("fresh episodes, mean length", sum(map(float, test)) / 16)
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None}))
