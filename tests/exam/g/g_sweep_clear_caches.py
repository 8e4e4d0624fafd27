"""A notebook turned script: a sweep over learning rate and weight decay of a small Flax network, one cell per trial.
"Each trial trains for less than a second but takes several; the later ones no less than the first."

Truth: `jax.clear_caches()` after each trial (put there against a memory problem) throws away the compiled train and evaluation steps, which are the same for all trials: each trial compiles anew.
Advice: remove the call; the step takes its hyper-parameters as arguments, so one compilation serves all trials.
"""
# %% imports
import time
T0 = time.perf_counter()
import gc
import json
import sys
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|retrac|trac(ed|ing)|cache", r"clear|again|repeat|each|every|times|same|re-?compil|already")
# %% data
rng = np.random.default_rng(0)
X = rng.normal(size=(4096, 64)).astype(np.float32)
Y = (np.sin(X @ rng.normal(size=(64, 10))).argmax(-1)).astype(np.int32)
X, Y = jnp.asarray(X), jnp.asarray(Y)


# %% model
class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            h = nn.LayerNorm()(x)
            x = nn.Dense(256)(nn.gelu(nn.Dense(256)(h))) + nn.Dense(256)(x)
        return nn.Dense(10)(x)


net = Net()
opt = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-3, weight_decay=1e-4)
init = jax.jit(lambda key: net.init(key, X[:1]))


def loss_fn(p, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()


@jax.jit
def epoch(p, s, key, X, Y):
    def step(carry, idx):
        p, s = carry
        loss, g = jax.value_and_grad(loss_fn)(p, X[idx], Y[idx])
        u, s = opt.update(g, s, p)
        return (optax.apply_updates(p, u), s), loss
    (p, s), losses = jax.lax.scan(step, (p, s), jax.random.permutation(key, 4096).reshape(64, 64))
    return p, s, losses.mean()


init_opt = jax.jit(opt.init)
# %% the sweep
grid, results, first = [(lr, wd) for lr in (3e-4, 1e-3, 3e-3) for wd in (1e-4, 1e-2)], {}, []
for lr, wd in grid:
    t = time.perf_counter()
    params = init(jax.random.key(1))  # fault
    state = init_opt(params)  # fault
    state.hyperparams.update(learning_rate=jnp.float32(lr), weight_decay=jnp.float32(wd))
    for e, key in enumerate(jax.random.split(jax.random.key(2), 2)):
        params, state, loss = epoch(params, state, key, X, Y)  # fault
        first.append(time.perf_counter() - t) if e == 0 else None
    results[lr, wd] = float(loss)
    if not FIXED:
        jax.clear_caches()  # fault
        gc.collect()
# %% the best
best = min(results, key=results.get)
print("best", best, round(results[best], 3))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else sum(first[1:])}))
