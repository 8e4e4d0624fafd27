"""
What reading programs and watching the persistent cache costs.

On the compiling thread: what `take` and the observers of the cache add to a compile
of milliseconds or minutes. Off it: reading an executable, as a share of compiling it,
most of which holds the interpreter's lock.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.compiles import mlp
from benchmarks.rows import Row, seconds, taken


ROUNDS = 2000
GOAL_MICROSECONDS = 20.0
GOAL_PERCENT = 10.0
ENTRIES = 10_000


def measure() -> list[Row]:
    """Return rows for the compiling thread, for reading, and for a large directory."""
    import jax

    from jaxmon.agent import context
    from jaxmon.settings import Settings

    shared = context.context_of(jax, Settings())
    return [*_handing_over(shared), *_watching(shared), *_reading(), _listing()]


def _handing_over(shared: Any) -> list[Row]:
    from jaxmon.agent.compiles.programs import Programs
    from jaxmon.agent.flops.part import UtilizationPart
    from jaxmon.agent.functions import CompilePhases
    from jaxmon.agent.loaded_programs import LoadedPrograms

    phases = CompilePhases(0.1, 0.1, 1.0, loaded=False)
    programs = Programs(shared, LoadedPrograms(shared.jax), UtilizationPart(shared))
    programs.start()
    executable, _, _ = _compiled(1)
    function = shared.table.named("benchmark")
    # No more than the queue has room for: refusing is quicker.
    take = seconds(lambda: programs.take(function, executable, phases), 50)
    programs.stop()
    return [_row("compiling thread: hand a program over", take)]


def _watching(shared: Any) -> list[Row]:
    from jaxmon.agent.cache.part import PersistentCache

    with tempfile.TemporaryDirectory() as directory:
        jax = shared.jax
        before = jax.config.jax_compilation_cache_dir
        jax.config.update("jax_compilation_cache_dir", directory)
        cache = PersistentCache(shared)
        cache.start()
        function = shared.table.named("benchmark")

        def missed() -> None:
            _write(cache)
            cache.stored()
            cache.looked_up(function, hit=False)

        hits = seconds(lambda: cache.looked_up(function, hit=True), ROUNDS)
        misses = seconds(missed, ROUNDS)
        page = seconds(cache.collect, ROUNDS)
        cache.stop()
        jax.config.update("jax_compilation_cache_dir", before)
    return [
        _row("compiling thread: a hit of the cache", hits),
        _row("compiling thread: a miss that is written", misses),
        taken("scrape: figures of the cache", page, "us", scale=1e6),
    ]


def _write(cache: Any) -> None:
    """
    Stand where JAX calls ``_cache_write``, which is seen by its caller's variables.
    """
    cache_key = "jit_benchmark-0"  # noqa: F841 - read from this frame, like the rest
    module_name = "jit_benchmark"  # noqa: F841
    compile_time = 2.0  # noqa: F841
    host_callbacks = ()  # noqa: F841
    cache.on_write(sys._getframe(), None)  # noqa: SLF001


def _reading() -> list[Row]:
    import jax

    from jaxmon.agent.compiles.hlo import read_hlo
    from jaxmon.agent.jaxlink import executables, flops
    from jaxmon.agent.jaxlink.source_lines import SourceLineFinder

    rows = []
    for layers in (4, 24):
        executable, jaxpr, compiled_in = _compiled(layers)
        lines = SourceLineFinder(jax)
        printing = executables.printing(jax)

        def read(executable: Any = executable, printing: Any = printing) -> None:
            read_hlo(executables.texts(executable, printing), comparable=True)
            executables.facts(executable)

        def count(jaxpr: Any = jaxpr, lines: Any = lines) -> None:
            flops.count(jax, jaxpr, lines)

        for what, work in (("read", read), ("count the FLOPs of", count)):
            spent = seconds(work, 20)
            rows.append(
                taken(
                    f"off thread: {what} a {layers}-layer training step",
                    spent,
                    "%",
                    scale=100 / compiled_in,
                    at_most=GOAL_PERCENT,
                    note=f"{statistics.median(spent) * 1e3:.1f} ms, of its compile",
                )
            )
    return rows


def _listing() -> Row:
    from jaxmon.agent.cache.directory import scan

    with tempfile.TemporaryDirectory() as directory:
        for number in range(ENTRIES):
            Path(directory, f"jit_f-{number}-cache").touch()
        spent = seconds(lambda: scan(directory, sought={}, writes=True), 5)
    return taken(
        f"off thread: look at {ENTRIES:,} entries",
        spent,
        "ms",
        scale=1e3,
        note="every 30 s, or less often: at most 1 % of the time of its thread",
    )


def _compiled(layers: int) -> tuple[Any, Any, float]:
    """Return an executable, its jaxpr, and the seconds that it took from the start."""
    import jax

    step, weights, batch = mlp(layers)
    started = perf_counter()
    traced = jax.jit(step).trace(weights, batch)
    compiled = traced.lower().compile()
    seconds = perf_counter() - started
    return compiled.runtime_executable(), traced.jaxpr.jaxpr, seconds


def _row(name: str, times: list[float]) -> Row:
    return taken(name, times, "us", scale=1e6, at_most=GOAL_MICROSECONDS)
