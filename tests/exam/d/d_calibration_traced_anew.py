"""Calibration of implied volatilities, one option after the other, with a while_loop. "The solver needs 20 iterations; why a tenth of a second each time?"

Truth: lax.while_loop is called outside of jit with functions defined anew in each call (closures over the quote): JAX cannot recognise them and traces and compiles the loop for each option.
Advice: put jit around a function that takes the quote as an argument, so that the loop is compiled once (or vmap over all quotes).
"""
import time
T0 = time.perf_counter()
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"jit|closure|each call|every call|while|loop|anew|again|function|lambda|repeated|times")


def price(vol, spot, strike, years):
    d1 = (jnp.log(spot / strike) + 0.5 * vol**2 * years) / (vol * jnp.sqrt(years))
    return spot * norm.cdf(d1) - strike * norm.cdf(d1 - vol * jnp.sqrt(years))


def implied(quote, spot, strike, years):
    def not_done(state):
        vol, error, n = state
        return (jnp.abs(error) > 1e-5 * spot) & (n < 40)

    def newton(state):
        vol, _, n = state
        value, vega = jax.value_and_grad(price)(vol, spot, strike, years)
        return jnp.clip(vol - (value - quote) / vega, 0.01, 3.0), value - quote, n + 1

    return jax.lax.while_loop(not_done, newton, (jnp.float32(0.3), jnp.float32(1.0), 0))[0]  # fault


solve = jax.jit(implied) if FIXED else implied
quoted = jax.jit(price)


@jax.jit
def smooth(surface):
    """Fit of the surface by a kernel regression: the work that follows each batch of quotes."""
    x = jnp.linspace(0, 1, 1200)
    kernel = jnp.exp(-((x[:, None] - x) ** 2) * 300)
    dense = jnp.interp(x, jnp.linspace(0, 1, surface.shape[0]), surface)
    return (kernel @ dense) / kernel.sum(1)


def main():
    rng = np.random.default_rng(0)
    clocks, surface = [], []
    for day in range(3):
        for option in range(8):
            spot, strike, years = 100.0, rng.uniform(85, 115), rng.uniform(0.2, 2)
            arguments = [np.float32(a) for a in (spot, strike, years)]
            quote = np.asarray(quoted(np.float32(rng.uniform(0.1, 0.5)), *arguments))
            t = time.perf_counter()
            vol = float(solve(quote, *arguments))  # fault
            clocks.append(time.perf_counter() - t)
            surface.append(vol)
        level = float(smooth(jnp.asarray(surface[-8:])).mean())
        print("day", day, "level", round(level, 4))
    lost = 0.0 if FIXED else sum(clocks[1:])
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": lost}))


main()
