"""Federated averaging with Equinox: each client trains for a blink, but every client visit starts with a long pause, also in later rounds.

Truth: every visit builds the model anew with a lambda as its activation; the lambda is a static part of the model and a different object each time, so filter_jit compiles local training again for each client.
Advice: use a module-level function for the activation (or build the skeleton once and only replace the weights), so the static parts compare equal.
"""
import json
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

START = time.perf_counter()
FIXED = "--fixed" in sys.argv
WORDS = (r"compil|trac", r"lambda|static|activation|function|model|argument|new object|hash|filter_jit|closure")
tx = optax.sgd(0.05, momentum=0.9)


def leaky(x):
    return jnp.where(x > 0, x, 0.1 * x)


def build_model(weights=None):
    activation = leaky if FIXED else (lambda x: jnp.where(x > 0, x, 0.1 * x))  # fault
    model = eqx.filter_eval_shape(eqx.nn.MLP, 20, 5, 64, 2, activation=activation, key=jax.random.key(0)) if weights is not None else eqx.nn.MLP(20, 5, 64, 2, activation=activation, key=jax.random.key(0))
    if weights is not None:
        model = eqx.combine(weights, eqx.filter(model, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct)))
    return model


@eqx.filter_jit
def train_locally(model, x, y):
    params, static = eqx.partition(model, eqx.is_array)

    def loss_fn(params, xb, yb):
        logits = jax.vmap(eqx.combine(params, static))(xb)
        return optax.softmax_cross_entropy_with_integer_labels(logits, yb).mean()

    def body(carry, batch):
        params, opt_state = carry
        loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
        updates, opt_state = tx.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state), loss

    (params, _), losses = jax.lax.scan(body, (params, tx.init(params)), (x, y))
    return eqx.combine(params, static), losses[-1]


@jax.jit
def average(clients):
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *clients)


def main():
    rng = np.random.default_rng(0)
    rule = rng.standard_normal((20, 5))
    shards = []
    for shift in rng.standard_normal((4, 20)):
        x = rng.standard_normal((200, 64, 20)) + 0.5 * shift
        shards.append((x.astype(np.float32), (x @ rule).argmax(-1)))
    weights, lost, visits = eqx.filter(build_model(), eqx.is_array), 0.0, 0
    for round_ in range(3):
        trained = []
        for x, y in shards:
            t0 = time.perf_counter()
            model, loss = train_locally(build_model(weights), x, y)  # fault
            if visits and not FIXED:
                lost += time.perf_counter() - t0
            visits += 1
            trained.append(eqx.filter(model, eqx.is_array))
        weights = average(trained)
        print(f"round {round_} loss of the last client {float(loss):.4f}")
    print(json.dumps({"wall": round(time.perf_counter() - START, 2), "lost": round(lost, 2)}))


main()
