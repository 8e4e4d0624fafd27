"""Writes per-function costs to a file when the agent stops, for `jaxmon baseline`."""

from __future__ import annotations

import itertools
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from jaxmon.agent.context import Context
from jaxmon.agent.functions import UNKNOWN, Function, FunctionTable
from jaxmon.agent.jaxlink import backends


# Executables are analysed on a thread; at exit the last ones may be queued.
_PATIENCE_SECONDS = 30.0

_BUILT = ("compiled", "cache_hit")
# A persistent cache would make compiles look cheap: the time saved is not known here.
_PHASES = ("trace", "lower", "backend_compile")
_FIGURES = (
    "flops",
    "accessed_bytes",
    "argument_bytes",
    "output_bytes",
    "temporary_bytes",
    "peak_bytes",
    "code_bytes",
    "fusions",
    "instructions",
)

_numbers = itertools.count(1)


class Programs(Protocol):
    """Analyses executables."""

    def finish(self, timeout: float) -> None:
        """Wait until queued executables have been analysed."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the statistics by function."""
        ...


def write_baseline(context: Context, programs: Programs | None, directory: str) -> None:
    """
    Write the costs to a new file in *directory*, atomically.

    Waits for queued executables, half a minute at most.

    Raises:
        OSError: the file cannot be written.
    """
    known: dict[str, Any] = {}
    if programs is not None:
        programs.finish(_PATIENCE_SECONDS)
        known = programs.snapshot()
    document = {
        "versions": _versions(context.jax),
        "functions": dict(_functions(context.table, known)),
    }
    # A process may run several agents in turn, and a host several processes.
    path = Path(directory, f"{os.getpid()}-{next(_numbers)}")
    path.write_text(json.dumps(document))
    path.rename(path.with_name(f"{path.name}.json"))


def _functions(
    table: FunctionTable, programs: dict[str, Any]
) -> Iterator[tuple[str, dict[str, float]]]:
    for function in table:
        compiles = sum(function.compiles[outcome].value for outcome in _BUILT)
        if compiles and not function.internal and function.name != UNKNOWN:
            facts = programs.get(function.name, {})
            yield function.name, _figures(function, compiles, facts)


def _figures(
    function: Function, compiles: int, facts: dict[str, Any]
) -> dict[str, float]:
    seconds = sum(function.phases[p].sum for p in _PHASES if p in function.phases)
    found = {
        "compiles": compiles,
        "recompiles": sum(one.value for one in list(function.recompiles.values())),
        "compile_seconds": round(seconds, 4),
    }
    if facts.get("programs"):
        found["programs"] = facts["programs"]
    for name in _FIGURES:
        if name in facts:
            value = facts[name]
            found[name] = int(value) if value == int(value) else value
    return found


def _versions(jax: Any) -> dict[str, str]:
    found = {
        "jax": jax.__version__,
        "jaxlib": backends.version() or "",
        "python": platform.python_version(),
    }
    # Only the program initialises backends.
    if backends.initialised(jax):
        found["platform"] = jax.default_backend()
        found["device"] = jax.local_devices()[0].device_kind
    return found
