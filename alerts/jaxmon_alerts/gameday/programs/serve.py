"""
Serve synthetic requests with a small plain-JAX model until stopped.

Requests are padded to a few bucket shapes, which are compiled before the first one is
served. Now and then one fits no bucket; it is served in its own shape, and waits for a
compile. With the fault ``recompile`` none fits; `Mishaps` has the others.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import jaxmon


agent = jaxmon.instrument()

import jax  # noqa: E402 - instrumented before anything binds jax.jit
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from jaxmon_alerts.gameday.programs.pace import ProgramPace  # noqa: E402


VOCABULARY, WIDTH = 512, 64
ROUTE = "/complete"
BATCHES = (1, 4, 16)
LENGTHS = (16, 64)
ODD_EVERY = 300
COUNTS = (1, 5)
COMPARED_EVERY = CHECKED_EVERY = 10
KEPT_BYTES = 1 << 17
SLOW_SECONDS = 0.4
_MODEL_WIDTH = 8

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
        name: jax.random.normal(part, shape) / shape[0] ** 0.5
        for part, (name, shape) in zip(keys, shapes.items(), strict=True)
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
    return next((smallest for smallest in sizes if size <= smallest), size)


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


class StoreDownError(ConnectionError):
    """The store with the users' contexts does not respond."""


class Mishaps:
    """The faults of the server; *pace* says which one is active."""

    def __init__(self, pace: ProgramPace) -> None:
        self._pace = pace
        self._kept: list[jax.Array] = []

    def befall(self, tick: int, tokens: list[int]) -> None:
        """Do to the request of this *tick* what the active fault does."""
        suffers = self._pace.suffers
        load_context(
            store_down=suffers("errors") and tick % 2 == 1, slow=suffers("latency")
        )
        while suffers("hang"):
            time.sleep(0.1)
        if suffers("cold"):
            new_model(tick)(np.ones(_MODEL_WIDTH, np.float32))
        if suffers("leak"):
            self._kept.append(jnp.zeros(KEPT_BYTES // 4, jnp.float32))
        else:
            self._kept.clear()
        if suffers("oom") and tick % COMPARED_EVERY == 0:
            find_similar(tokens)
        if suffers("key-reuse") and tick % CHECKED_EVERY == 0:
            draw_twice()
        if suffers("nondeterminism") and tick % CHECKED_EVERY == 0:
            jaxmon.check_determinism(jitter, np.ones(_MODEL_WIDTH, np.float32))


def load_context(*, store_down: bool, slow: bool) -> None:
    """Simulate a call of the store; `StoreDownError` if it is down."""
    if store_down:
        msg = "the context store does not respond"
        raise StoreDownError(msg)
    if slow:
        time.sleep(SLOW_SECONDS)


def new_model(number: int) -> Callable[[np.ndarray], jax.Array]:
    """Return a model that no request has used before: another function each time."""

    def model(x: jax.typing.ArrayLike) -> jax.Array:
        return jnp.tanh(x * number).sum()

    model.__name__ = model.__qualname__ = f"model_{number}"
    compiled: Callable[[np.ndarray], jax.Array] = jax.jit(model)
    return compiled


@jax.jit
def compare_with_all(tokens: jax.Array) -> jax.Array:
    """Return a score for each pair of requests ever made, at four bytes each."""
    return jnp.zeros((1 << 25, 1 << 28), jnp.float32).at[0, 0].set(tokens.sum())


def find_similar(tokens: list[int]) -> jax.Array | None:
    """Return how similar requests are, or `None` where memory does not suffice."""
    try:
        return compare_with_all(np.asarray(tokens, np.int32)[:1]).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print(f"no comparison: {error}", file=sys.stderr)
        return None


@jax.jit
def sample_twice(key: jax.Array) -> jax.Array:
    """Return two samples, which are not independent."""
    return jax.random.normal(key) + jax.random.uniform(key)


def draw_twice() -> None:
    """Sample with JAX's key checker, as a canary would, and without it."""
    key = jax.random.key(0)
    try:
        with jax.debug_key_reuse(True):  # noqa: FBT003 - JAX's own
            sample_twice(key)
    except jax.errors.KeyReuseError as error:
        print(f"no samples: {error}", file=sys.stderr)


@jax.jit
def jitter(x: jax.Array) -> jax.Array:
    """Return *x*, with noise that does not come from a key."""
    noise = jax.pure_callback(_noise, jax.ShapeDtypeStruct(x.shape, x.dtype))
    return x + noise


def _noise() -> np.ndarray:
    return np.random.default_rng().random(_MODEL_WIDTH, np.float32)


def main() -> None:
    """Serve one batch after the other."""
    pace = ProgramPace("serve", __doc__, pause=0.1)
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
