"""Programs without any mistake: nothing in them is worth a change."""

from __future__ import annotations

import queue
import socket
import socketserver
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon
from tests.programs.verdicts.harness import (
    SIZES,
    batch,
    evaluate,
    large_models,
    loss_of,
    more,
    serve,
    step,
    weights,
)


def training() -> None:
    state, count = weights, 0
    while more():
        state, loss = step(state, batch)
        count += 1
        if count % 100 == 0:
            float(loss)


def reading_each_loss() -> None:
    state = weights
    while more():
        state, loss = step(state, batch)
        float(loss)


_LIBRARY = """
class Waiting:
    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        state, loss = self.function(*args)
        loss.block_until_ready()
        return state, loss
"""


def within_a_library() -> None:
    file = Path(sysconfig.get_path("purelib"), "library.py")
    library: dict[str, Any] = {}
    exec(compile(_LIBRARY, str(file), "exec"), library)  # noqa: S102 - our own
    waiting, state = library["Waiting"](step), weights
    while more():
        state, _ = waiting(state, batch)


def replicated() -> None:
    def average(weights: Any, batch: Any) -> Any:
        for _ in range(10):
            slope = jax.grad(loss_of)(weights, batch)
            weights -= 0.1 * jax.lax.pmean(slope, "devices")
        return weights, jnp.mean(weights)

    devices = jax.device_count()
    state = jnp.stack([weights] * devices)
    shards = jax.pmap(jnp.tanh)(jnp.stack([batch] * devices))
    update = jax.pmap(average, axis_name="devices")
    while more():
        state, mean = update(state, shards)
        float(mean[0])


def several_models() -> None:
    def network(scale: float) -> Callable[[Any, Any], Any]:
        return lambda weights, batch: jnp.mean((batch @ weights) ** 2) * scale

    losses = [jax.jit(network(scale)) for scale in (1.0, 2.0, 3.0)]
    slopes = [jax.jit(jax.grad(network(scale))) for scale in (1.0, 2.0)]
    while more():
        for function in (*losses, *slopes):
            function(weights, batch).block_until_ready()


def transformations() -> None:
    functions = [
        jax.jit(loss_of),
        jax.jit(jax.grad(loss_of)),
        jax.jit(jax.value_and_grad(loss_of)),
        jax.jit(jax.vmap(loss_of, in_axes=(None, 0))),
        jax.jit(jax.checkpoint(loss_of)),
    ]
    while more():
        for function in functions:
            jax.block_until_ready(function(weights, batch))


def idle_server() -> None:
    work: queue.Queue[Any] = queue.Queue()

    def serve() -> None:
        while work.get() is not None:
            with jaxmon.request("predict"):
                float(step(weights, batch)[1])

    thread = threading.Thread(target=serve)
    thread.start()
    while more():
        work.put(1)
        time.sleep(0.25)
    work.put(None)
    thread.join()


def connections() -> None:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(self.request.recv(64)) == 64:
                self.request.sendall(str(float(step(weights, batch)[1])).encode())

    def ask(address: tuple[str, int]) -> None:
        with socket.create_connection(address) as client:
            while more():
                client.sendall(bytes(64))
                client.recv(64)
                time.sleep(0.1)

    float(step(weights, batch)[1])
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = ("127.0.0.1", server.server_address[1])
        clients = [threading.Thread(target=ask, args=(address,)) for _ in range(3)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        server.shutdown()


def busy_server() -> None:
    sizes = (4, 8, 16)
    for size in sizes:
        step(weights, batch[: size * 32])
    number = 0
    while more():
        number += 1
        size = sizes[number % 3]
        jaxmon.batch("predict", size=size, capacity=size)
        with jaxmon.request("predict"):
            float(step(weights, np.ones((size * 32, 256), np.float32))[1])


def warmed_up() -> None:
    models = large_models(0.05)
    for model in models:
        for size in SIZES:
            model(weights, batch[:size])
    serve(models)


def evaluation_between() -> None:
    state = weights
    while more():
        for _ in range(100):
            state, _ = step(state, batch)
        np.mean([float(evaluate(state, batch)) for _ in range(10)])


def prefetching() -> None:
    ready: queue.Queue[Any] = queue.Queue(maxsize=4)

    def load() -> None:
        while more():
            time.sleep(0.0005)
            ready.put(jax.device_put(np.ones((512, 256), np.float32)))
        ready.put(None)

    threading.Thread(target=load).start()
    state = weights
    for one in jaxmon.steps(iter(ready.get, None)):
        for _ in range(8):
            state, _ = step(state, one)
        state.block_until_ready()


@jax.jit  # type: ignore[untyped-decorator]
def scaled_step(weights: Any, scale: Any, batch: Any) -> Any:
    def scaled(weights: Any) -> Any:
        return loss_of(weights, batch) * scale

    slope = jax.grad(scaled)(weights.astype(jnp.float16)).astype(jnp.float32) / scale
    finite = jnp.isfinite(slope).all()
    kept = jnp.where(finite, weights - 0.1 * slope, weights)
    return kept, jnp.where(finite, scale * 1.01, scale / 2), finite


def loss_scaling() -> None:
    state, scale = weights, jnp.float32(2.0**14)
    while more():
        state, scale, _ = scaled_step(state, scale, batch)
        state.block_until_ready()


@partial(jax.jit, donate_argnums=0)
def epoch(weights: Any, batches: Any) -> Any:
    def one_step(weights: Any, batch: Any) -> tuple[Any, None]:
        return weights - 0.1 * jax.grad(loss_of)(weights, batch), None

    return jax.lax.scan(one_step, weights, batches)


def scanned_epochs() -> None:
    state, batches = weights + 0, jnp.stack([batch] * 8)
    while more():
        state, _ = epoch(state, batches)
        state.block_until_ready()


def folded_key() -> None:
    @jax.jit  # type: ignore[untyped-decorator]
    def dropout(weights: Any, batch: Any, key: Any, number: Any) -> Any:
        key = jax.random.fold_in(key, number)
        kept = jax.random.bernoulli(key, 0.5, batch.shape)
        return step(weights, batch * kept)

    key = jax.random.key(0)
    state, number = weights, 0
    while more():
        state, _ = dropout(state, batch, key, number)
        state.block_until_ready()
        number += 1


def rare_checkpoints() -> None:
    def rounds() -> Iterator[int]:
        number = 0
        while more():
            yield number
            number += 1

    state = weights
    for number in jaxmon.steps(rounds()):
        state, loss = step(state, batch)
        jaxmon.log_values({"loss": loss}, step=number)
        if number % 500 == 499:
            with jaxmon.activity("checkpoint"):
                np.asarray(state).tobytes()
