"""
Fit a line with plain JAX, observed by jaxmon.

    python examples/train_plain.py --steps 200
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp

import jaxmon


SLOPE, INTERCEPT, RATE = 3.0, -1.0, 0.1

Line = dict[str, jax.Array]


def loss_of(line: Line, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean squared error."""
    return jnp.mean((line["slope"] * x + line["intercept"] - y) ** 2)


def train_step(line: Line, x: jax.Array, y: jax.Array) -> tuple[Line, jax.Array]:
    """Return the line after one step of gradient descent, and the loss before it."""
    loss, gradient = jax.value_and_grad(loss_of)(line, x, y)
    return jax.tree.map(lambda p, g: p - RATE * g, line, gradient), loss


def main() -> None:
    """Train, and say where the metrics are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    # Before jax.jit is called: calls of functions that were jitted earlier are not
    # counted, though their compiles are.
    agent = jaxmon.instrument()
    print(f"metrics: {agent.url}")

    step = jax.jit(train_step)
    line = {"slope": jnp.zeros(()), "intercept": jnp.zeros(())}
    x = jnp.linspace(-1.0, 1.0, 64)
    y = SLOPE * x + INTERCEPT

    for index in jaxmon.steps(range(steps), items=len(x)):
        line, loss = step(line, x, y)
        if index == 0:
            print(f"first loss: {loss:.6f}")
    print(f"final loss: {loss:.6f}")


if __name__ == "__main__":
    main()
