"""
Train a small classifier with Flax and Optax, until stopped.

With the fault ``stall``, the data source stops while the loop waits for it; with
``starve``, it is slow; with ``slow``, each step is; with ``nan``, batches are NaN. With
``unsaved``, the program saves checkpoints, which fail while the fault lasts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jaxmon


agent = jaxmon.instrument()

import jax  # noqa: E402 - instrumented before anything binds jax.jit
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402

from jaxmon_alerts.gameday.programs.pace import ProgramPace  # noqa: E402


FEATURES, HIDDEN, CLASSES = 32, 128, 10
BATCH = 64
SLOW_SECONDS = 0.25
NONSENSE = np.full((BATCH, FEATURES), np.nan, np.float32)
EVALUATE_EVERY = 25
SAVE_EVERY = 50
REPORT_EVERY = 100


class Classifier(nnx.Module):
    """Three dense layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(FEATURES, HIDDEN, rngs=rngs)
        self.second = nnx.Linear(HIDDEN, HIDDEN, rngs=rngs)
        self.last = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the logits of a batch."""
        x = nnx.relu(self.first(x))
        return self.last(nnx.relu(self.second(x)))


@nnx.jit
def new_model() -> Classifier:
    """Return a model with random weights; not one compile for each operation."""
    return Classifier(nnx.Rngs(0))


graph, parameters = nnx.split(new_model())
optimizer = optax.adamw(optax.cosine_decay_schedule(3e-3, 20_000))
centres = np.random.default_rng(1).normal(0, 1.2, (CLASSES, FEATURES)).astype("float32")


@jax.jit
def make_batch(key: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
    """Return points around the centre of their class, others for each *number*."""
    for_label, for_noise = jax.random.split(jax.random.fold_in(key, number))
    label = jax.random.randint(for_label, (BATCH,), 0, CLASSES)
    noise = 2.0 * jax.random.normal(for_noise, (BATCH, FEATURES))
    return jnp.asarray(centres)[label] + noise, label


def loss_of(parameters: nnx.State, x: jax.Array, label: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of a batch."""
    logits = nnx.merge(graph, parameters)(x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()


@jax.jit
def train_step(
    parameters: nnx.State, state: optax.OptState, x: jax.Array, label: jax.Array
) -> tuple[nnx.State, optax.OptState, jax.Array]:
    """Return parameters and optimizer state after one batch, and its loss."""
    loss, gradients = jax.value_and_grad(loss_of)(parameters, x, label)
    updates, state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state, loss


@jax.jit
def eval_step(parameters: nnx.State, x: jax.Array, label: jax.Array) -> jax.Array:
    """Return the fraction of a batch that is classified correctly."""
    logits = nnx.merge(graph, parameters)(x)
    return jnp.mean(jnp.argmax(logits, axis=-1) == label)


def evaluate(parameters: nnx.State, key: jax.Array, number: int) -> jax.Array:
    """Return the fraction of a held-out batch that is classified correctly."""
    with jaxmon.activity("evaluate"):
        return eval_step(parameters, *make_batch(key, number)).block_until_ready()


def batches(
    pace: ProgramPace, key: jax.Array
) -> Iterator[tuple[int, jax.typing.ArrayLike, jax.Array]]:
    """Yield the number of a step and its batch."""
    for step in pace:
        while pace.suffers("stall"):
            time.sleep(0.1)
        if pace.suffers("starve"):
            time.sleep(SLOW_SECONDS)
        x, label = make_batch(key, step)
        yield step, NONSENSE if pace.suffers("nan") else x, label


class OrbaxSaver:
    """Saves with Orbax, always over the checkpoint before."""

    def __init__(self) -> None:
        import orbax.checkpoint

        self._orbax: Any = orbax.checkpoint
        self._saver = orbax.checkpoint.Checkpointer(
            orbax.checkpoint.StandardCheckpointHandler()
        )
        self._directory = TemporaryDirectory(prefix="jaxmon-demo-")
        self._home = Path(self._directory.name) / "checkpoints"
        self._absent = self._home.with_name("gone")
        self._home.mkdir()

    def save(self, leaves: list[Any], *, writable: bool) -> None:
        """Save *leaves*; `OSError` unless *writable*: a file is in the way."""
        if writable and self._absent.exists():
            self._home.unlink()
            self._absent.rename(self._home)
        elif not writable and not self._absent.exists():
            self._home.rename(self._absent)
            self._home.touch()
        arguments = self._orbax.args.StandardSave({"parameters": leaves})
        self._saver.save(self._home / "latest", args=arguments, force=True)


def save(checkpoints: OrbaxSaver, weights: nnx.State, *, writable: bool) -> None:
    """Save *weights*, or report why not: training is worth more than one checkpoint."""
    try:
        checkpoints.save(jax.tree.leaves(weights), writable=writable)
    except OSError as error:
        print(f"not saved: {error}", flush=True)


def main() -> None:
    """Train, evaluate now and then, report now and then."""
    pace = ProgramPace("train", __doc__, pause=0.1)
    print(f"metrics: {agent.url}", flush=True)
    weights, state = parameters, jax.jit(optimizer.init)(parameters)
    checkpoints = OrbaxSaver() if pace.may_suffer("unsaved") else None
    training, validation = map(jax.random.key, (2, 3))
    # Compiled before the loop starts, so that its first steps are like the others.
    train_step(weights, state, *make_batch(training, 0))
    evaluate(weights, validation, 0)
    print("ready", flush=True)
    for step, x, label in jaxmon.steps(batches(pace, training), items=BATCH):
        updated = train_step(weights, state, x, label)
        jaxmon.log_values({"loss": updated[2]}, step=step)
        if pace.suffers("slow"):
            time.sleep(SLOW_SECONDS)
        if x is not NONSENSE:
            # Weights that are NaN would stay so when the fault is over.
            weights, state, loss = updated
        if step % EVALUATE_EVERY == 0:
            accuracy = evaluate(weights, validation, step)
            if step % REPORT_EVERY == 0:
                print(f"step {step}: loss {loss:.3f}, accuracy {accuracy:.3f}")
        if checkpoints is not None and step % SAVE_EVERY == 0:
            save(checkpoints, weights, writable=not pace.suffers("unsaved"))
        pace.rest()


if __name__ == "__main__":
    main()
