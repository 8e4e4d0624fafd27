"""Gaussian process regression by L-BFGS with several restarts: full-batch, the same data in every step by design; kernels' compiled fits in a bounded lru_cache; frozen noise for one kernel."""
import time
T0 = time.perf_counter()
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax

N, RESTARTS, STEPS = 220, 6, 60


def rbf(d2, p):
    return jnp.exp(2 * p["amp"] - 0.5 * d2 * jnp.exp(-2 * p["len"]))


def rational(d2, p):
    return jnp.exp(2 * p["amp"]) * (1 + 0.5 * d2 * jnp.exp(-2 * p["len"])) ** -1.0


def matern(d2, p):
    d = jnp.sqrt(3 * d2 + 1e-12) * jnp.exp(-p["len"])
    return jnp.exp(2 * p["amp"]) * (1 + d) * jnp.exp(-d)


def covariance(kernel, p, a, b):
    return kernel(((a[:, None] - b[None]) ** 2).sum(-1), p)


@functools.lru_cache(maxsize=4)
def compiled_fit(kernel, frozen_noise):
    def nll(p, x, y):
        noise = jax.lax.stop_gradient(p["noise"]) if frozen_noise else p["noise"]
        k = covariance(kernel, p, x, x) + (jnp.exp(2 * noise) + 1e-4) * jnp.eye(len(x))
        chol = jnp.linalg.cholesky(k)
        alpha = jax.scipy.linalg.cho_solve((chol, True), y)
        return (0.5 * y @ alpha + jnp.log(jnp.diag(chol)).sum()) / len(x)

    solver = optax.lbfgs(memory_size=6, linesearch=optax.scale_by_zoom_linesearch(8))

    def fit(p, x, y):
        fun = functools.partial(nll, x=x, y=y)
        vag = optax.value_and_grad_from_state(fun)

        def body(carry, _):
            p, s = carry
            v, g = vag(p, state=s)
            up, s = solver.update(g, s, p, value=v, grad=g, value_fn=fun)
            return (optax.apply_updates(p, up), s), v

        (p, _), values = jax.lax.scan(body, (p, solver.init(p)), None, length=STEPS)
        return p, values

    return jax.jit(fit)


@functools.partial(jax.jit, static_argnums=0)
def predict(kernel, p, x, y, xs):
    k = covariance(kernel, p, x, x) + (jnp.exp(2 * p["noise"]) + 1e-4) * jnp.eye(len(x))
    return covariance(kernel, p, xs, x) @ jnp.linalg.solve(k, y)


def main():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (N, 2)).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) * np.cos(x[:, 1]) + 0.1 * rng.normal(size=N)).astype(np.float32)
    xs = rng.uniform(-3, 3, (200, 2)).astype(np.float32)
    truth = np.sin(2 * xs[:, 0]) * np.cos(xs[:, 1])
    x, y, xs = map(jnp.asarray, (x, y, xs))
    for kernel, frozen in ((rbf, False), (rational, False), (matern, True)):
        best = (np.inf, None)
        for seed in range(RESTARTS):
            k = jax.random.split(jax.random.PRNGKey(seed), 2)
            p = {"amp": 0.3 * jax.random.normal(k[0]), "len": 0.5 * jax.random.normal(k[1]),
                 "noise": jnp.asarray(-2.0)}
            p, values = compiled_fit(kernel, frozen)(p, x, y)
            final = float(values[-1])
            if np.isfinite(final) and final < best[0]:      # a failed restart is thrown away
                best = (final, p)
        err = np.sqrt(np.mean((np.asarray(predict(kernel, best[1], x, y, xs)) - truth) ** 2))
        print(f"{kernel.__name__:10s} nll {best[0]:.4f} rmse {err:.4f}")
    print(json.dumps({"wall": time.perf_counter() - T0}))


main()
