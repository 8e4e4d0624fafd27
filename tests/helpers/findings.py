"""The figures and ledgers of a program, and the findings on them."""

from typing import Any, TypeAlias

from jaxmon.facts.process import read
from jaxmon.limits import Limits
from jaxmon.preflight.doctor import Check
from jaxmon.symptoms.findings import find
from jaxmon.symptoms.symptom import Finding


GIB = 1 << 30

Case: TypeAlias = tuple[dict[str, Any], list[Any], str, tuple[str, ...], str]
"""Parts that are different, events; finding, evidence and action to expect."""

HEALTHY: dict[str, Any] = {
    "process": {"observed_seconds": 600.0, "now": 1000.0},
    "functions": {
        "train.step": {
            "calls": 9_000,
            "hits": 8_998,
            "misses": 2,
            "compiles": {"compiled": 2},
            "recompiles": {"shape": 1},
            "phases": {"backend_compile": {"seconds": 4.0, "count": 2}},
        }
    },
    "memory": {
        "devices": [
            {"device": 0, "in_use": 40 * GIB, "peak": 70 * GIB, "limit": 80 * GIB}
        ]
    },
    "allocations": {
        "peaks": [
            {
                "device": 0,
                "lines": [{"file": "train.py", "line": 9, "bytes": 40 * GIB}],
            },
            {
                "device": 3,
                "lines": [{"file": "train.py", "line": 9, "bytes": 30 * GIB}],
            },
        ]
    },
    "transfers": {
        "lines": [
            {"file": "log.py", "line": 3, "direction": "device_to_host", "count": 600}
        ]
    },
    "cache": {"enabled": True, "directory": "/cache", "requests": {"hit": 2}},
}


def findings(
    events: list[dict[str, Any]] | None = None,
    limits: Limits | None = None,
    /,
    **parts: Any,
) -> list[Finding]:
    """Return the findings on a healthy program of which *parts* are different."""
    return find(read({**HEALTHY, **parts}, {"events": events or []}, limits))


def function(**figures: Any) -> dict[str, Any]:
    """Return the functions of a healthy program, of which one has other *figures*."""
    return {"train.step": {**HEALTHY["functions"]["train.step"], **figures}}


def compiled(count: int, seconds: float, **more: Any) -> dict[str, Any]:
    """Return a function that was compiled so often, for so long in all."""
    phases = {"backend_compile": {"seconds": seconds, "count": count}}
    return function(compiles={"compiled": count}, recompiles={}, phases=phases, **more)


def operation(count: int, seconds: float, **recompiles: int) -> dict[str, Any]:
    """Return the same of an operation outside of jit."""
    phases = {"lower": {"seconds": seconds, "count": count}}
    facts = {"compiles": {"compiled": count}, "recompiles": recompiles}
    return {"internal": True, "phases": phases, **facts}


def told(case: Case) -> tuple[str, tuple[str, ...], str]:
    """Return verdict, evidence and advice of the one finding of *case*."""
    (found,) = findings(case[1], **case[0])
    return found.verdict, found.evidence, found.action


def recompiling(function: str = "train.step", **more: Any) -> dict[str, Any]:
    """Return the overview of a process, of which one function has a fault."""
    return {
        "schema": 1,
        "process": {"pid": 7, "observed_seconds": 100.0, "now": 1000.0},
        "functions": {
            function: {
                "calls": 100,
                "hits": 60,
                "misses": 40,
                "compiles": {"compiled": 40},
                "recompiles": {"shape": 39},
                "phases": {"backend_compile": {"seconds": 40.0, "count": 40}},
                **more,
            }
        },
    }


SECONDS = 600.0


def ledger(states: dict[str, float], **now: Any) -> dict[str, Any]:
    """Return a ledger of ten minutes with these shares, each on a line of its own."""
    period = {
        "seconds": SECONDS,
        "looks": 6_000,
        "states": {
            state: {"seconds": share * SECONDS, "error_seconds": 1.0}
            for state, share in states.items()
        },
        "places": [
            {"state": state, "place": f"{state}.py:7", "seconds": share * SECONDS}
            for state, share in states.items()
        ],
    }
    return {"since_start": period, "now": now}


def computing(seconds: float) -> dict[str, Any]:
    """Return a function that the device has computed for *seconds*."""
    return function(
        compiles={"compiled": 1},
        recompiles={},
        samples={"execution_mean": seconds / 9_000, "samples": 500},
    )


NO_MORE: dict[str, Any] = {"functions": computing(0.0), "transfers": {}}


def found(states: dict[str, float], **parts: Any) -> list[Finding]:
    return findings(time=ledger(states), **{**NO_MORE, **parts})


def by_status(findings: list[Check]) -> dict[str, list[str]]:
    """Return the texts of *findings* by status."""
    found: dict[str, list[str]] = {}
    for one in findings:
        found.setdefault(one.status, []).append(one.text)
    return found


def recompile(text: str, **details: Any) -> dict[str, Any]:
    """Return the event of a recompile of ``train.step``."""
    return {
        "kind": "recompile",
        "function": "train.step",
        "details": {"cause": "shape", "differences": [{"text": text}], **details},
    }
