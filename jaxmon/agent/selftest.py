"""
``python -m jaxmon.agent.selftest``: check that all hooks attach to this JAX and count.

Prints one JSON document. `jaxmon doctor` runs it in a separate process on the CPU, so
that it does not occupy an accelerator.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from jaxmon.agent.agent import instrument, runtime_of, uninstrument, unsupported
from jaxmon.agent.jaxlink import names
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.process import Snapshot
from jaxmon.facts.record import encoded


_CALLS = 3


def run() -> dict[str, Any]:
    """
    Return the active hooks, miscounted calls as pairs of counted and expected, the
    state of the persistent cache, and the names that this JAX lacks; if the agent does
    not start in this Python, only why.
    """
    version = import_module("jax").__version__
    if (problem := unsupported()) is not None:
        return {"python": problem}
    # Before the hooks replace them.
    missing = [name._asdict() for name in names.missing(version)]
    agent = instrument(
        enabled=True, port=None, socket=False, calls=True, memory_interval=0
    )
    try:
        jax = sys.modules["jax"]

        def increment(x: float) -> float:
            return x + 1

        probe: Any = jax.jit(increment)
        for _ in range(_CALLS):
            probe(1.0)
        runtime = runtime_of(agent)
        found = Snapshot() if runtime is None else runtime.overview.snapshot()
        name = f"{__name__}.{increment.__qualname__}"
        statistics = next(
            (function for function in found.functions if function.name == name),
            FunctionFact(),
        )
        expected = {"calls": _CALLS, "hits": _CALLS - 1, "misses": 1}
        return {
            "jax": jax.__version__,
            "hooks": found.hooks,
            "miscounted": {
                what: [getattr(statistics, what), number]
                for what, number in expected.items()
                if getattr(statistics, what) != number
            },
            "cache": encoded(found.cache),
            "internal_errors": found.internal_errors,
            "missing": missing,
        }
    finally:
        uninstrument()


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
