"""Deconvolution of an image with SciPy's L-BFGS. "Each iteration costs nearly twice what one gradient costs."

Truth: SciPy asks for the value and for the gradient at the same point, and the program computes them by two compiled functions; the gradient's contains the whole forward pass again, so the model is evaluated twice.
Advice: one jitted jax.value_and_grad and minimize(..., jac=True).
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

FIXED = "--fixed" in sys.argv
WORDS = (r"value_and_grad|twice|again|two (calls|functions|programs)|duplicate|redundant|separate|both",)
SIZE = 64


def forward(image, blur):
    """Strong lens: 24 sweeps of a nonlinear smoothing, then the blur of the telescope."""
    def sweep(u, _):
        smooth = (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)) / 4
        return u + 0.3 * jnp.tanh(smooth - u), None
    u, _ = jax.lax.scan(sweep, image, None, length=24)
    return jnp.fft.irfft2(jnp.fft.rfft2(u) * blur, s=u.shape)


def misfit(flat, blur, seen):
    image = flat.reshape(SIZE, SIZE)
    return jnp.sum((forward(image, blur) - seen) ** 2) + 1e-3 * jnp.sum(jnp.abs(image))


value, gradient = jax.jit(misfit), jax.jit(jax.grad(misfit))
both = jax.jit(jax.value_and_grad(misfit))
clock = {"value": 0.0, "calls": 0}


def main():
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:SIZE, 0:SIZE] - SIZE // 2
    blur = jnp.fft.rfft2(np.fft.ifftshift(np.exp(-(x**2 + y**2) / 8.0) / 25).astype(np.float32))
    truth = (rng.random((SIZE, SIZE)) > 0.99) * 10.0
    seen = jax.jit(forward)(jnp.asarray(truth, jnp.float32), blur) + 0.01 * rng.normal(size=(SIZE, SIZE)).astype(np.float32)

    def f(flat):
        t = time.perf_counter()
        out = float(value(flat.astype(np.float32), blur, seen))  # fault
        clock["value"] += time.perf_counter() - t
        return out

    def g(flat):
        return np.asarray(gradient(flat.astype(np.float32), blur, seen), np.float64)  # fault

    def fg(flat):
        out, slope = both(flat.astype(np.float32), blur, seen)
        return float(out), np.asarray(slope, np.float64)

    for start in range(2):
        first = 0.1 * rng.random(SIZE * SIZE)
        options = {"maxiter": 120, "maxfun": 200, "ftol": 0, "gtol": 0}
        result = minimize(fg, first, jac=True, method="L-BFGS-B", options=options) if FIXED else minimize(f, first, jac=g, method="L-BFGS-B", options=options)  # fault
        print("start", start, "misfit", round(float(result.fun), 4), "evaluations", result.nfev)
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": clock["value"]}))


main()
