"""An emulator of an expensive likelihood is retrained during sampling. Between two rounds everything stands still for
about a second, on one core, and it does not get better in later rounds with the same shapes.

Truth: `jax.clear_caches()` at the end of each round throws away all compiled programs, so each round compiles the same programs once more.
Advice: drop the call (or clear once, when shapes really change); release arrays with `del` if memory was the worry.

Source: svenguenther/OLE#6.
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"clear_caches|clear.{0,12}cache|cache.{0,20}clear|again|same|repeat|recompil|evict")
ROUNDS, FIT_STEPS, WALKERS, DRAWS = 6, 60, 64, 120
optimizer = optax.adam(3e-3)


def emulate(params, theta):
    for w, b in params[:-1]:
        theta = jax.nn.silu(theta @ w + b)
    w, b = params[-1]
    return (theta @ w + b)[..., 0]


def likelihood(theta):
    return -0.5 * jnp.sum((theta @ jnp.eye(5, 5, 1) - theta**2 / 3) ** 2, axis=-1)


@jax.jit
def fit_step(params, opt_state, theta, target):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((emulate(p, theta) - target) ** 2))(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def metropolis(params, walkers, key):
    def move(carry, k):
        x, lp = carry
        k1, k2 = jax.random.split(k)
        proposal = x + 0.3 * jax.random.normal(k1, x.shape)
        lp_new = emulate(params, proposal)
        ok = jnp.log(jax.random.uniform(k2, lp.shape)) < lp_new - lp
        return (jnp.where(ok[:, None], proposal, x), jnp.where(ok, lp_new, lp)), None

    (x, lp), _ = jax.lax.scan(move, (walkers, emulate(params, walkers)), jax.random.split(key, DRAWS))
    return x


key = jax.random.key(0)
sizes = [5, 64, 64, 64, 1]
params = [(jax.random.normal(jax.random.fold_in(key, i), (a, b)) / a**0.5, jnp.zeros(b)) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
opt_state = optimizer.init(params)
walkers = jax.random.normal(key, (WALKERS, 5))
lost = 0.0
for number in range(ROUNDS):
    key, k_data, k_mc = jax.random.split(key, 3)
    t = time.perf_counter()
    theta = jnp.tile(walkers, (4, 1)) + 0.5 * jax.random.normal(k_data, (4 * WALKERS, 5))
    target = likelihood(theta)
    params, opt_state, loss = jax.block_until_ready(fit_step(params, opt_state, theta, target))
    first_fit = time.perf_counter() - t
    for _ in range(FIT_STEPS):
        params, opt_state, loss = fit_step(params, opt_state, theta, target)
    jax.block_until_ready(params)
    t = time.perf_counter()
    walkers = metropolis(params, walkers, k_mc).block_until_ready()
    first_draw = time.perf_counter() - t
    if number:
        lost += first_fit + first_draw
    print(f"round {number}: loss {float(loss):.4f}")
    if not FIXED:
        jax.clear_caches()  # fault
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
