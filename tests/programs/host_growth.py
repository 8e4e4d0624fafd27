"""
Programs whose memory on the host grows, and healthy ones that look like them at first.

Each calls a jitted function in rounds, and comes by 1 MiB in each. Lines that add to
what grows end with ``# adds``.
"""

import collections
import functools
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


ROUNDS, PAUSE = 700, 0.01
W = jnp.ones((64, 64))
HISTORY: list[Any] = []


@jax.jit  # type: ignore[untyped-decorator]
def step(w: Any) -> Any:
    return w + 0.01 * jnp.tanh(w @ w)


def rounds(pause: float = PAUSE) -> Iterator[int]:
    for number in range(ROUNDS):
        step(W)
        yield number
        time.sleep(pause)


def row(number: int) -> Any:
    return np.full(1 << 18, number, np.float32)


# --- What grows ------------------------------------------------------------------


def module_list() -> None:
    for number in rounds():
        made = row(number)
        HISTORY.append(made)  # adds: module_list


def local_list() -> None:
    history = []
    for number in rounds():
        made = row(number)
        history.append({"row": made})  # adds: local_list


@functools.cache
def features(number: int) -> Any:  # adds: cached_function
    return row(number)


def cached_function() -> None:
    for number in rounds():
        features(number)


class Server:
    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}

    def answer(self, query: str) -> None:
        self.answers[query] = row(len(query))  # adds: attribute


def attribute() -> None:
    server = Server()
    for number in rounds():
        server.answer(f"query {number}")


def queue_of(maxsize: int, most: int = ROUNDS) -> None:
    ready = queue.Queue[Any](maxsize)

    def load() -> None:
        for number in range(most):
            ready.put(row(number))  # adds: unbounded_queue, loader_that_ends
            time.sleep(0 if maxsize else PAUSE)

    threading.Thread(target=load, daemon=True).start()
    for _ in range(most):
        step(W)
        ready.get()
        time.sleep(3 * PAUSE if ready.qsize() < most // 2 else 0)


def unbounded_queue() -> None:
    queue_of(0)


def loader_that_ends() -> None:
    queue_of(0, 400)


def executor() -> None:
    with ThreadPoolExecutor(1) as pool:
        for number in rounds():
            pool.submit(lambda _: time.sleep(10 * PAUSE), row(number))  # adds: executor
        pool.shutdown(cancel_futures=True)


# --- What does not ---------------------------------------------------------------


def bounded_queue() -> None:
    queue_of(8)


def dataset() -> None:
    data = [row(number) for number in range(500)]
    for number in rounds():
        data[number % 500].max()


def dataset_in_the_background() -> None:
    data: list[Any] = []

    def load() -> None:
        for number in range(400):
            data.append(row(number))
            time.sleep(PAUSE / 4)

    threading.Thread(target=load).start()
    for _ in rounds():
        pass


def filled_cache() -> None:
    found: dict[int, Any] = {}
    for number in rounds():
        if number % 350 not in found:
            found[number % 350] = row(number)


@functools.lru_cache(maxsize=32)
def few_features(number: int) -> Any:
    return row(number)


def bounded_cache() -> None:
    for number in rounds():
        few_features(number)


def list_of_work() -> None:
    work = queue.Queue[Any]()
    for number in range(500):
        work.put(row(number))
    for _ in rounds():
        if not work.empty():
            work.get()


def replay_buffer() -> None:
    kept = collections.deque[Any](maxlen=500)
    for number in rounds():
        kept.append(row(number))


def noise() -> None:
    chance = np.random.default_rng(0)
    for number in rounds():
        rows = [row(number) for _ in range(chance.integers(1, 40))]
        del rows


if __name__ == "__main__":
    program: Callable[[], None] = globals()[sys.argv[1]]
    program()
