"""
What a cached call of a jitted function pays: jaxmon and alternatives side by side.

All variants wrap one and the same jitted function and take turns, in another order each
time; a figure is the median of the differences to the bare function in the same turn.
An agent runs meanwhile, except that "call layer off" compares the bare function with
and without an agent that has none.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import repeat
from time import perf_counter, perf_counter_ns
from typing import Any

from benchmarks.rows import Row, added, agent, taken


ROUNDS = 1000
CALLS = 100
PAIRS = 200
GOAL_PERCENT = 2.0
GOAL_TIMES = 20.0
GOAL_ALONE_NS = 75.0
BARE = "bare"
OURS = "jaxmon, call layer on"
METER = "its meter alone"
HISTOGRAM = "prometheus_client Histogram.time()"

Call = Callable[[Any], Any]


def measure() -> list[Row]:
    """Return the bare call in nanoseconds and what each variant adds to it."""
    import jax

    from jaxmon.agent.counted import metered

    argument = jax.numpy.ones(())
    with agent():
        counted = jax.jit(_work)
        bare = counted._jitted  # noqa: SLF001 - the same object: only we differ
        variants: dict[str, Call] = {
            BARE: bare,
            OURS: counted,
            METER: metered(bare),
            "plain Python wrapper": _wrapper(bare),
            "prometheus_client Counter.inc()": _counter(bare),
            HISTOGRAM: _histogram(bare),
        }
        if find_spec("opentelemetry"):  # not in the environments of `make compat`
            variants["OpenTelemetry histogram.record()"] = _opentelemetry(bare)
        times = _in_turns(variants, argument)
    base = times.pop(BARE)
    rows = {
        name: added(f"  added by {name}", "ns", spent, base)
        for name, spent in times.items()
    }
    ours = rows[OURS].value
    return [
        taken("cached call, bare jax.jit", base, "ns"),
        _layer_off(bare, argument),
        *rows.values(),
        Row(
            "  of the bare call, jaxmon adds",
            100 * ours / statistics.median(base),
            "%",
            at_most=GOAL_PERCENT,
        ),
        Row(
            "  Histogram.time() adds as much, times",
            rows[HISTOGRAM].value / ours,
            "x",
            at_least=GOAL_TIMES,
        ),
        _layer_alone(),
    ]


def _layer_alone() -> Row:
    from jaxmon.agent.counted import CountedFunction

    nothing = partial(abs)  # in C, as JAX's object is
    counted = CountedFunction(nothing, lambda jitted: jitted)
    times = _in_turns({BARE: nothing, "counted": counted}, 1)
    return added(
        "  the layer alone, around a call of nothing",
        "ns",
        times["counted"],
        times[BARE],
        at_most=GOAL_ALONE_NS,
    )


def _in_turns(variants: dict[str, Call], argument: Any) -> dict[str, list[float]]:
    order = list(variants)
    shuffle = random.Random(1).shuffle  # noqa: S311 - an order, not a secret
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        shuffle(order)
        for name in order:
            times[name].append(_nanoseconds(variants[name], argument))
    return times


def _layer_off(bare: Call, argument: Any) -> Row:
    without, off = [], []
    for _ in range(PAIRS):
        # Both come after a start and stop, which leave the processor's caches cold.
        with agent(calls=False):
            pass
        without.append(_nanoseconds(bare, argument, warm=CALLS))
        with agent(calls=False):
            off.append(_nanoseconds(bare, argument, warm=CALLS))
    return added(
        "  added by jaxmon, call layer off",
        "ns",
        off,
        without,
        note="the same object is called; what is not 0 is the machine's noise",
    )


def _work(x: Any) -> Any:
    return x + 1


def _nanoseconds(call: Call, argument: Any, *, warm: int = 10) -> float:
    for _ in repeat(None, warm):
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
