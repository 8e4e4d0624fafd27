"""
What a thread waits for, from the stack of its Python frames.

A lock, all processes of a job, a callback that an XLA program waits for, or work, which
may come at any time or never.
"""

from __future__ import annotations

import dis
import os
from collections.abc import Collection
from types import BuiltinFunctionType, CodeType, ModuleType
from typing import Any

from jaxmon.agent.jaxlink.other_threads import Position, Stack, read_stacks


# Up to 3.13.
_ENTERS = "BEFORE_WITH"
# Since 3.14; what it loads is called next.
_SPECIAL = "LOAD_SPECIAL"
_ACQUIRING = frozenset(("acquire", "__enter__"))
THREADING = "threading.py"
_SLEEP = ("time", "sleep")
_SLEEPS = ("sleep", "time.sleep")


def waits_for_lock(stack: Stack) -> bool:
    """
    Return whether a thread that sleeps with this *stack* does so in ``with lock:`` or
    ``lock.acquire()``, also of a class of `threading`. Takes a microsecond for each
    instruction of its function.
    """
    in_threading = 0
    for at in stack:
        if where(at.code)[0] != THREADING:
            break
        if at.code.co_name in _ACQUIRING:
            return True
        in_threading += 1
    # An event, or a queue, also acquires a lock to wait.
    return bool(stack) and not in_threading and _acquires(stack[0])


def locked(threads: Collection[int]) -> dict[int, Stack]:
    """
    Return the stacks of those *threads* that wait for a lock.

    Raises:
        NotNowError: the stacks cannot be read now.
    """
    stacks = read_stacks(lambda every: set(threads) & set(every)) if threads else {}
    return {of: stack for of, stack in stacks.items() if waits_for_lock(stack)}


def _acquires(at: Position) -> bool:
    """Return whether the latest instruction acquires something."""
    methods: dict[tuple[int | None, int | None], str] = {}
    for instruction in dis.get_instructions(at.code):
        place = instruction.positions
        start = None if place is None else (place.lineno, place.col_offset)
        if instruction.opname in {"LOAD_METHOD", "LOAD_ATTR"} and start is not None:
            methods[start] = str(instruction.argval)
        elif instruction.opname == _SPECIAL and start is not None:
            methods[start] = instruction.argrepr
        elif instruction.offset == at.offset:
            called = instruction.opname.startswith("CALL") and start is not None
            return instruction.opname == _ENTERS or (
                called and methods.get(start or (None, None)) in _ACQUIRING
            )
        elif (
            instruction.opname == "CALL"
        ):  # what comes next there is another: ``__exit__``
            methods.pop(start or (None, None), None)
    return False


def end(*parts: str) -> str:
    """Return the end of the path of a file of JAX."""
    return os.path.join("jax", *parts)  # noqa: PTH118 - end of a path


# The start and the end of a job.
_DISTRIBUTED = end("_src", "distributed.py")
_OF_A_JOB = {
    "initialize": "jax.distributed.initialize",
    "shutdown": "jax.distributed.shutdown",
}
# All processes exchange which devices they have.
_DEVICES = (end("_src", "xla_bridge.py"), "_init_backend")
_INITIALISES = "the initialisation of devices"
# Its functions run programs on all devices, which are not counted; but for two, which
# copy to or from the devices of their own process.
_UTILITIES = end("experimental", "multihost_utils.py")
_COPIES = frozenset(
    ("host_local_array_to_global_array", "global_array_to_host_local_array")
)
# Call the function of the program that its XLA program calls: of `jax.pure_callback`
# and `jax.experimental.io_callback`, and of all, as `jax.debug.callback`.
_CALLBACKS = (
    (end("_src", "callback.py"), "__call__"),
    (end("_src", "callback.py"), "_wrapped_callback"),
    (end("_src", "interpreters", "mlir.py"), "_wrapped_callback"),  # to JAX 0.6
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
    return any(is_callback(at.code) for at in stack)


def is_callback(code: CodeType) -> bool:
    """Return whether *code* calls such a function."""
    return code.co_name in _CALL_BACK and any(
        code.co_name == function and code.co_filename.endswith(file)
        for file, function in _CALLBACKS
    )


# Where threads of the standard library wait, by file and function.
FOR_ITEM = ("queue.py", "get")
_FOR_ROOM = ("queue.py", "put")
FOR_THREADS = frozenset(((THREADING, "join"), (THREADING, "_wait_for_tstate_lock")))
_CONDITIONS = ((THREADING, "wait"), (THREADING, "wait_for"))
# Its own callers of conditions: for results, and for room in a queue or its end.
_NOT_FOR_WORK = frozenset(("queue.py", "_base.py", "pool.py"))
# The queues of `multiprocessing` read from a pipe, some calls further down.
_OF_PROCESSES = os.path.join("multiprocessing", "queues.py")  # noqa: PTH118 - end of a path
ABOVE_PIPE = 6


def takes(stack: Stack) -> bool:
    """
    Return whether a thread that sleeps with this *stack* waits for what other threads
    or processes may give it at any time: an item of a queue, or a condition.
    """
    places = [where(at.code) for at in stack[:3]]
    if FOR_ITEM in places or takes_from_process(stack):
        return True
    # An event waits in a condition, too, and is also called `wait`.
    outer = 2 if places[1:2] == [_CONDITIONS[1]] else 1
    called = places[outer : outer + 1]
    return (
        places[:1] == [_CONDITIONS[0]]
        and bool(called)
        and called[0][0] not in {THREADING, *_NOT_FOR_WORK}
    )


def takes_from_process(stack: Stack) -> bool:
    """Return whether it waits for an item of a queue of `multiprocessing`."""
    return any(
        at.code.co_name == "get" and at.code.co_filename.endswith(_OF_PROCESSES)
        for at in stack[:ABOVE_PIPE]
    )


def needs_threads(stack: Stack) -> bool:
    """
    Return whether a thread that sleeps with this *stack* does so until another thread
    ends, takes or gives something, however long that takes.
    """
    inner = next((at for at in stack if where(at.code)[0] != THREADING), None)
    if not stack or inner is None:
        return False
    if where(stack[0].code) in FOR_THREADS:
        return _has_no_arguments(inner)  # no time limit
    is_queue = where(inner.code) in {FOR_ITEM, _FOR_ROOM}
    return (is_queue or takes(stack)) and _has_no_arguments(stack[0])


def is_sleep(text: str, name: str, names: dict[str, Any], code: CodeType) -> bool:
    """
    Return whether *code* calls `time.sleep` by *text*, which begins with the *name* of
    a global variable, by the value of *names*, or is imported in *code*.
    """
    value = dict.get(names, name) if name else None
    if type(value) is ModuleType:
        value = vars(value).get(text.partition(".")[2])
    if type(value) is BuiltinFunctionType:
        return (value.__module__, value.__name__) == _SLEEP
    return not name and text in _SLEEPS and {*_SLEEP} <= {*code.co_names}


def _has_no_arguments(at: Position) -> bool:
    """Return whether the latest instruction calls something without arguments."""
    # Python 3.11 is behind one that calls a function of Python.
    latest = [of for of in dis.get_instructions(at.code) if of.offset <= at.offset][-1:]
    return any(of.arg == 0 and of.opname.startswith("CALL") for of in latest)


def where(code: CodeType) -> tuple[str, str]:
    """Return the name of its file without directories, and its own."""
    return code.co_filename.rpartition(os.sep)[2], code.co_name
