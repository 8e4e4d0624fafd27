"""What sampling costs: a call between samples, the share of a core, a caller's loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import cycle, islice, repeat
from time import perf_counter, perf_counter_ns
from typing import Any

from benchmarks.rows import Row, added, agent, taken


ROUNDS = 300
CALLS = 100
SECONDS = 6.0
TURNS = 16

# Of one core, what the agent promises to stay below.
GOAL_SHARE = 0.5


def measure() -> list[Row]:
    """
    Return the cost of a cached call with sampling on and off, the share of one core at
    rate 1 for several numbers of functions, and the time of a loop that is sampled.
    """
    return [
        _between_samples(),
        *map(_share, (1, 20, 200)),
        _loop(),
        *(_truth(repeats, calls) for repeats, calls in ((5, 600), (50, 60), (500, 12))),
    ]


def _between_samples() -> Row:
    import jax

    argument = jax.numpy.ones(())
    with agent(sample_rate=0):
        off = jax.jit(lambda x: x + 1)
        off(argument)
    with agent(sample_rate=1):
        on = jax.jit(lambda x: x + 1)
        on(argument)
        times: dict[int, list[float]] = {0: [], 1: []}
        for turn in range(ROUNDS):
            for which in (turn % 2, 1 - turn % 2):
                times[which].append(_nanoseconds((off, on)[which], argument))
    return added("cached call, added by sampling at rate 1", "ns", times[1], times[0])


def _share(functions: int) -> Row:
    import jax

    from tests.helpers import inside

    argument = jax.numpy.ones(())
    with agent(sample_rate=1) as running:
        jitted = []
        for number in range(functions):

            def work(x: Any) -> Any:
                return x + 1

            work.__qualname__ = f"work{number}"
            jitted.append(jax.jit(work))
        for call in jitted:
            call(argument)
        sampling = inside.sampling(running)
        before, started = sampling.spent, perf_counter()
        while perf_counter() - started < SECONDS:
            for call in islice(cycle(jitted), 1000):
                call(argument)
            time.sleep(0.001)
        spent, lasted = sampling.spent - before, perf_counter() - started
        samples = sum(f.samples for f in sampling.snapshot().values())
    return Row(
        f"share of a core, {functions} function{'s' * (functions > 1)}",
        100 * spent / lasted,
        "%",
        at_most=GOAL_SHARE,
        note=f"{samples / lasted:.1f} samples/s",
    )


def _loop() -> Row:
    import jax

    def step(x: Any) -> Any:
        return jax.lax.fori_loop(0, 2000, lambda _, y: jax.numpy.tanh(y @ y), x)

    argument = jax.numpy.ones((32, 32))
    times: dict[float, list[float]] = {0: [], 1: []}
    for turn in range(TURNS):
        for rate in (turn % 2, 1 - turn % 2):
            with agent(sample_rate=rate):
                sampled = jax.jit(step)
                jax.block_until_ready(sampled(argument))
                started, x = perf_counter(), argument
                for _ in repeat(None, 300):
                    x = sampled(x)
                jax.block_until_ready(x)
                times[rate].append(perf_counter() - started)
    ratios = [on / off for on, off in zip(times[1], times[0], strict=True)]
    return taken(
        "asynchronous loop, sampled, times as long",
        ratios,
        "x",
        note=f"{1000 * statistics.median(times[0]) / 300:.1f} ms/step",
    )


def _truth(repeats: int, calls: int) -> Row:
    """
    Return the median of the sampled execution times of an asynchronous loop over the
    time that the loop took for each of its calls, waited for at its end.
    """
    import jax

    from tests.helpers import inside

    def chain(x: Any) -> Any:
        return jax.lax.fori_loop(
            0, repeats, lambda _, y: jax.numpy.tanh(y @ x) / 300, x
        )

    x = jax.numpy.ones((300, 300))
    truth = []
    with agent(sample_rate=50) as running:
        jitted: Any = jax.jit(chain)
        jax.block_until_ready(jitted(x))
        for _ in range(TURNS):
            started, y = perf_counter(), x
            for _ in repeat(None, calls):
                y = jitted(y)
            jax.block_until_ready(y)
            truth.append((perf_counter() - started) / calls)
        time.sleep(0.5)
        name = f"{chain.__module__}.{chain.__qualname__}"
        sampled = inside.sampling(running).snapshot()[name]
    each = statistics.median(truth)
    return Row(
        f"sampled execution over truth, {each * 1e3:.1f} ms",
        (sampled.execution_seconds or 0.0) / each,
        "x",
        at_most=1.1,
        note=f"{sampled.samples} samples; goal 0.9 to 1.1",
    )


def _nanoseconds(call: Callable[[Any], Any], argument: Any) -> float:
    started = perf_counter_ns()
    for _ in repeat(None, CALLS):
        call(argument)
    return (perf_counter_ns() - started) / CALLS
