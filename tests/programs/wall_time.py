"""
Programs that know what their time goes into: one kind each, for so many seconds.

Prints the shares measured with clocks inside the program, and those of the ledger, as
JSON.
"""

import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.own_metrics import Markers
from jaxmon.agent.walltime.part import WallTimePart
from jaxmon.facts.process import read
from jaxmon.facts.record import encoded
from jaxmon.symptoms.unmarked import calling


KIND, SECONDS = sys.argv[1], float(sys.argv[2])
# Small where neither the time of the device nor the sum of all is compared.
SIZE = 100 if KIND in {"marked", "loading", "slow_data"} else 300
AGENT = jaxmon.instrument(port=None, socket=False, time_interval=0.02)

truth: dict[str, float] = {}
calls: list[float] = []


@contextmanager
def clock(state: str) -> Iterator[None]:
    """Add the time of the block to *state*."""
    began = time.perf_counter()
    yield
    truth[state] = truth.get(state, 0.0) + time.perf_counter() - began


def spin(seconds: float) -> None:
    """Run Python for *seconds*."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@jax.jit  # type: ignore[untyped-decorator]
def step(state: Any, batch: Any) -> Any:
    for _ in range(6):
        state = jnp.tanh(state @ batch)
    return state, state.sum()


def batches(
    wait: Callable[[float], None] | None, seconds: float = SECONDS
) -> Iterator[Any]:
    batch = jnp.ones((SIZE, SIZE)) * 0.01
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        with clock("data_wait"):
            if wait is not None:
                wait(0.02)
        yield batch


def train(wait: Callable[[float], None] | None, rest: Callable[[Any], None]) -> None:
    state = jnp.ones((SIZE, SIZE)) * 0.01
    for batch in batches(wait):
        with clock("device"):
            state, loss = step(state, batch)
        calls.append(time.perf_counter())
        rest(loss)


def nothing(loss: Any) -> None:
    pass


def fetch(loss: Any) -> None:
    with clock("fetch"):
        float(loss)


def compute(loss: Any) -> None:
    fetch(loss)
    with clock("python"):
        spin(0.006)
    if len(calls) % 8 == 0:  # it takes several times as long
        with clock("compile"):
            number = time.perf_counter()
            jax.jit(lambda x: (x * number).sum()).lower(loss).compile()


def wait_outside(loss: Any) -> None:
    fetch(loss)
    with clock("blocked"):
        time.sleep(0.01)


def tell(_: Any) -> None:
    with clock("blocked"):
        time.sleep(0.02)


@jax.jit  # type: ignore[untyped-decorator]
def step_and_tell(state: Any, batch: Any) -> Any:
    state = jnp.tanh(state @ batch)
    jax.debug.callback(tell, state.sum())
    return state, state.sum()


def call_back() -> None:
    """Wait for a device that waits for a function of the program."""
    state = jnp.ones((SIZE, SIZE)) * 0.01
    for batch in batches(None):
        state, loss = step_and_tell(state, batch)
        float(loss)


def load() -> None:
    """Train on batches that a thread makes in Python."""
    made: queue.Queue[Any] = queue.Queue(maxsize=2)
    batch, end = jnp.ones((SIZE, SIZE)) * 0.01, time.perf_counter() + SECONDS

    def produce() -> None:
        while time.perf_counter() < end:
            spin(0.03)
            made.put(batch)
        made.put(None)

    threading.Thread(target=produce).start()
    state = batch
    while True:
        with clock("data_wait"):
            item = made.get()
        if item is None:
            break
        state, loss = step(state, item)
        float(loss)


def eager() -> None:
    values = jnp.arange(8.0)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        with clock("eager"):
            for _ in range(1000):
                values = values * 1.0001 + 0.1
        with clock("blocked"):
            time.sleep(0.02)


def marked(loss: Any) -> None:
    fetch(loss)
    with clock("checkpoint"), jaxmon.activity("checkpoint"):
        time.sleep(0.01)


def serve() -> None:
    """Serve requests from a queue in another thread."""
    work: queue.Queue[Any] = queue.Queue()
    state, batch = jnp.ones((SIZE, SIZE)), jnp.ones((SIZE, SIZE))

    def serving() -> None:
        # A thread is known once a call of it has compiled, or has been sampled.
        jax.jit(jnp.negative)(state)
        while True:
            with clock("idle"):
                item = work.get()
            if item is None:
                break
            with jaxmon.request("predict"):
                with clock("device"):
                    _, loss = step(state, batch)
                fetch(loss)

    thread = threading.Thread(target=serving)
    thread.start()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        work.put(1)
        time.sleep(0.02)
    work.put(None)
    thread.join()


def hang() -> None:
    """Train, then wait for a batch that never comes."""

    def never(_: Any) -> Iterator[Any]:
        yield from batches(None, SECONDS / 4)
        with clock("data_wait"):
            threading.Event().wait(SECONDS)

    state = jnp.ones((SIZE, SIZE)) * 0.01
    for batch in never(None):
        with clock("device"):
            state, loss = step(state, batch)
        fetch(loss)


PROGRAMS: dict[str, Callable[[], None]] = {
    "slow_data": lambda: train(time.sleep, nothing),
    "python_data": lambda: train(spin, nothing),
    "eager": eager,
    "computing": lambda: train(None, compute),
    "blocked": lambda: train(None, wait_outside),
    "marked": lambda: train(None, marked),
    "serving": serve,
    "hanging": hang,
    "loading": load,
    "calling_back": call_back,
}


def ledger() -> dict[str, Any]:
    """Return the ledger since the start."""
    runtime = runtime_of(AGENT)
    part = None if runtime is None else runtime.part(WallTimePart)
    assert part is not None
    found: dict[str, Any] = encoded(part.snapshot())
    return found


def ledger_at_a_look() -> dict[str, Any]:
    """Return the ledger when a look has just been taken: its seconds end now."""
    looks = ledger()["since_start"]["looks"]
    while (found := ledger())["since_start"]["looks"] == looks:
        time.sleep(0.001)
    return found


def requests_by_route() -> dict[str, Any]:
    """Return the requests that the program marks, by route."""
    runtime = runtime_of(AGENT)
    part = None if runtime is None else runtime.part(Markers)
    assert part is not None
    found: dict[str, Any] = encoded(part.explain().sections["requests"]())
    return found


def calls_a_second(seconds: float) -> float:
    """Return how often the program called its function in the last *seconds*."""
    latest = [at for at in calls if at >= calls[-1] - seconds]
    return len(latest) / (latest[-1] - latest[0]) if latest else 0.0


def waited_for_processor() -> float:
    """
    Return for how long threads were ready to run, and did not, as the kernel says.

    Source: Documentation/scheduler/sched-stats.rst, the second field.
    """
    found = 0.0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            found += int(path.read_text().split()[1]) * 1e-9
    return found


def main() -> None:
    fetch(step(jnp.ones((SIZE, SIZE)), jnp.ones((SIZE, SIZE)))[1])
    before, began = ledger_at_a_look()["since_start"], time.perf_counter()
    truth.clear()
    delayed = waited_for_processor()
    PROGRAMS[KIND]()
    found = ledger()
    whole = ledger_at_a_look()["since_start"]
    seconds = time.perf_counter() - began
    delayed = waited_for_processor() - delayed
    looked = whole["seconds"] - before["seconds"]
    # Of a state with few looks nothing may be left later, by the correction of all.
    none = {"seconds": 0.0}
    states = {
        name: (
            whole["states"].get(name, none)["seconds"]
            - before["states"].get(name, none)["seconds"]
        )
        / looked
        for name in before["states"] | whole["states"]
    }
    document = {
        "truth": {name: one / seconds for name, one in truth.items()},
        "states": states,
        "activities": {n: s / looked for n, s in whole["activities"].items()},
        "closed": looked / seconds,
        "delayed": delayed / seconds,
        "now": found["now"],
        "calling": encoded(
            calling(read({"time": found, "requests": requests_by_route()}))
        ),
        "calls": calls_a_second(found["rates_seconds"]),
        "place": {
            name: max(
                whole["places"], key=lambda p: (p["state"] == name, p["seconds"])
            )["place"]
            for name in states
        },
        "looks": whole["looks"] - before["looks"],
    }
    print(json.dumps(document))


main()
