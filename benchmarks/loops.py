"""
Programs that do one thing very often: the processor time of the whole process, all
threads included, with jaxmon and without.

Whole processes in turns, each of which measures its loop and what its threads still do
after it. Two processes of one program differ by some percent on a busy machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from time import process_time, sleep
from typing import Any

from benchmarks.rows import Row


PAIRS = 3
SECONDS = 300
GOAL_PERCENT, GOAL_COMPILING_PERCENT = 5.0, 3.0
_BARE, _WATCHED = "bare", "watched"
# For threads that still work on what the loop did.
_SETTLE_SECONDS = 1.0

Steps = Callable[[Iterable[int]], Iterable[int]]
Loop = Callable[[], object]


def measure() -> list[Row]:
    """Return what is added to each loop."""
    return [row for name in LOOPS for row in _compared(name)]


def _compared(name: str) -> Iterable[Row]:
    bare, watched = [], []
    for _ in range(PAIRS):
        bare.append(_seconds(name, _BARE))
        watched.append(_seconds(name, _WATCHED))
    usual = statistics.median(bare)
    more = [
        ours / theirs * 100 - 100 for ours, theirs in zip(watched, bare, strict=True)
    ]
    _, number, goal, each = LOOPS[name]
    added = statistics.median(more) / 100 * usual / number
    yield Row(name=name, value=usual / number * 1e6, unit=f"µs {each}")
    yield Row(
        name="  added by jaxmon",
        value=statistics.median(more),
        best=min(more),
        unit="%",
        at_most=goal,
        note=f"{added * 1e6:,.1f} µs; pairs {min(more):.1f} to {max(more):.1f} %",
    )


def _seconds(name: str, kind: str) -> float:
    command = [sys.executable, "-m", __spec__.name, name, kind]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return float(done.stdout.split()[-1])


def _recompiles(_: Steps) -> Loop:
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

    def loop() -> None:
        for size in range(2, 22):
            step({**kept, "last": jax.device_put(np.ones(size, np.float32))})

    step({**kept, "last": jax.device_put(np.ones(1, np.float32))})
    return loop


def _small_functions(_: Steps) -> Loop:
    import jax

    lines = [f"def f{number}(x):\n    return x * {number} + 1" for number in range(400)]
    functions: dict[str, Any] = {}
    exec(compile("\n".join(lines), "small_functions.py", "exec"), functions)  # noqa: S102 - of our own
    x = jax.numpy.ones(8)
    return lambda: [jax.jit(functions[f"f{number}"])(x) for number in range(400)]


def _warnings(_: Steps) -> Loop:
    import jax.numpy as jnp

    warnings.simplefilter("ignore")
    return lambda: [jnp.zeros(3, dtype="float64") for _ in range(8_000)]


def _device_puts(_: Steps) -> Loop:
    import jax
    import numpy as np

    x = np.ones(100, np.float32)

    def loop() -> None:
        for _ in range(100_000):
            jax.device_put(x)

    return loop


def _marked_reads(steps: Steps) -> Loop:
    """The loss of each step of a tenth of a millisecond is read."""
    import jax
    import jax.numpy as jnp

    @jax.jit  # type: ignore[untyped-decorator]
    def step(state: Any) -> Any:
        state = jax.lax.fori_loop(0, 4, lambda _, y: jnp.tanh(y @ y) / 64, state)
        return state, state.mean()

    start = jnp.ones((64, 64))
    step(start)

    def loop() -> None:
        state = start
        for _ in steps(range(20_000)):
            state, loss = step(state)
            float(loss)

    return loop


def _script(steps: Steps) -> Loop:
    """Compiles, transfers and marked steps whose loss is read."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    @jax.jit  # type: ignore[untyped-decorator]
    def step(weights: Any, batch: Any) -> Any:
        for _ in range(20):
            weights = jnp.tanh(weights @ batch) / 64
        return weights, weights.mean()

    batch = np.ones((64, 64), np.float32)

    def loop() -> None:
        for number in range(30):
            jax.jit(lambda x, number=number: jnp.tanh(x * number).sum())(batch)
        weights = jnp.ones((64, 64))
        for _ in steps(range(6_000)):
            weights, loss = step(weights, jax.device_put(batch))
            float(loss)

    return loop


LOOPS: dict[str, tuple[Callable[[Steps], Loop], int, float, str]] = {
    "20 recompiles of 1,500 leaves": (_recompiles, 20, GOAL_COMPILING_PERCENT, "each"),
    "400 small functions": (_small_functions, 400, GOAL_COMPILING_PERCENT, "each"),
    "8,000 hidden warnings of JAX": (_warnings, 8_000, GOAL_PERCENT, "each"),
    "100,000 calls of jax.device_put": (_device_puts, 100_000, GOAL_PERCENT, "each"),
    "20,000 marked steps, each with a read": (
        _marked_reads,
        20_000,
        GOAL_PERCENT,
        "each",
    ),
    "script with 30 compiles and 6,000 steps": (_script, 1, GOAL_PERCENT, ""),
}


def main(name: str, kind: str) -> None:
    """Print the seconds of processor time that a loop takes."""
    steps: Steps = iter
    if kind == _WATCHED:
        import jaxmon

        jaxmon.instrument(port=0, socket=False)
        steps = jaxmon.steps
    loop = LOOPS[name][0](steps)
    before = process_time()
    loop()
    sleep(_SETTLE_SECONDS)
    print(process_time() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
