"""
What a cached call of a jitted function pays: jaxmon and alternatives side by side.

All variants wrap one and the same jitted function and take turns, some hundred calls
each; a figure is the median of the differences to the bare function in the same
turn. An agent runs only while jaxmon's own variants do.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import repeat
from time import perf_counter, perf_counter_ns
from typing import Any

from benchmarks.rows import Row, paired


ROUNDS = 300
CALLS = 200
GOAL_NS = 75.0

Call = Callable[[Any], Any]
Surroundings = Callable[[], AbstractContextManager[object]]


def measure() -> list[Row]:
    """
    Return the bare call in nanoseconds and what each variant adds to it.
    """
    import jax

    argument = jax.numpy.ones(())
    with agent():
        counted = jax.jit(_work)
    bare = counted._jitted  # noqa: SLF001 - the same object, so that only we differ
    variants: dict[str, tuple[Call, Surroundings]] = {
        "jaxmon, call layer on": (counted, agent),
        "jaxmon, call layer off": (bare, lambda: agent(calls=False)),
        "plain Python wrapper": (_wrapper(bare), nullcontext),
        "prometheus_client Counter.inc()": (_counter(bare), nullcontext),
        "prometheus_client Histogram.time()": (_histogram(bare), nullcontext),
        "OpenTelemetry histogram.record()": (_opentelemetry(bare), nullcontext),
    }
    base: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        base.append(_nanoseconds(bare, argument))
        for name, (call, surroundings) in variants.items():
            with surroundings():
                times[name].append(_nanoseconds(call, argument))
    goals = {"jaxmon, call layer on": GOAL_NS}
    return [
        Row(
            name="cached call, bare jax.jit",
            value=statistics.median(base),
            best=min(base),
            unit="ns",
        ),
        *(
            Row(
                name=f"  added by {name}",
                value=paired(spent, base),
                best=min(spent) - min(base),
                unit="ns",
                at_most=goals.get(name),
            )
            for name, spent in times.items()
        ),
    ]


@contextmanager
def agent(*, calls: bool = True) -> Iterator[None]:
    """
    Run an agent that only hooks, and serves nobody, within the block.
    """
    import jaxmon

    jaxmon.instrument(port=None, socket=False, memory_interval=0, calls=calls)
    try:
        yield
    finally:
        jaxmon.uninstrument()


def _work(x: Any) -> Any:
    return x + 1


def _nanoseconds(call: Call, argument: Any) -> float:
    for _ in repeat(None, 20):
        call(argument)
    started = perf_counter_ns()
    for _ in repeat(None, CALLS):
        call(argument)
    return (perf_counter_ns() - started) / CALLS


def _wrapper(bare: Call) -> Call:
    def call(argument: Any) -> Any:
        return bare(argument)

    return call


def _counter(bare: Call) -> Call:
    from prometheus_client import CollectorRegistry, Counter

    counter = Counter("calls", "Calls.", ("function",), registry=CollectorRegistry())
    calls = counter.labels("work")

    def call(argument: Any) -> Any:
        calls.inc()
        return bare(argument)

    return call


def _histogram(bare: Call) -> Call:
    from prometheus_client import CollectorRegistry, Histogram

    seconds = Histogram("seconds", "Time.", ("function",), registry=CollectorRegistry())
    # It decorates Python functions only, so jax.jit's object needs one around it.
    timed: Call = seconds.labels("work").time()(_wrapper(bare))
    return timed


def _opentelemetry(bare: Call) -> Call:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    seconds = provider.get_meter("benchmark").create_histogram("seconds")
    attributes = {"function": "work"}

    def call(argument: Any) -> Any:
        started = perf_counter()
        try:
            return bare(argument)
        finally:
            seconds.record(perf_counter() - started, attributes)

    return call
