"""
Train a Flax nnx model with Optax, evaluate and save it, observed by jaxmon.

    python examples/train_flax_nnx.py --steps 200
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import jaxmon


# First of all, so that every jitted function of the program is counted.
agent = jaxmon.instrument()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from flax import nnx  # noqa: E402


EVALUATE_EVERY = 20


class Network(nnx.Module):
    """Two layers, for a curve."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(1, 32, rngs=rngs)
        self.out = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the curve at *x*."""
        return self.out(nnx.tanh(self.hidden(x)))


def log(figures: dict[str, float | str], step: int) -> None:
    """Print what a run of W&B or MLflow, passed in its place, would show."""
    if "jaxmon/step_seconds" in figures:
        print(f"step {step}: {figures['jaxmon/step_seconds'] * 1e3:.2f} ms")


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

    evaluate = jax.jit(loss_of)

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
    held_out = jnp.linspace(-0.9, 0.9, 16)[:, None]
    print(f"first loss: {evaluate(weights, x, y):.6f}")
    jaxmon.log_to(log, every=EVALUATE_EVERY)
    with (
        tempfile.TemporaryDirectory() as directory,
        ocp.StandardCheckpointer() as saver,
    ):
        for index in jaxmon.steps(range(1, steps + 1)):
            weights, state, loss = train_step(weights, state, x, y)
            if index % EVALUATE_EVERY:
                continue
            with jaxmon.activity("evaluate"):  # or it would count as training
                error = evaluate(weights, held_out, jnp.sin(3.0 * held_out))
                print(f"held-out loss after {index} steps: {error:.6f}")
            saver.save(Path(directory, f"{index}"), nnx.to_pure_dict(weights))
    print(f"final loss: {loss:.6f}")


if __name__ == "__main__":
    main()
