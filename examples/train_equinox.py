"""
Train an Equinox model under `filter_jit`, observed by jaxmon.

    python examples/train_equinox.py --steps 200
"""

from __future__ import annotations

import argparse

import jaxmon


# First of all: Equinox calls jax.jit on behalf of the program.
agent = jaxmon.instrument()

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402


def loss_of(model: eqx.nn.MLP, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the mean squared error."""
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def main() -> None:
    """Train, and say where the metrics are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    print(f"metrics: {agent.url}")

    model = eqx.nn.MLP(1, 1, width_size=32, depth=1, key=jax.random.key(0))
    optimizer = optax.adam(1e-2)

    @eqx.filter_jit
    def train_step(
        model: eqx.nn.MLP, state: optax.OptState, x: jax.Array, y: jax.Array
    ) -> tuple[eqx.nn.MLP, optax.OptState, jax.Array]:
        loss, gradients = eqx.filter_value_and_grad(loss_of)(model, x, y)
        updates, state = optimizer.update(gradients, state, model)
        return eqx.apply_updates(model, updates), state, loss

    state = optimizer.init(eqx.filter(model, eqx.is_array))
    x = jnp.linspace(-1.0, 1.0, 64)[:, None]
    y = jnp.sin(3.0 * x)
    for index in range(steps):
        model, state, loss = train_step(model, state, x, y)
        if index == 0:
            print(f"first loss: {loss:.6f}")
    print(f"final loss: {loss:.6f}")


if __name__ == "__main__":
    main()
