"""
Reads the stacks of other threads without crashing the interpreter.

Up to Python 3.11 the garbage collector may run wherever an object is allocated. Asking
for a frame of another thread allocates one; if the collector runs then, and runs Python
code that gives up the interpreter, that thread may return from the function meanwhile,
and the new frame refers to memory that is gone. So a frame is only asked for if the
collector is not due. Since 3.12 it runs between two instructions only.

The number of objects is read by an iterator, and the next thing done is to ask for the
frame: there is no call in between, after which another thread could run.

What a thread waits for is seen from its stack: a lock, all processes of a job, a
callback that an XLA program waits for, or work, which may come at any time or never.
"""

from __future__ import annotations

import dis
import gc
import os
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, TypeAlias, TypeVar

from jaxmon.agent.jaxlink.frames import held
from jaxmon.clocks import sleep
from jaxmon.tuples import NamedTuple


_IN_ALLOCATIONS = sys.version_info < (3, 12)

# What is allocated for one thread besides its frame, and for one frame.
_FOR_A_THREAD = 2
_SPARE = 16
# Threads that may have started since the last time.
_MORE_THREADS = 16
_DEEPEST = 1_000

counts = iter(gc.get_count, None)
"""Yields the numbers of objects, of which the first makes the collector due."""


class NotNowError(Exception):
    """The collector is due; try again in a millisecond."""


# Below pdb and what derives from it; of debugpy and PyCharm.
_DEBUGGERS = ("bdb", "pydevd")
_ATTEMPTS = 50
_PAUSE = 0.001
T = TypeVar("T")


class Position(NamedTuple):
    """Where a function on a stack is: its latest instruction and global variables."""

    code: CodeType
    offset: int
    names: dict[str, Any]

    @property
    def line(self) -> int:
        """The number of its line; that of the function, if Python generated it."""
        lines = self.code.co_lines()
        found = [line for start, end, line in lines if start <= self.offset < end]
        return (found and found[0]) or self.code.co_firstlineno


Stack: TypeAlias = list[Position]
"""Innermost first."""
_Columns: TypeAlias = tuple[list[CodeType], list[int], list[dict[str, Any]]]


class _Threads:
    number = 1


def limit() -> int:
    """Return the number of new objects up to which a frame may be asked for."""
    if not _IN_ALLOCATIONS or not gc.isenabled():
        return sys.maxsize
    # 0: never due.
    return (gc.get_threshold()[0] or sys.maxsize) - _SPARE


def read_stacks(choose: Callable[[Collection[int]], Iterable[int]]) -> dict[int, Stack]:
    """
    Return the stacks of threads that *choose* returns of all, by ident, a microsecond
    per function; `NotNowError` if the collector is due.
    """
    held.append(None)
    try:
        stacks = _read(choose)
    finally:
        held.pop()
    # Only now: these are objects that the collector counts.
    return {ident: list(map(Position, *columns)) for ident, columns in stacks.items()}


def is_debugged() -> bool:
    """
    Return whether a debugger has stopped a thread or runs the program, as far as known;
    a microsecond per function on all stacks if one was imported.
    """
    if not any([module in sys.modules for module in _DEBUGGERS]):
        return False
    try:
        stacks = read_stacks(lambda idents: idents)
    except NotNowError:  # unknown until the next call
        return True
    names = [at.names.get("__name__") for stack in stacks.values() for at in stack]
    return any([type(name) is str and _is_of_debugger(name) for name in names])


def _is_of_debugger(module: str) -> bool:
    return module == "bdb" or module.lstrip("_").startswith("pydevd")


def _read(choose: Callable[[Collection[int]], Iterable[int]]) -> dict[int, _Columns]:
    most = limit()
    frames = _frames(most - _FOR_A_THREAD * (_Threads.number + _MORE_THREADS))
    _Threads.number = len(frames)
    try:
        return {
            ident: _columns(frames.get(ident), most) for ident in choose(frames.keys())
        }
    finally:
        # Ours is among them, and refers to them: without this, an exception would keep
        # all of them, and with them the variables of functions that have returned.
        frames.clear()


def _frames(room: int) -> dict[int, FrameType]:
    for count in counts:
        if count[0] < room:
            return sys._current_frames()  # noqa: SLF001
        break
    raise NotNowError


def _columns(frame: FrameType | None, most: int) -> _Columns:
    codes: list[CodeType] = []
    offsets: list[int] = []
    names: list[dict[str, Any]] = []
    while frame is not None and len(codes) < _DEEPEST:
        codes.append(frame.f_code)
        offsets.append(frame.f_lasti)
        names.append(frame.f_globals)
        frame = _caller_of(frame, most)
    return codes, offsets, names


def _caller_of(frame: FrameType, most: int) -> FrameType | None:
    for count in counts:
        if count[0] < most:
            return frame.f_back
        break
    raise NotNowError


def repeatedly(read: Callable[[], T]) -> T:
    """Return what *read* does within 50 ms; `NotNowError` if the collector is due."""
    for _ in range(_ATTEMPTS):
        with suppress(NotNowError):
            return read()
        # The exception is gone, and the frames that it kept.
        sleep(_PAUSE)
        make_room()
    return read()


def make_room() -> None:
    """Collect the newest objects, due in any case: a waiting program makes none."""
    if gc.isenabled():
        gc.collect(0)


# Up to 3.13.
_ENTERS = "BEFORE_WITH"
# Since 3.14; what it loads is called next.
_SPECIAL = "LOAD_SPECIAL"
_ACQUIRING = frozenset(("acquire", "__enter__"))
THREADING = "threading.py"


def waits_for_lock(stack: Stack) -> bool:
    """
    Return whether a sleeping thread waits in ``with lock:`` or ``lock.acquire()``, also
    of `threading`; a microsecond per instruction of its function.
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
    """Return the stacks of those *threads* that wait for a lock, if readable now."""
    stacks = read_stacks(lambda every: set(threads) & set(every)) if threads else {}
    return {of: stack for of, stack in stacks.items() if waits_for_lock(stack)}


def _acquires(at: Position) -> bool:
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
    """Return in what of JAX it waits for all processes; empty if it does not."""
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
    """Return whether it sleeps until others give it something, at any time."""
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
    """Return whether it sleeps until others end, take or give something."""
    inner = next((at for at in stack if where(at.code)[0] != THREADING), None)
    if not stack or inner is None:
        return False
    if where(stack[0].code) in FOR_THREADS:
        return _has_no_arguments(inner.code, inner.offset)  # no time limit
    is_queue = where(inner.code) in {FOR_ITEM, _FOR_ROOM}
    return (is_queue or takes(stack)) and _has_no_arguments(
        stack[0].code, stack[0].offset
    )


@lru_cache(256)
def _has_no_arguments(code: CodeType, offset: int) -> bool:
    # Python 3.11 is behind one that calls a function of Python.
    latest = [of for of in dis.get_instructions(code) if of.offset <= offset][-1:]
    return any(of.arg == 0 and of.opname.startswith("CALL") for of in latest)


def where(code: CodeType) -> tuple[str, str]:
    """Return the name of its file without directories, and its own."""
    return code.co_filename.rpartition(os.sep)[2], code.co_name
