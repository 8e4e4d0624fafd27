"""Writes per-function costs to a file when the agent stops, for `jaxmon baseline`."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.functions import UNKNOWN, Function, FunctionTable
from jaxmon.agent.guard import log
from jaxmon.agent.sampling.exact import ExactTiming
from jaxmon.agent.versions import versions
from jaxmon.facts.functions import Program
from jaxmon.host.files import whole
from jaxmon.host.resources.process import scheduling


# A persistent cache would make compiles look cheap: the time saved is not known here.
_PHASES = ("trace", "lower", "backend_compile")
_FIGURES = (
    *("flops", "model_flops", "accessed_bytes", "argument_bytes", "output_bytes"),
    *("temporary_bytes", "peak_bytes", "code_bytes", "fusions", "instructions"),
)

# Of each distribution; see `jaxmon.preflight.baseline.record`.
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_DIGITS = 4

_numbers = itertools.count(1)


def write_at_end(
    context: Context,
    programs: Mapping[str, Program],
    timing: ExactTiming | None,
    directory: str,
) -> None:
    """Write the costs to a new file in *directory*, atomically; log a failure."""
    try:
        document = {
            "versions": versions(context.jax),
            "functions": dict(_functions(context.table, programs)),
        }
        if timing is not None:
            document["times"] = _times(timing)
        # A process may run several agents in turn, and a host several processes.
        path = Path(directory, f"{os.getpid()}-{next(_numbers)}.json")
        whole.write(path, json.dumps(document).encode(), follow=False)
    except Exception as error:  # noqa: BLE001 - contained: the program goes on
        interrupts.pass_on(error)
        log.warning("jaxmon could not write the baseline file: %s", error)


def _functions(
    table: FunctionTable, programs: Mapping[str, Program]
) -> Iterator[tuple[str, dict[str, float]]]:
    for function in table:
        if function.built and not function.internal and function.name != UNKNOWN:
            program = programs.get(function.name, Program())
            yield function.name, _figures(function, program)


def _figures(function: Function, program: Program) -> dict[str, float]:
    seconds = sum(function.phases[p].sum for p in _PHASES if p in function.phases)
    found = {
        "compiles": function.built,
        "recompiles": function.recompiled().total(),
        "compile_seconds": round(seconds, 4),
    }
    if program.programs:
        found["programs"] = program.programs
    for name in _FIGURES:
        if (value := getattr(program, name)) is not None:
            found[name] = int(value) if value == int(value) else value
    return found


def _times(timing: ExactTiming) -> dict[str, Any]:
    return {
        "waited": _waited(),
        "calibration": _quantiles(timing.calibration),
        "functions": {
            name: {
                shapes: {
                    "calls": len(times.wall),
                    "wall": _quantiles(times.wall),
                    "processor": _quantiles(times.processor),
                }
                for shapes, times in programs.items()
                if times.wall
            }
            for name, programs in timing.programs().items()
        },
    }


def _quantiles(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    if not ordered:
        return []
    last = len(ordered) - 1
    return [float(f"{ordered[round(q * last)]:.{_DIGITS}g}") for q in _QUANTILES]


def _waited() -> float | None:
    found = scheduling()
    waiting = None if found is None else found.waiting()
    return None if waiting is None else round(waiting, _DIGITS)
