"""
Serve synthetic requests with a small plain-JAX model until stopped.

Requests are padded to a few bucket shapes, which are compiled before the first one is
served. Now and then one fits no bucket; it is served in its own shape, and waits for a
compile. With the fault ``recompile`` none fits; `jaxmon.demo.mishaps` has the others.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import deque
from functools import partial

import jaxmon


agent = jaxmon.instrument()

import jax  # noqa: E402 - instrumented before anything binds jax.jit
import numpy as np  # noqa: E402

from jaxmon.demo.mishaps import FAULTS, Mishaps, StoreDownError  # noqa: E402
from jaxmon.demo.pace import Pace  # noqa: E402


VOCABULARY, WIDTH = 512, 64
ROUTE = "/complete"
BATCHES = (1, 4, 16)
LENGTHS = (16, 64)
ODD_EVERY = 300
COUNTS = (1, 5)

Parameters = dict[str, jax.Array]


@jax.jit
def initial_parameters(key: jax.Array) -> Parameters:
    """Return random weights."""
    shapes = {
        "embed": (VOCABULARY, WIDTH),
        "query": (WIDTH, WIDTH),
        "value": (WIDTH, WIDTH),
        "head": (WIDTH, VOCABULARY),
    }
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(one, shape) / shape[0] ** 0.5
        for one, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


@jax.jit
def forward(parameters: Parameters, tokens: jax.typing.ArrayLike) -> jax.Array:
    """Return logits of the next token: one layer of attention, then a head."""
    x = parameters["embed"][tokens]
    scores = x @ parameters["query"] @ x.swapaxes(-1, -2) / WIDTH**0.5
    x = x + jax.nn.softmax(scores) @ (x @ parameters["value"])
    return x[:, -1] @ parameters["head"]


@partial(jax.jit, static_argnames="count")
def best(logits: jax.Array, *, count: int) -> jax.Array:
    """Return the *count* likeliest tokens."""
    return jax.lax.top_k(logits, count)[1]


def bucket(size: int, sizes: tuple[int, ...]) -> int:
    """Return the smallest of *sizes* that holds *size*, or *size* where none does."""
    return next((one for one in sizes if size <= one), size)


def serve(
    parameters: Parameters, prompts: list[list[int]], *, count: int
) -> list[list[int]]:
    """Return the *count* likeliest next tokens for each prompt."""
    length = bucket(max(map(len, prompts)), LENGTHS)
    batch = np.zeros((bucket(len(prompts), BATCHES), length), np.int32)
    for row, prompt in zip(batch, prompts, strict=False):
        row[length - len(prompt) :] = prompt
    answer = best(forward(parameters, batch), count=count)
    return [list(map(int, row)) for row in np.asarray(answer)[: len(prompts)]]


def warm_up(parameters: Parameters) -> None:
    """Compile for every bucket."""
    for batch, length, count in itertools.product(BATCHES, LENGTHS, COUNTS):
        serve(parameters, [[0] * length] * batch, count=count)


class Traffic:
    """Made-up requests, the same ones in each run."""

    def __init__(self) -> None:
        self._chance = random.Random(0)  # noqa: S311 - traffic, not secrets
        self._odd = itertools.count(LENGTHS[-1] + 1)

    def prompts(self, *, odd: bool) -> list[list[int]]:
        """Return a batch; an *odd* one fits no bucket, and no program that is there."""
        chance, most = self._chance, LENGTHS[-1]
        lengths = [chance.randint(1, most) for _ in range(chance.randint(1, 16))]
        if odd:
            lengths[0] = next(self._odd)
        return [[chance.randrange(VOCABULARY) for _ in range(n)] for n in lengths]

    def count(self) -> int:
        """Return how many tokens are requested: mostly one."""
        return COUNTS[self._chance.random() < 1 / 4]


def main() -> None:
    """Serve one batch after the other."""
    pace = Pace(__doc__ or "", pause=0.1, faults=FAULTS)
    print(f"metrics: {agent.url}", flush=True)
    parameters = initial_parameters(jax.random.key(0))
    warm_up(parameters)
    print("ready", flush=True)
    traffic, mishaps = Traffic(), Mishaps(pace)
    waiting: deque[list[int]] = deque()
    jaxmon.queue("prompts", waiting.__len__)
    for tick in pace:
        pace.rest()
        prompts = [waiting.popleft() for _ in range(min(len(waiting), BATCHES[-1]))]
        # While this batch is served, and until the next, others come.
        odd = tick % ODD_EVERY == 0 or pace.suffers("recompile")
        waiting.extend(traffic.prompts(odd=odd))
        if not prompts:
            continue
        jaxmon.batch(ROUTE, size=len(prompts), capacity=bucket(len(prompts), BATCHES))
        try:
            with jaxmon.request(ROUTE):
                mishaps.befall(tick, prompts[0])
                serve(parameters, prompts, count=traffic.count())
        except StoreDownError as error:
            print(f"request failed: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
