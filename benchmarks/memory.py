"""What a look at live arrays and at the lines that hold them takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.rows import Row, seconds, taken


SIZES = (1_000, 10_000, 100_000)
ROUNDS = 5
# Lines that allocate, each many sizes: more stacks than a program has.
LINES = 300


def measure() -> list[Row]:
    """Return milliseconds by the number of live arrays."""
    import jax

    import jaxmon

    agent = jaxmon.instrument(port=0, socket=False, memory_interval=0)
    try:
        return [
            row
            for name, makers in (
                ("", _one_line(jax)),
                (f" of {LINES} lines, each of a size of its own", _many_lines(jax)),
            )
            for row in _sizes(jax, agent, name, makers)
        ]
    finally:
        jaxmon.uninstrument()


def _sizes(
    jax: Any, agent: Any, name: str, makers: list[Callable[[int], Any]]
) -> Iterator[Row]:
    from jaxmon.agent.memory import profile as pprof
    from tests.helpers import inside

    kept: list[Any] = []
    for size in SIZES:
        while len(kept) < size:
            kept.append(makers[len(kept) % len(makers)](len(kept)))
        data = jax.profiler.device_memory_profile()
        samples = len(pprof.samples_of(data).samples)
        goal = 50.0 if size == SIZES[-1] and not name else None
        for what, work, at_most in (
            ("counts and bytes by dtype", inside.memory(agent).take_snapshot, None),
            ("JAX's memory profile", jax.profiler.device_memory_profile, None),
            ("reading it", lambda data=data: pprof.samples_of(data), goal),
            ("all of Agent.memory()", agent.memory, None),
        ):
            yield taken(
                f"{size:,} arrays: {what}" if what[0] == "c" else f"  {what}",
                seconds(work, ROUNDS),
                "ms",
                scale=1e3,
                at_most=at_most,
                note=f"{samples:,} samples{name}" if what == "reading it" else "",
            )


def _one_line(jax: Any) -> list[Callable[[int], Any]]:
    import numpy as np

    device = jax.devices()[0]
    return [lambda _: jax.device_put(np.float32(1), device)]


def _many_lines(jax: Any) -> list[Callable[[int], Any]]:
    import numpy as np

    source = "\n".join(
        f"def make_{at}(n): return put(empty(n % 1999, uint8), device)"
        for at in range(LINES)
    )
    names: dict[str, Any] = {
        "put": jax.device_put,
        "empty": np.empty,
        "uint8": np.uint8,
        "device": jax.devices()[0],
    }
    exec(compile(source, "many.py", "exec"), names)  # noqa: S102 - hundreds of lines
    return [names[f"make_{at}"] for at in range(LINES)]
