"""Whether JAX's backends are initialised, without initialising or waiting for them."""

from __future__ import annotations

import sys
import time
from typing import Any


# JAX holds its lock for moments wherever it looks a backend up, and while it starts
# them: for minutes, where another host has still to join.
_MOMENT_SECONDS = 0.05
_TURN_SECONDS = 0.001


def are_up(jax: Any) -> bool:
    """
    Tell whether all backends are there. Takes no lock, and 50 ms at most.

    JAX's own answer waits for its lock: a page that was asked for meanwhile would hang
    until the slowest host of a cluster has joined.
    """
    return client(jax) is not None


def version() -> str | None:
    """Return the release of jaxlib, `None` where it is not loaded."""
    return getattr(sys.modules.get("jaxlib"), "__version__", None)


def client(jax: Any) -> Any:
    """
    Return an object that stands for the backends, `None` where they are not up. Those
    that a program takes in place of others have another.
    """
    bridge = jax._src.xla_bridge  # noqa: SLF001 - JAX tells this nowhere else
    lock, end = bridge._backend_lock, time.monotonic() + _MOMENT_SECONDS  # noqa: SLF001
    # They come one by one.
    while started := list(bridge._backends.values()):  # noqa: SLF001
        if not lock.locked():
            return started[0]
        if time.monotonic() >= end:
            break
        time.sleep(_TURN_SECONDS)
    return None
