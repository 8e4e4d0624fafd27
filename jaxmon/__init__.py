"""
Observability for JAX: compiles, cache hits, recompiles and device memory.

    import jaxmon

    jaxmon.instrument()

    for batch in jaxmon.steps(batches): ...
    with jaxmon.request("predict"): ...

Importing this package loads the standard library only; JAX is first touched by
`instrument`. Metrics are then served on ``http://127.0.0.1:9466/metrics``.

PYTEST_DONT_REWRITE: within `jaxmon run`, pytest finds this package loaded already, and
would otherwise warn that it is too late to rewrite the plugin's assertions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from jaxmon.agent import Agent as Agent
    from jaxmon.agent import instrument as instrument
    from jaxmon.agent import uninstrument as uninstrument
    from jaxmon.agent.checks.determinism import check_determinism as check_determinism
    from jaxmon.agent.checks.deviations import DeterminismCheck as DeterminismCheck
    from jaxmon.agent.checks.deviations import Deviation as Deviation
    from jaxmon.agent.checks.gradients import GradientCheck as GradientCheck
    from jaxmon.agent.checks.gradients import check_gradients as check_gradients
    from jaxmon.agent.tracking import log_to as log_to
    from jaxmon.agent.warmup import Warmed as Warmed
    from jaxmon.agent.warmup import warmup as warmup
    from jaxmon.errors import BudgetExceeded as BudgetExceeded
    from jaxmon.errors import JaxmonError as JaxmonError
    from jaxmon.errors import SettingsError as SettingsError
    from jaxmon.indicators.activities import activity as activity
    from jaxmon.indicators.batches import batch as batch
    from jaxmon.indicators.invocations import flush as flush
    from jaxmon.indicators.invocations import serverless as serverless
    from jaxmon.indicators.queues import Queue as Queue
    from jaxmon.indicators.queues import queue as queue
    from jaxmon.indicators.requests import request as request
    from jaxmon.indicators.steps import steps as steps
    from jaxmon.indicators.values import log_values as log_values
    from jaxmon.testing.budget import budget as budget

    __version__: str

_HOMES = {
    "Agent": "jaxmon.agent",
    "instrument": "jaxmon.agent",
    "uninstrument": "jaxmon.agent",
    "check_determinism": "jaxmon.agent.checks.determinism",
    "DeterminismCheck": "jaxmon.agent.checks.deviations",
    "Deviation": "jaxmon.agent.checks.deviations",
    "GradientCheck": "jaxmon.agent.checks.gradients",
    "check_gradients": "jaxmon.agent.checks.gradients",
    "log_to": "jaxmon.agent.tracking",
    "Warmed": "jaxmon.agent.warmup",
    "warmup": "jaxmon.agent.warmup",
    "BudgetExceeded": "jaxmon.errors",
    "JaxmonError": "jaxmon.errors",
    "SettingsError": "jaxmon.errors",
    "budget": "jaxmon.testing.budget",
    "activity": "jaxmon.indicators.activities",
    "batch": "jaxmon.indicators.batches",
    "Queue": "jaxmon.indicators.queues",
    "flush": "jaxmon.indicators.invocations",
    "serverless": "jaxmon.indicators.invocations",
    "queue": "jaxmon.indicators.queues",
    "request": "jaxmon.indicators.requests",
    "steps": "jaxmon.indicators.steps",
    "log_values": "jaxmon.indicators.values",
}

__all__ = [
    "Agent",
    "BudgetExceeded",
    "DeterminismCheck",
    "Deviation",
    "GradientCheck",
    "JaxmonError",
    "Queue",
    "SettingsError",
    "Warmed",
    "activity",
    "batch",
    "budget",
    "check_determinism",
    "check_gradients",
    "flush",
    "instrument",
    "log_to",
    "log_values",
    "queue",
    "request",
    "serverless",
    "steps",
    "uninstrument",
    "warmup",
]


if not TYPE_CHECKING:  # a type checker would take any name for known

    def __getattr__(name: str) -> object:
        """Load a public name on first use."""
        from importlib import import_module  # noqa: PLC0415 - keeps the import cheap

        if name == "__version__":
            return import_module("jaxmon.version").version()
        try:
            home = _HOMES[name]
        except KeyError:
            msg = f"module 'jaxmon' has no attribute {name!r}"
            raise AttributeError(msg) from None
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "__version__"])
