"""Runs, as their summaries have them, of which a test changes some facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmon.screens.runs.summary import Facts, Run, build, parse


VERSIONS = {"jax": "0.10.2", "platform": "gpu", "device": "H100", "processor": "cpu0"}


def spread(middle: float, count: int = 50, noise: float = 0.1) -> dict[str, float]:
    """Return times around *middle* seconds, *noise* of it to either side."""
    low, high = middle * (1 - noise), middle * (1 + noise)
    return {"count": count, "low": low, "middle": middle, "high": high}


def function(**facts: Any) -> dict[str, Any]:
    """Return a function of a program that was called a thousand times."""
    return {
        "place": "train.py:7",
        "calls": 1000,
        "hits": 999,
        "misses": 1,
        "compiles": {"compiled": 1},
        "phases": {"backend_compile": {"seconds": 1.0}},
        "program": {"programs": 1, "fingerprint": "a", "flops": 1e6},
        "spreads": {"execution": spread(0.01), "dispatch": spread(0.0001)},
        **facts,
    }


def facts(
    functions: Mapping[str, Any],
    *,
    events: Any = (),
    versions: Mapping[str, str] = VERSIONS,
    **overview: Any,
) -> Facts:
    """Return what an agent reports on a program with *functions*."""
    process = {"pid": 7, "program": "python train.py", "now": 2e9, "started": 2e9 - 60}
    usual = {"waiting": 0.01, "work": spread(0.0002)}
    return Facts(
        overview={
            "process": {**process, "observed_seconds": 60.0, "jax": "0.10.2"},
            "functions": functions,
            "usual": usual,
            **overview,
        },
        events={"events": list(events)},
        environment={"versions": versions, "packages": {"jax": "0.10.2"}},
        families=(),
        host="host-1",
        worker="0",
        state="finished",
    )


def run(functions: Mapping[str, Any], **others: Any) -> Run:
    """Return the run that a reader of that summary sees."""
    return parse(build(facts(functions, **others)))
