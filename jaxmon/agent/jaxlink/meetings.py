"""
What of JAX a thread is in that concerns other processes or a running program: a barrier
of all processes, or a callback, for which an XLA program waits.
"""

from __future__ import annotations

import dis
import os

from jaxmon.agent.jaxlink.other_threads import Position, Stack


# Up to 3.13.
_ENTERS = "BEFORE_WITH"
# Since 3.14; what it loads is called next.
_SPECIAL = "LOAD_SPECIAL"
_ACQUIRING = frozenset(("acquire", "__enter__"))
_THREADING = "threading.py"


def waits_for_lock(stack: Stack) -> bool:
    """
    Return whether a thread that sleeps with this *stack* does so in ``with lock:`` or
    ``lock.acquire()``, also of a class of `threading`. Takes a microsecond for each
    instruction of its function.
    """
    in_threading = 0
    for at in stack:
        if at.code.co_filename.rpartition(os.sep)[2] != _THREADING:
            break
        if at.code.co_name in _ACQUIRING:
            return True
        in_threading += 1
    # An event, or a queue, also acquires a lock to wait.
    return bool(stack) and not in_threading and _acquires(stack[0])


def _acquires(at: Position) -> bool:
    """Return whether the latest instruction acquires something."""
    methods: dict[tuple[int | None, int | None], str] = {}
    for one in dis.get_instructions(at.code):
        place = one.positions
        start = None if place is None else (place.lineno, place.col_offset)
        if one.opname in {"LOAD_METHOD", "LOAD_ATTR"} and start is not None:
            methods[start] = str(one.argval)
        elif one.opname == _SPECIAL and start is not None:
            methods[start] = one.argrepr
        elif one.offset == at.offset:
            called = one.opname.startswith("CALL") and start is not None
            return one.opname == _ENTERS or (
                called and methods.get(start or (None, None)) in _ACQUIRING
            )
        elif one.opname == "CALL":  # what comes next there is another: ``__exit__``
            methods.pop(start or (None, None), None)
    return False


def _end(*parts: str) -> str:
    return os.path.join("jax", *parts)  # noqa: PTH118 - end of a path


# The start and the end of a job.
_DISTRIBUTED = _end("_src", "distributed.py")
_OF_A_JOB = {
    "initialize": "jax.distributed.initialize",
    "shutdown": "jax.distributed.shutdown",
}
# All processes exchange which devices they have.
_DEVICES = (_end("_src", "xla_bridge.py"), "_init_backend")
_INITIALISES = "the initialisation of devices"
# Its functions run programs on all devices, which are not counted; but for two, which
# copy to or from the devices of their own process.
_UTILITIES = _end("experimental", "multihost_utils.py")
_COPIES = frozenset(
    ("host_local_array_to_global_array", "global_array_to_host_local_array")
)
# Call the function of the program that its XLA program calls: of `jax.pure_callback`
# and `jax.experimental.io_callback`, and of all, as `jax.debug.callback`.
_CALLBACKS = (
    (_end("_src", "callback.py"), "__call__"),
    (_end("_src", "callback.py"), "_wrapped_callback"),
    (_end("interpreters", "mlir.py"), "_wrapped_callback"),  # to JAX 0.4
)
_CALL_BACK = frozenset(function for _, function in _CALLBACKS)


def barrier(stack: Stack) -> str:
    """
    Return in what of JAX the thread with this *stack* waits for all processes, as a
    user would call it; empty if it does not.
    """
    found = ""
    for at in stack:
        file, function = at.code.co_filename, at.code.co_name
        # Of functions that call each other, the outermost is the program's.
        if file.endswith(_UTILITIES):
            found = "" if function in _COPIES else function
        elif file.endswith(_DISTRIBUTED):
            found = _OF_A_JOB.get(function, found)
        elif file.endswith(_DEVICES[0]) and function == _DEVICES[1]:
            found = _INITIALISES
    return found


def calls_back(stack: Stack) -> bool:
    """Return whether it is in a function that a running XLA program has called."""
    return any(
        at.code.co_name == function and at.code.co_filename.endswith(file)
        for at in stack
        if at.code.co_name in _CALL_BACK
        for file, function in _CALLBACKS
    )
