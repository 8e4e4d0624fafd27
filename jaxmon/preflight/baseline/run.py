"""Runs a command under an agent that records its measures, as often as needed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TextIO, TypeAlias

from jaxmon.errors import BaselineError
from jaxmon.host.bootstrap import environment
from jaxmon.host.files import whole as scratch
from jaxmon.preflight.baseline.compare import CostComparison, compare, critical
from jaxmon.preflight.baseline.record import (
    COMPILE_SECONDS,
    Baseline,
    Tolerance,
    from_processes,
    from_runs,
)


# The agent of a recorded process serves no endpoint, reads every program, and times
# every call.
_SETTINGS = {
    "enabled": True,
    "port": None,
    "socket": False,
    "calls": True,
    "max_functions": 10_000,
    "memory_interval": 0,
    "memory_lines_interval": 0,
    "programs": True,
    "sample_rate": 0,
    "history": False,
    "transfers": False,
    "nonfinite": False,
    "shadow_interval": 0,
    "report": False,
    "summary_dir": None,
}
# What a compile takes is only seen where it happens.
_WITHOUT_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "false"}

Runner: TypeAlias = Callable[[int], Baseline]
"""Runs a command and returns its measures; its argument counts the runs from 0."""

_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run(
    command: Sequence[str], python: Sequence[str] = (sys.executable,)
) -> tuple[int, Baseline]:
    """Run *command*, by *python* if it is a script, ``-m`` or ``-c``, and measure."""
    if command[0] in ("-m", "-c") or command[0].endswith(".py"):
        command = [*python, *command]
    with scratch.directory("jaxmon-baseline-") as directory:
        settings = {**_SETTINGS, "figures_dir": str(directory)}
        code = instrumented(command, settings, _WITHOUT_CACHE)
        written = sorted(directory.glob("*.json"))
        record = from_processes(json.loads(path.read_bytes()) for path in written)
    return code, record


def instrumented(
    command: Sequence[str],
    settings: Mapping[str, Any],
    variables: Mapping[str, str] = MappingProxyType({}),
    stdout: TextIO | None = None,
) -> int:
    """Run *command* under an agent with *settings*; return its exit code."""
    program = shutil.which(command[0])
    if program is None:
        msg = f"program {command[0]!r} not found; give a script, -m, -c or a program"
        raise BaselineError(msg)
    environ = {**environment(os.environ, settings), **variables}
    process = subprocess.Popen(  # noqa: S603 - what we are asked to run
        command, executable=program, env=environ, stdout=stdout
    )
    with _signals_of(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _signals_of(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Leave Ctrl-C to *process*, which gets it too; forward what only we receive."""
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    for forwarded in _FORWARDED:
        before[forwarded] = signal.signal(
            forwarded, lambda number, _: process.send_signal(number)
        )
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def compare_runs(
    old: Baseline | Runner,
    new: Runner,
    runs: int,
    allowed: Mapping[str, Tolerance | None],
) -> CostComparison:
    """
    Compare *new* with *old*, alternately if *old* is a command too, until no further
    run could change that nothing is slower, mostly after one, or could show it.
    """
    before: list[Baseline] = []
    after: list[Baseline] = []
    while True:
        if isinstance(old, Baseline):
            baseline, planned = old, (len(old.runs), runs)
        else:
            before.append(old(len(before)))
            baseline, planned = from_runs(before), (runs, runs)
        after.append(new(len(after)))
        found = compare(baseline, from_runs(after), allowed, runs=planned)
        # Compiles may not take as long in another run; more runs may show run times.
        slow = any(
            change.measure == COMPILE_SECONDS
            for change in (*found.worse, *found.unclear)
        )
        unclear = any(change.verdict == "unclear" for change in found.times)
        helps = slow or (unclear and critical(*planned) >= 0)
        if len(after) >= runs or not helps:
            return found
