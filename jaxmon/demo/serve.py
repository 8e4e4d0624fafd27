"""
Answer made-up requests with a small model in plain JAX, until stopped.

Requests are padded to a few bucket shapes, as servers do. Now and then one comes that
fits no bucket; it is served in its own shape, and pays for a compile.
"""

from __future__ import annotations

import random
from functools import partial

import jaxmon


agent = jaxmon.instrument()

import jax  # noqa: E402 - instrumented before anything binds jax.jit
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from jaxmon.demo.pace import ticks  # noqa: E402


VOCABULARY, WIDTH = 512, 64
BATCHES = (1, 4, 16)
LENGTHS = (16, 64)
ODD_EVERY = 100

Parameters = dict[str, jax.Array]


def initial_parameters(key: jax.Array) -> Parameters:
    """
    Return random weights; a demo has nothing to know.
    """
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
def forward(parameters: Parameters, tokens: jax.Array) -> jax.Array:
    """
    Return logits of the next token: one layer of attention, then a head.
    """
    x = parameters["embed"][tokens]
    scores = x @ parameters["query"] @ x.swapaxes(-1, -2) / WIDTH**0.5
    x = x + jax.nn.softmax(scores) @ (x @ parameters["value"])
    return x[:, -1] @ parameters["head"]


@partial(jax.jit, static_argnames="count")
def best(logits: jax.Array, *, count: int) -> jax.Array:
    """
    Return the *count* likeliest tokens.
    """
    return jax.lax.top_k(logits, count)[1]


def bucket(size: int, sizes: tuple[int, ...]) -> int:
    """
    Return the smallest of *sizes* that holds *size*, or *size* where none does.
    """
    return next((one for one in sizes if size <= one), size)


def serve(
    parameters: Parameters, prompts: list[list[int]], *, count: int
) -> list[list[int]]:
    """
    Return the *count* likeliest next tokens for each prompt.
    """
    length = bucket(max(map(len, prompts)), LENGTHS)
    batch = np.zeros((bucket(len(prompts), BATCHES), length), np.int32)
    for row, prompt in zip(batch, prompts, strict=False):
        row[length - len(prompt) :] = prompt
    answer = best(forward(parameters, jnp.asarray(batch)), count=count)
    return [list(map(int, row)) for row in np.asarray(answer)[: len(prompts)]]


def main() -> None:
    """
    Serve one batch after the other.
    """
    print(f"metrics: {agent.url}", flush=True)
    chance = random.Random(0)  # noqa: S311 - traffic, not secrets
    parameters = initial_parameters(jax.random.key(0))
    for tick in ticks(__doc__ or "", pause=0.1):
        # A length that no bucket holds, a new one each time up to a bound.
        odd = tick % ODD_EVERY == 0
        longest = LENGTHS[-1] + 1 + tick // ODD_EVERY % 64 if odd else LENGTHS[-1]
        prompts = [
            [chance.randrange(VOCABULARY) for _ in range(chance.randint(1, longest))]
            for _ in range(chance.randint(1, BATCHES[-1]))
        ]
        if odd:
            prompts[0] = [chance.randrange(VOCABULARY) for _ in range(longest)]
        serve(parameters, prompts, count=chance.choice((1, 1, 1, 5)))


if __name__ == "__main__":
    main()
