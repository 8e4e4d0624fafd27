"""
Programs that do one thing very often: what jaxmon adds to their processor time.

Two processes of one program differ by more than what is measured here. So each program
is one process, and hooks are on and off in turns of a fraction of a second: what they
add is the median difference of the program's thread between neighbouring turns. What
the agent's threads take is exact, and measured first, while a loop runs as often as its
name says, and for a second after it, less what another second takes in which the
program does nothing. It is measured twice: what the first run takes more, from the
start of the agent on, is loading its parts, once in the life of a process.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from time import process_time, sleep, thread_time
from typing import Any, NamedTuple

from benchmarks.background import used
from benchmarks.rows import Row


SECONDS = 600
GOAL_PERCENT, GOAL_COMPILING_PERCENT = 5.0, 3.0
# For threads that still work on what the loop did.
_SETTLE_SECONDS = 1.0
_QUARTERS = 4

Steps = Callable[[Iterable[int]], Iterable[int]]
Run = Callable[[int], object]
"""Does what the loop does, so many times."""


class Loop(NamedTuple):
    """
    A program.

    Attributes:
        prepare: returns what runs it, given what marks its steps.
        times: how often it does its thing while threads are measured.
        turn: how often in a turn.
        turns: pairs of turns.
        goal: what may be added, in percent.
    """

    prepare: Callable[[Steps], Run]
    times: int
    turn: int
    turns: int
    goal: float


def measure() -> list[Row]:
    """Return what is added to each loop."""
    return [row for name in LOOPS for row in _rows(name)]


def _rows(name: str) -> Iterable[Row]:
    command = [sys.executable, "-m", __spec__.name, name]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    bare, once, threads, hooks = json.loads(done.stdout.splitlines()[-1])
    added = statistics.median(hooks)
    # Each fourth pair: how much the figure depends on chance.
    parts = [statistics.median(hooks[n::_QUARTERS]) for n in range(_QUARTERS)]
    low, high = ((one + threads) / bare * 100 for one in (min(parts), max(parts)))
    yield Row(name, bare * 1e6, "µs each")
    yield Row(
        "  added by jaxmon",
        (added + threads) / bare * 100,
        "%",
        at_most=LOOPS[name].goal,
        note=f"on the program's thread {added * 1e6:,.1f} µs, by threads of ours "
        f"{threads * 1e6:,.1f} µs; quarters of the turns {low:.1f} to {high:.1f} %; "
        f"in the first seconds of a process {once * 1e3:.0f} ms more, once",
    )


@functools.cache
def _array(*shape: int) -> Any:
    """Return the same array each time: how one is aligned decides if it is copied."""
    import numpy as np

    return np.ones(shape, np.float32)


def _recompiles(_: Steps) -> Run:
    """One leaf of 1,500 has another shape each time."""
    import jax
    import numpy as np

    kept = {
        f"layer{number}": jax.device_put(np.ones(4, np.float32))
        for number in range(1_499)
    }

    @jax.jit  # type: ignore[untyped-decorator]
    def step(tree: Any) -> Any:
        first = [tree[f"layer{number}"].sum() for number in range(300)]
        return tree["last"] * sum(first)

    sizes = itertools.count(1)

    def run(times: int) -> None:
        for size in itertools.islice(sizes, times):
            step({**kept, "last": jax.device_put(np.ones(size, np.float32))})

    run(2)
    return run


def _small_functions(_: Steps) -> Run:
    import jax

    x, numbers = jax.numpy.ones(8), itertools.count()

    def run(times: int) -> None:
        for number in itertools.islice(numbers, times):
            name = f"f{number}"
            made: dict[str, Any] = {}
            text = f"def {name}(x):\n    return x * {number} + 1"
            exec(compile(text, "small_functions.py", "exec"), made)  # noqa: S102 - of our own
            jax.jit(made[name])(x)

    run(4)
    return run


def _warnings(_: Steps) -> Run:
    import jax.numpy as jnp

    warnings.simplefilter("ignore")

    def run(times: int) -> None:
        for _ in range(times):
            jnp.zeros(3, dtype="float64")

    return run


def _device_puts(_: Steps) -> Run:
    import jax

    x = _array(100)

    def run(times: int) -> None:
        for _ in range(times):
            jax.device_put(x)

    return run


def _marked_reads(steps: Steps) -> Run:
    """The loss of each step of a tenth of a millisecond is read."""
    import jax
    import jax.numpy as jnp

    @jax.jit  # type: ignore[untyped-decorator]
    def step(state: Any) -> Any:
        state = jax.lax.fori_loop(0, 4, lambda _, y: jnp.tanh(y @ y) / 64, state)
        return state, state.mean()

    start = jnp.ones((64, 64))
    step(start)

    def run(times: int) -> None:
        state = start
        for _ in steps(range(times)):
            state, loss = step(state)
            float(loss)

    return run


def _script(steps: Steps) -> Run:
    """A compile, and two hundred marked steps with a transfer whose loss is read."""
    import jax
    import jax.numpy as jnp

    @jax.jit  # type: ignore[untyped-decorator]
    def step(weights: Any, batch: Any) -> Any:
        for _ in range(20):
            weights = jnp.tanh(weights @ batch) / 64
        return weights, weights.mean()

    batch, numbers = _array(64, 64), itertools.count()

    def run(times: int) -> None:
        for number in itertools.islice(numbers, times):
            jax.jit(lambda x, number=number: jnp.tanh(x * number).sum())(batch)
            weights = jnp.ones((64, 64))
            for _ in steps(range(200)):
                weights, loss = step(weights, jax.device_put(batch))
                float(loss)

    run(1)
    return run


LOOPS = {
    "20 recompiles of 1,500 leaves": Loop(
        _recompiles, 20, 1, 40, GOAL_COMPILING_PERCENT
    ),
    "400 small functions": Loop(_small_functions, 400, 4, 200, GOAL_COMPILING_PERCENT),
    "80,000 hidden warnings of JAX": Loop(_warnings, 80_000, 400, 200, GOAL_PERCENT),
    "100,000 calls of jax.device_put": Loop(
        _device_puts, 100_000, 1_000, 200, GOAL_PERCENT
    ),
    "40,000 marked steps, each with a read": Loop(
        _marked_reads, 40_000, 1_000, 100, GOAL_PERCENT
    ),
    "script, 30 times a compile and 200 steps": Loop(
        _script, 30, 1, 60, GOAL_COMPILING_PERCENT
    ),
}


class Switch:
    """Takes the hooks of the agent away from JAX, and puts them back."""

    def __init__(self) -> None:
        import jaxmon
        from jaxmon.agent.agent import runtime_of

        runtime = runtime_of(jaxmon.instrument(port=0, socket=False))
        if runtime is None or runtime.hooks.listeners is None:
            msg = "jaxmon is disabled here"
            raise RuntimeError(msg)
        self._listeners = runtime.hooks.listeners
        self._patches = runtime.hooks.patches.now()
        self._is_on = True

    def turn(self, *, on: bool) -> None:
        """Put them back, or take them away."""
        if on == self._is_on:
            return
        self._is_on = on
        for owner, name, original, ours in self._patches[:: 1 if on else -1]:
            setattr(owner, name, ours if on else original)
        if on:
            self._listeners.register()
        else:
            self._listeners.unregister()


def main(name: str) -> None:
    """
    Print seconds: for each time that the loop does its thing, of the whole process
    without hooks and our threads; of our threads once; of them each time; and of the
    program's thread because of hooks, for each pair of turns.
    """
    import jaxmon

    switch, loop = Switch(), LOOPS[name]
    run = loop.prepare(jaxmon.steps)
    # When the collector next looks at all that JAX has loaded, 50 ms or more, on
    # whichever thread, is chance.
    gc.collect()
    at_first, later = [_of_threads(run, loop.times) for _ in range(2)]

    # Each has jitted functions of its own, which count calls or do not.
    switch.turn(on=False)
    runs = {True: run, False: loop.prepare(iter)}
    whole, hooks = [], []
    for pair in range(loop.turns):
        took: dict[bool, float] = {}
        for on in (True, False) if pair % 2 else (False, True):
            switch.turn(on=on)
            began, ours = process_time(), sum(used().values())
            started = thread_time()
            runs[on](loop.turn)
            took[on] = (thread_time() - started) / loop.turn
            if not on:
                others = sum(used().values()) - ours
                whole.append((process_time() - began - others) / loop.turn)
        hooks.append(took[True] - took[False])
    switch.turn(on=True)
    once, threads = max(at_first - later, 0.0), later / loop.times
    print(json.dumps([statistics.median(whole), once, threads, hooks]))


def _of_threads(run: Run, times: int) -> float:
    """Return the processor seconds of our threads because of so many *times*."""
    before = sum(used().values())
    run(times)
    sleep(_SETTLE_SECONDS)
    settled = sum(used().values())
    sleep(_SETTLE_SECONDS)
    return 2 * settled - before - sum(used().values())


if __name__ == "__main__":
    main(*sys.argv[1:])
