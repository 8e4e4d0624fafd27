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

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from jaxmon.agent import Agent as Agent
    from jaxmon.agent import instrument as instrument
    from jaxmon.agent import uninstrument as uninstrument
    from jaxmon.agent.checks.determinism import GradientCheck as GradientCheck
    from jaxmon.agent.checks.determinism import check_determinism as check_determinism
    from jaxmon.agent.checks.determinism import check_gradients as check_gradients
    from jaxmon.agent.checks.results import DeterminismCheck as DeterminismCheck
    from jaxmon.agent.checks.results import Deviation as Deviation
    from jaxmon.agent.tracking import log_to as log_to
    from jaxmon.agent.warmup import Warmed as Warmed
    from jaxmon.agent.warmup import ready as ready
    from jaxmon.agent.warmup import warmup as warmup
    from jaxmon.errors import BudgetExceeded as BudgetExceeded
    from jaxmon.errors import CompiledAfterReady as CompiledAfterReady
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
    name: home
    for home, names in {
        "jaxmon.agent": ("Agent", "instrument", "uninstrument"),
        "jaxmon.agent.checks.determinism": (
            *("GradientCheck", "check_determinism", "check_gradients"),
        ),
        "jaxmon.agent.checks.results": ("DeterminismCheck", "Deviation"),
        "jaxmon.agent.tracking": ("log_to",),
        "jaxmon.agent.warmup": ("Warmed", "ready", "warmup"),
        "jaxmon.errors": (
            *("BudgetExceeded", "CompiledAfterReady", "JaxmonError", "SettingsError"),
        ),
        "jaxmon.indicators.activities": ("activity",),
        "jaxmon.indicators.batches": ("batch",),
        "jaxmon.indicators.invocations": ("flush", "serverless"),
        "jaxmon.indicators.queues": ("Queue", "queue"),
        "jaxmon.indicators.requests": ("request",),
        "jaxmon.indicators.steps": ("steps",),
        "jaxmon.indicators.values": ("log_values",),
        "jaxmon.testing.budget": ("budget",),
    }.items()
    for name in names
}
__all__ = list(_HOMES)


_IN_PROGRAMS = (
    *("activity", "batch", "flush", "instrument", "log_values", "queue", "ready"),
    *("request", "serverless", "steps", "uninstrument"),
)
_warned: set[str] = set()


class _Absent:
    """Does nothing, for a name that could not be loaded; returns what it is given."""

    def __call__(self, *given: Any, **options: Any) -> Any:
        first = given[0] if given else options.get("iterable", self)
        return self if isinstance(first, str) else first

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *raised: object) -> None:
        pass


def _loaded(home: str, name: str) -> Any:
    """Return *name* of *home*, or without a free descriptor, what does nothing."""
    import errno  # noqa: PLC0415 - keeps the import cheap, as all of these
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415
    from importlib import import_module  # noqa: PLC0415

    try:
        return getattr(import_module(home), name)
    except (OSError, ImportError) as error:
        # A library that cannot be opened is an `ImportError` with the same words.
        words = str(error)
        full = [os.strerror(number) in words for number in (errno.EMFILE, errno.ENFILE)]
        if name not in _IN_PROGRAMS or not any(full):
            raise
    logging = sys.modules.get("logging")
    if logging is not None and name not in _warned:
        _warned.add(name)
        logging.getLogger("jaxmon").warning("jaxmon.%s does nothing: %s", name, words)
    return _Absent()


if not TYPE_CHECKING:  # a type checker would take any name for known

    def __getattr__(name: str) -> object:
        """Load a public name on first use."""
        if name == "__version__":
            return _loaded("jaxmon.version", "version")()
        if name in ("asgi", "wsgi"):  # as programs name what they have not imported
            from importlib import import_module  # noqa: PLC0415

            return import_module(f"jaxmon.{name}")
        try:
            home = _HOMES[name]
        except KeyError:
            msg = f"module 'jaxmon' has no attribute {name!r}"
            raise AttributeError(msg) from None
        value = _loaded(home, name)
        if type(value) is not _Absent:
            globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "__version__"])
