"""Ledgers of time as an agent reports them, and what is found in them."""

from __future__ import annotations

from typing import Any

from jaxmon.symptoms.finding import Finding
from tests.reports import findings, function


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
