"""
Train a Flax nnx model with Optax, observed by jaxmon.

    python examples/train_flax_nnx.py --steps 200
"""

from __future__ import annotations

import argparse

import jaxmon


# First of all, so that every jitted function of the program is counted.
agent = jaxmon.instrument()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402


class Network(nnx.Module):
    """Two layers, for a curve."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(1, 32, rngs=rngs)
        self.out = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the curve at *x*."""
        return self.out(nnx.tanh(self.hidden(x)))


def main() -> None:
    """Train, and say where the metrics are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    print(f"metrics: {agent.url}")

    graph, weights = nnx.split(Network(nnx.Rngs(0)))
    optimizer = optax.adam(1e-2)

    def loss_of(weights: nnx.State, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((nnx.merge(graph, weights)(x) - y) ** 2)

    @jax.jit
    def train_step(
        weights: nnx.State, state: optax.OptState, x: jax.Array, y: jax.Array
    ) -> tuple[nnx.State, optax.OptState, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    state = optimizer.init(weights)
    x = jnp.linspace(-1.0, 1.0, 64)[:, None]
    y = jnp.sin(3.0 * x)
    for index in range(steps):
        weights, state, loss = train_step(weights, state, x, y)
        if index == 0:
            print(f"first loss: {loss:.6f}")
    print(f"final loss: {loss:.6f}")


if __name__ == "__main__":
    main()
