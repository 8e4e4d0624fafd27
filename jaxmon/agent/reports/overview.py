"""
What a person who looks into this process wants to know, as one document.

The debug pages, `jaxmon explain` and the exit report read it. It holds what labels
must not: source lines, names of arguments, the command line.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.parts import Parts
from jaxmon.agent.reports.collect import is_active
from jaxmon.agent.reports.json_types import plain
from jaxmon.report import SCHEMA
from jaxmon.version import version


_MOST_FUNCTIONS = 500

# Parts that tell something about each function, and under which name.
_BY_FUNCTION = {
    "programs": "program",
    "sampling": "samples",
    "numerics": "numerics",
    "determinism": "determinism",
}


class Overview:
    """
    Puts together what the parts of one agent know. Any thread; a few milliseconds.

    A part that fails costs its own figures: its error stands under ``problems``.
    """

    def __init__(self, parts: Parts, hooks: Hooks) -> None:
        self._parts = parts
        self._hooks = hooks
        self._context = parts.context
        self._started, self._began = time.time(), time.monotonic()

    def whole(self) -> dict[str, Any]:
        """Return everything but events."""
        problems: dict[str, str] = {}
        running, oldest = self._hooks.compiles.in_progress()
        return {
            "schema": SCHEMA,
            "process": self._process(),
            "compiling": {"count": running, "oldest_seconds": oldest},
            **self._functions(problems),
            **{
                name: self._of(name, problems)
                for name in ("memory", "allocations", "cache", "transfers", "errors")
            },
            "hooks": self._hooks.active(),
            "internal_errors": self._context.guard.failures(),
            "problems": problems,
        }

    def functions(self) -> dict[str, Any]:
        """Return the functions by time lost to compiles, longest first."""
        problems: dict[str, str] = {}
        return {**self._functions(problems), "problems": problems}

    def memory(self) -> dict[str, Any]:
        """
        Return what the devices hold, which lines allocated it, and what moves there.
        """
        problems: dict[str, str] = {}
        names = ("memory", "allocations", "transfers")
        found = {name: self._of(name, problems) for name in names}
        return {**found, "problems": problems}

    def _process(self) -> dict[str, Any]:
        jax = self._context.jax
        return {
            "pid": os.getpid(),
            "program": _program(),
            "started": self._started,
            "now": time.time(),
            "observed_seconds": time.monotonic() - self._began,
            "jaxmon": version(),
            "jax": str(getattr(jax, "__version__", "")),
            "python": platform.python_version(),
        }

    def _functions(self, problems: dict[str, str]) -> dict[str, Any]:
        hits_known = self._hooks.is_active("misses")
        told = {key: self._of(name, problems, {}) for name, key in _BY_FUNCTION.items()}
        cache = self._of("cache", problems, {}).get("functions") or {}
        known = [f for f in self._context.table if is_active(f)]
        known.sort(key=_importance)
        found = {}
        for function in known[:_MOST_FUNCTIONS]:
            figures = _figures(function, hits_known=hits_known)
            figures["cache"] = cache.get(function.name) or {}
            for key, facts in told.items():
                figures[key] = facts.get(function.name) or {}
            found[function.name] = figures
        return {
            "functions": found,
            "functions_left_out": max(len(known) - _MOST_FUNCTIONS, 0),
        }

    def _of(self, name: str, problems: dict[str, str], otherwise: Any = None) -> Any:
        """Return the snapshot of the part *name*; *otherwise* when that fails."""
        snapshot: Callable[[], dict[str, Any]] = self._parts.by_name[name].snapshot
        try:
            return plain(snapshot())
        except Exception as error:  # noqa: BLE001 - contained and counted
            problems[name] = f"{type(error).__name__}: {error}"[:200]
            self._context.guard.failed(f"snapshot_{name}", stays_on=True)
            return otherwise


def _importance(function: Function) -> tuple[float, int]:
    lost = sum(phase.sum for phase in list(function.phases.values()))
    return -lost, -(function.entered.value + function.missed)


def _figures(function: Function, *, hits_known: bool) -> dict[str, Any]:
    """Return the figures of *function*; calls and hits only where they are counted."""
    calls, hits = function.calls_and_hits() if function.counted else (None, None)
    return {
        "internal": function.internal,
        "calls": calls,
        "hits": hits if hits_known else None,
        "misses": function.missed,
        "compiles": _values(function.compiles),
        "recompiles": _values(function.recompiles),
        "errors": _values(function.errors),
        "phases": {
            phase: {"seconds": histogram.sum, "count": histogram.count}
            for phase, histogram in list(function.phases.items())
        },
    }


def _values(tallies: dict[str, Any]) -> dict[str, int]:
    return {name: tally.value for name, tally in list(tallies.items()) if tally.value}


def _program() -> str:
    """Return the command line, the interpreter without its directory."""
    command, *arguments = sys.orig_argv or [""]
    words = [os.path.basename(command), *arguments]  # noqa: PTH119 - a text, no file
    return " ".join(words)[:500]
