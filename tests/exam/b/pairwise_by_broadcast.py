"""Goal-conditioned RL with a contrastive critic. With a representation of 64 numbers it was fine; with 384 each update takes
seconds on the workstation and runs out of memory on the GPU, although both encoders are small.

Truth: the all-pairs scores are computed by broadcasting to (batch, batch, features) and summing, not by a matrix product; this and its gradient take nearly all the step.
Advice: `x @ y.T` for dot products (expand the square for distances), so that the three-dimensional array never exists.

Source: MichalBortkiewicz/JaxGCRL#66.
"""
import json
import sys
import time

START = time.perf_counter()
import jax
import jax.numpy as jnp
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"matmul|matrix|gemm|dot|broadcast|pair|einsum|flop|util|intermediate|memory|bandwidth|elementwise|fus", r"broadcast|pair|intermediate|memory|time|slow|util|flop|%|batch")
BATCH, FEATURES, STEPS = 320, 384, 10


def encode(params, x):
    for w in params[:-1]:
        x = jax.nn.silu(x @ w)
    return x @ params[-1]


def all_pairs(x, y):
    if FIXED:
        return x @ y.T
    return jnp.sum(x[:, None, :] * y[None, :, :], axis=-1)  # fault


def info_nce(params, states, goals):
    scores = all_pairs(encode(params["state"], states), encode(params["goal"], goals)) / FEATURES**0.5
    penalty = jnp.mean(jax.nn.logsumexp(scores, axis=1) ** 2)
    return -jnp.mean(jnp.diag(scores) - jax.nn.logsumexp(scores, axis=1)) + 0.01 * penalty


optimizer = optax.adam(1e-3)


@jax.jit
def update(params, opt_state, states, goals):
    loss, grads = jax.value_and_grad(info_nce)(params, states, goals)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


key = jax.random.key(0)
draw = lambda i, a, b: jax.random.normal(jax.random.fold_in(key, i), (a, b)) / a**0.5
params = {
    "state": [draw(0, 24, 256), draw(1, 256, 256), draw(2, 256, FEATURES)],
    "goal": [draw(3, 12, 256), draw(4, 256, 256), draw(5, 256, FEATURES)],
}
opt_state = optimizer.init(params)
for step in range(STEPS):
    states = jax.random.normal(jax.random.fold_in(key, 100 + step), (BATCH, 24))
    goals = states[:, :12] + 0.1 * jnp.roll(states, 1, axis=1)[:, :12]
    params, opt_state, loss = update(params, opt_state, states, goals)
    if step % 5 == 0:
        print("step", step, "loss", float(loss))
loss.block_until_ready()

lost = 0.0
if not FIXED:  # own clock: the pairs alone, forward and backward
    x = encode(params["state"], states)
    pairs = jax.jit(jax.grad(lambda x, y: jax.nn.logsumexp(all_pairs(x, y), axis=1).sum(), argnums=(0, 1)))
    jax.block_until_ready(pairs(x, 1.1 * x))
    t = time.perf_counter()
    for _ in range(3):
        jax.block_until_ready(pairs(x, 1.1 * x))
    lost = (time.perf_counter() - t) / 3 * STEPS
print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))
