"""Whether JAX traces, its backends, and this process's place, without waiting."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.guard import Guard
from jaxmon.clocks import monotonic, sleep
from jaxmon.tuples import NamedTuple


# JAX holds its lock briefly for each backend lookup, and while it initialises backends:
# for minutes if another host has yet to join.
_MOMENT_SECONDS = 0.05
_TURN_SECONDS = 0.001
_SELF = Path("/proc/self")
# What asks arrays on threads of ours.
_ASKING = ("allocations", "memory", "numerics", "sampling", "values")
_UNSAFE = "before JAX 0.6 they can block a program with callbacks on a CPU forever"


def is_calling(jax: Any) -> Callable[[], bool]:
    """Return JAX's function that returns whether the program calls, not JAX itself."""
    clean: Callable[[], bool] = jax._src.core.trace_state_clean  # noqa: SLF001 - no public way
    return clean


def initialised(jax: Any) -> bool:
    """
    Return whether all backends are initialised, within 50 ms: JAX's own check waits for
    its lock, until the slowest host of a cluster has joined.
    """
    return client(jax) is not None


def leave_arrays_alone(jax: Any, guard: Guard) -> None:
    """
    Disable what asks arrays anything on threads of ours, where that may block the
    program forever: called before a program with a callback runs.

    On CPU devices, up to JAX 0.5, a thread that reads an array locks it until it is
    ready. Whoever asks whether it is, holds the GIL meanwhile; the callback that
    computes it never gets that.
    """
    if jax.__version_info__ < (0, 6) and jax.default_backend() == "cpu":
        guard.switch_off(_ASKING, _UNSAFE)


def version() -> str | None:
    """Return the version of jaxlib, `None` if it is not loaded."""
    return getattr(sys.modules.get("jaxlib"), "__version__", None)


def client(jax: Any) -> Any:
    """Return what identifies the current backends, `None` before they are there."""
    bridge = jax._src.xla_bridge  # noqa: SLF001 - no public name for it
    lock, end = bridge._backend_lock, monotonic() + _MOMENT_SECONDS  # noqa: SLF001
    # They are initialised one by one.
    while started := list(bridge._backends.values()):  # noqa: SLF001
        if not lock.locked():
            return started[0]
        if monotonic() >= end:
            break
        sleep(_TURN_SECONDS)
    return None


def forked(jax: Any) -> bool:
    """
    Return whether this process was forked after backends were initialised, and so lacks
    their threads. Asked once it has more threads than Python's, it does not seem so.
    """
    with interrupts.expected(OSError, AttributeError):  # not Linux, or another JAX
        if client(jax) is not None:
            from jaxmon.host.resources.process import is_fork  # noqa: PLC0415 - seldom

            threads = len(list((_SELF / "task").iterdir()))
            return is_fork(_SELF, "jaxlib") and threads <= threading.active_count()
    return False


class Cluster(NamedTuple):
    """A process of a cluster; TPUs may have no coordinator in `jax.distributed`."""

    rank: int
    size: int
    coordinator: str


def cluster(jax: Any) -> Cluster | None:
    """Return the place of this process, `None` while it is not known."""
    state = jax._src.distributed.global_state  # noqa: SLF001 - no public name for it
    # It remains after the shutdown, which JAX does at exit.
    address = state.coordinator_address or ""
    if state.client is not None:
        return Cluster(int(state.process_id), int(state.num_processes), address)
    if client(jax) is None:
        return None
    return Cluster(jax.process_index(), jax.process_count(), address)


def local_devices(jax: Any) -> int:
    """Return the number of devices of this process, 0 while that is unknown."""
    return 0 if client(jax) is None else len(jax.local_devices())
