"""Whether JAX's backends are initialised, without initialising or waiting for them."""

from __future__ import annotations

import sys
from typing import Any

from jaxmon.clocks import monotonic, sleep


# JAX holds its lock briefly for each backend lookup, and while it initialises backends:
# for minutes if another host has yet to join.
_MOMENT_SECONDS = 0.05
_TURN_SECONDS = 0.001


def initialised(jax: Any) -> bool:
    """
    Return whether all backends are initialised. Takes no lock, and 50 ms at most.

    JAX's own check waits for its lock: a scrape would hang until the slowest host of a
    cluster has joined.
    """
    return client(jax) is not None


def version() -> str | None:
    """Return the version of jaxlib, `None` if it is not loaded."""
    return getattr(sys.modules.get("jaxlib"), "__version__", None)


def client(jax: Any) -> Any:
    """
    Return an object that identifies the current backends, `None` before they are
    initialised. It changes if the program replaces its backends.
    """
    bridge = jax._src.xla_bridge  # noqa: SLF001 - JAX tells this nowhere else
    lock, end = bridge._backend_lock, monotonic() + _MOMENT_SECONDS  # noqa: SLF001
    # They are initialised one by one.
    while started := list(bridge._backends.values()):  # noqa: SLF001
        if not lock.locked():
            return started[0]
        if monotonic() >= end:
            break
        sleep(_TURN_SECONDS)
    return None
