"""
A training program whose steps are traced, and what it notes of them itself.

    python tests/programs/traced_steps.py

Prints, as JSON, which steps do what, when the work of each began and ended (nanoseconds
since 1970), and the page of its agent.
"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection

import jax
import jax.numpy as jnp
import numpy as np

import jaxmon


STEPS = 400
COMPILES = {0: 3, 40: 4}
FAILS, EVALUATES, SLOW = 60, 80, 200
SLOW_SECONDS = 0.4
MATRIX = np.ones((400, 400), np.float32)

agent = jaxmon.instrument(port=0, socket=False)
truth: list[list[int]] = []
waits: list[list[int]] = []


@jax.jit
def step(x):
    return (x * 2).sum()


@jax.jit
def score(x):
    return x.max()


@jax.jit
def broken(x):
    return x @ x


@jax.jit
def late(x):
    # Large enough that the call returns before.
    return jax.lax.fori_loop(0, 40, lambda _, a: jnp.tanh(a @ a), x).sum()


def noting() -> Iterator[int]:
    """Yield the batches; note when each is requested."""
    for number in range(STEPS):
        truth.append([time.time_ns()])
        yield number


def main() -> None:
    length = 0
    late(MATRIX).block_until_ready()
    for number in jaxmon.steps(noting()):
        length = COMPILES.get(number, length)
        step(np.ones(length, np.float32))
        if number == FAILS:
            with suppress(TypeError):
                broken(np.ones((2, 3), np.float32))
        if number == EVALUATES:
            for _ in jaxmon.steps(range(3), loop="evaluate"):
                score(np.ones(7, np.float32))
        if number == SLOW:
            time.sleep(SLOW_SECONDS)
            waits.append([time.time_ns()])
            late(MATRIX).block_until_ready()
            waits[-1].append(time.time_ns())
        truth[-1].append(time.time_ns())
    for _ in jaxmon.steps(range(9), loop="finetune"):
        step(np.ones(5, np.float32))
        break
    with jaxmon.request("predict"):
        waits.append([time.time_ns()])
        float(late(MATRIX[:300, :300]))
        waits[-1].append(time.time_ns())
    assert agent.url is not None
    client = HTTPConnection("127.0.0.1", int(agent.url.split(":")[2].split("/")[0]))
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    client.request("GET", "/metrics", headers=accept)
    page = client.getresponse().read().decode()
    client.close()
    jaxmon.uninstrument()
    document = {"truth": truth, "waits": waits, "page": page}
    planted = {"compiles": list(COMPILES), "fails": FAILS, "slow": SLOW}
    print(json.dumps({**document, **planted}))


if __name__ == "__main__":
    main()
