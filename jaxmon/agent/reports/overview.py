"""
The debug overview as one document.

Read by the debug endpoints, `jaxmon explain` and the exit report. It contains what
labels must not: source lines, argument names, the command line.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxmon import disclosure
from jaxmon.agent.context import Context
from jaxmon.agent.families import is_active
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Part
from jaxmon.agent.reports.environment import environment
from jaxmon.agent.reports.json_types import plain
from jaxmon.clocks import monotonic, wall_time
from jaxmon.report import SCHEMA
from jaxmon.version import version


_MOST_FUNCTIONS = 500

# Sections that the document always has.
_SECTIONS = (
    "compiling",
    "requests",
    "steps",
    "checkpoints",
    "queues",
    "memory",
    "allocations",
    "cache",
    "signatures",
    "transfers",
    "tracing",
    "errors",
    "values",
    "slower",
    "warnings",
    "time",
    "run",
    "run_doubts",
    "usual",
    "charts",
)
_OF_MEMORY = ("memory", "allocations", "transfers")
_NOT_COUNTED = {"calls": None, "hits": None}
_OF_FUNCTION = (
    "cache",
    "program",
    "flops",
    "samples",
    "spreads",
    "history",
    "numerics",
    "determinism",
)


class Overview:
    """
    Combines the contributions of an agent's parts. Thread-safe; a few milliseconds.

    If a part fails, only its data is missing; the error is listed under ``problems``.

    Args:
        context: shared state of the parts.
        parts: the parts.
        hooks: the hooks that they have attached.
        started: when the agent started, in Unix and in monotonic time.
        exports: returns what did not arrive at receivers of OTLP.
    """

    def __init__(
        self,
        context: Context,
        parts: Sequence[Part],
        hooks: Hooks,
        started: tuple[float, float],
        exports: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._context = context
        self._parts = parts
        self._hooks = hooks
        self._started, self._began = started
        self._exports = exports

    def whole(self) -> dict[str, Any]:
        """Return the whole document, without events."""
        problems: dict[str, str] = {}
        return {
            "schema": SCHEMA,
            "process": self._process(),
            **self._functions(problems),
            **self._sections(_SECTIONS, problems),
            "exports": self._exports(),
            "hooks": self._hooks.active(),
            "internal_errors": self._context.guard.failures(),
            "problems": problems,
        }

    def functions(self) -> dict[str, Any]:
        """Return the functions by compile time, longest first."""
        problems: dict[str, str] = {}
        return {**self._functions(problems), "problems": problems}

    def memory(self) -> dict[str, Any]:
        """Return device memory, the source lines that allocated it, and transfers."""
        problems: dict[str, str] = {}
        return {**self._sections(_OF_MEMORY, problems), "problems": problems}

    def environment(self) -> dict[str, Any]:
        """Return interpreter, versions, flags and installed packages."""
        return environment(self._context.jax)

    def _process(self) -> dict[str, Any]:
        jax = self._context.jax
        return {
            "pid": os.getpid(),
            "program": disclosure.own_command()[:500],
            "started": self._started,
            "now": wall_time(),
            "observed_seconds": monotonic() - self._began,
            "jaxmon": version(),
            "jax": str(getattr(jax, "__version__", "")),
            "python": platform.python_version(),
        }

    def _functions(self, problems: dict[str, str]) -> dict[str, Any]:
        facts: dict[str, dict[str, Any]] = {key: {} for key in _OF_FUNCTION}
        for part in self._parts:
            for key, read in part.explain().functions.items():
                facts[key] = self._read(part, read, problems) or {}
        counted = facts.pop("counted", {})
        known = [f for f in self._context.table if is_active(f)]
        known.sort(key=_importance)
        found = {}
        for function in known[:_MOST_FUNCTIONS]:
            name = function.name
            found[name] = {
                **_figures(function),
                **(counted.get(name) or _NOT_COUNTED),
                **{key: of.get(name) or {} for key, of in facts.items()},
            }
        return {
            "functions": found,
            "functions_left_out": max(len(known) - _MOST_FUNCTIONS, 0),
        }

    def _sections(
        self, wanted: Iterable[str], problems: dict[str, str]
    ) -> dict[str, Any]:
        """Return the *wanted* sections, `None` for one whose part fails."""
        found: dict[str, Any] = {name: {} for name in wanted}
        for part in self._parts:
            for name, read in part.explain().sections.items():
                if name in found:
                    found[name] = self._read(part, read, problems)
        return found

    def _read(
        self,
        part: Part,
        read: Callable[[], Mapping[str, Any]],
        problems: dict[str, str],
    ) -> Any:
        """Return the result of *read* in JSON types, `None` if it fails."""
        try:
            return plain(read())
        except Exception as error:  # noqa: BLE001 - contained and counted
            problems[part.name] = disclosure.error(error)[:200]
            self._context.guard.failed(f"snapshot_{part.name}", stays_on=True)
            return None


def _importance(function: Function) -> tuple[float, int]:
    lost = sum(phase.sum for phase in list(function.phases.values()))
    return -lost, -(function.objects.calls + function.missed)


def _figures(function: Function) -> dict[str, Any]:
    return {
        "internal": function.internal,
        "place": function.place,
        "misses": function.missed,
        "compiles": _values(function.compiles),
        "recompiles": _values(function.recompiles),
        "errors": _values(function.errors),
        "phases": {
            phase: {"seconds": histogram.sum, "count": histogram.count}
            for phase, histogram in function.phases.copy().items()
        },
    }


def _values(tallies: dict[str, Any]) -> dict[str, int]:
    return {name: tally.value for name, tally in tallies.copy().items() if tally.value}
