"""
Orbax on a stack, and what it reports to JAX, by the names of release 0.12: durations in
seconds, times in milliseconds since 1970, sizes in GiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from types import FrameType

    from jaxmon.agent.jaxlink.other_threads import Stack


class CheckpointKind(NamedTuple):
    """A ``save`` or ``restore``; Orbax continues an async one in the background."""

    operation: str
    is_async: bool


SAVE, _ASYNC_SAVE, _READ, _ASYNC_READ = (
    CheckpointKind(operation, is_async)
    for operation in ("save", "restore")
    for is_async in (False, True)
)

_WRITE = "/jax/orbax/write"
STARTS = {
    f"{_WRITE}/start": SAVE,
    f"{_WRITE}/async/start": _ASYNC_SAVE,
    "/jax/orbax/read/start": _READ,
    "/jax/orbax/read/async/start": _ASYNC_READ,
}
START_TIMES = (f"{_WRITE}/start_time", f"{_WRITE}/async/start_time")
UNBLOCKS = {f"{_WRITE}/async/blocking_duration_secs": _ASYNC_SAVE}
WAITED = f"{_WRITE}/blocking_wait_prev_duration_secs"
TOTALS = {
    f"{_WRITE}/total_duration_secs": SAVE,
    f"{_WRITE}/async/total_duration_secs": _ASYNC_SAVE,
    "/jax/orbax/read/total_duration_secs": _READ,
    "/jax/orbax/read/async/total_duration_secs": _ASYNC_READ,
}
GIBIBYTES = {f"{_WRITE}/gbytes": "save", "/jax/checkpoint/read/gbytes": "restore"}

EVENTS = (tuple(STARTS), (WAITED, *UNBLOCKS, *TOTALS), (*START_TIMES, *GIBIBYTES))
"""All of them: those without a value, durations, scalars."""

_PACKAGE = "orbax."
# The thread of an event loop that Orbax keeps; what it works on has its own frames.
_KEEPS_RUNNING = "_run_loop"


# Its functions that save or restore, and that wait for what it saves, begin so; as an
# activity.
_CALLED = (
    ("save", "checkpoint"),
    ("wait_until_finished", "checkpoint"),
    ("restore", "restore"),
    ("load", "restore"),
)


def activity_of(stack: Stack) -> str:
    """
    Return the activity of the thread with this *stack* if it is in a function of Orbax
    that saves or restores, else nothing: that is reported in the primary process only.
    """
    found = ""
    for at in stack:
        name = at.names.get("__name__")
        if isinstance(name, str) and name.startswith(_PACKAGE):
            begun = [of for start, of in _CALLED if at.code.co_name.startswith(start)]
            found = begun[0] if begun else found
    return found


def in_orbax(frame: FrameType | None) -> bool:
    """Return whether a function of Orbax is on the stack of *frame*."""
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if (
            isinstance(name, str)
            and name.startswith(_PACKAGE)
            and frame.f_code.co_name != _KEEPS_RUNNING
        ):
            return True
        frame = frame.f_back
    return False
