"""
A program that moves every indicator of a CPU host, until its standard input ends.

It serves requests, cold and warm, good and bad; trains; recompiles; fails to trace.
"""

import itertools
import os
import select
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon


agent = jaxmon.instrument(
    port=int(os.environ["PORT"]), peak_flops=1e12, memory_interval=1.0
)


@jax.jit
def answer(x):
    return jnp.tanh(x) @ x.T


@jax.jit
def train(weights, batch):
    return weights - 0.01 * jnp.mean(batch @ weights) * weights


def serve(route, rows):
    jaxmon.queue("answers").set(rows)
    jaxmon.batch(route, size=rows, capacity=max(rows, 4))
    with jaxmon.request(route) as request:
        request.tenant = "acme"
        answer(np.ones((rows, 4), np.float32)).block_until_ready()


def fail():
    try:
        with jaxmon.request("/broken"):
            train(np.ones(3, np.float32), np.ones((2, 4), np.float32))
    except TypeError:
        pass


def reject():
    with jaxmon.request("/answer") as request:
        request.outcome = "client_error"


def wait_for_compile(columns):
    thread = threading.Thread(target=answer, args=(np.ones((2, columns), np.float32),))
    with jaxmon.request("/waiting"):
        thread.start()
        thread.join()


def ended(seconds):
    return select.select([sys.stdin], [], [], seconds)[0]


def batches():
    # Rates of what has just begun are too high: with longer waits, ratios exceed 1.
    while not ended(0.01):
        yield np.ones((8, 16), np.float32)


weights = jnp.ones(16)
jaxmon.ready()
print("ready", flush=True)
for number, batch in zip(
    itertools.count(),
    jaxmon.steps(batches(), loop="train", items=len, item="example"),
):
    weights = train(weights, batch)
    ended(0.1)
    jaxmon.log_values({"first": weights[0], "steady": 1.0})
    serve("/answer", 1)
    if number % 10 == 0:
        serve("/answer", 2 + number // 10 % 200)
        wait_for_compile(5 + number // 10)
        fail()
        reject()
        with jaxmon.activity("checkpoint"):
            weights.tolist()
        jaxmon.check_determinism(train, weights, batch)
        jaxmon.check_gradients(jnp.tanh, (1.0,))
