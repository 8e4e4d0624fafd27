"""
What a thread is doing, from the stack of its Python frames.

Read from another thread, many times a second. Also whether it is in a barrier of all
processes, or in a callback, for which an XLA program waits.
"""

from __future__ import annotations

import dis
import inspect
import os
from types import CodeType, ModuleType

from jaxmon.agent.jaxlink.call_sites import (
    DEVICE,
    EAGER,
    FETCH,
    MAX_SITES,
    TRANSFER,
    CallSites,
)
from jaxmon.agent.jaxlink.code_loops import CodeLoops
from jaxmon.agent.jaxlink.jit import directories
from jaxmon.agent.jaxlink.other_threads import Position, Stack
from jaxmon.agent.jaxlink.source_lines import AGENT, SourceLine, SourceLineFinder
from jaxmon.host.sources import OURS, package_of
from jaxmon.tuples import NamedTuple


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
    return any(_is_callback(at.code) for at in stack)


def _is_callback(code: CodeType) -> bool:
    return code.co_name in _CALL_BACK and any(
        code.co_name == function and code.co_filename.endswith(file)
        for file, function in _CALLBACKS
    )


COMPILE = "compile"
DATA_WAIT = "data_wait"
PYTHON = "python"
GC = "gc"
"""Collects garbage."""
STARTUP = "startup"
"""Imports modules, or initialises devices."""
GIL = "gil"
"""Waits for the interpreter, which another thread has."""
ITEM = "item"
"""Waits for an item of a queue: for data in training, for work in serving."""
MAKE = "make"
"""Makes an array of something that is none: it computes, and copies to the device."""
IDLE = "idle"
JOIN = "join"
"""Waits for another thread to end."""

# Functions of JAX that trace, lower or compile.
_COMPILING = frozenset(
    (
        # The second since JAX 0.10, the third since 0.12.
        *("trace_to_jaxpr_dynamic", "trace_to_jaxpr", "trace_to_jaxpr_nocache"),
        "lower_sharding_computation",
        "_cached_compilation",
        "compile_or_get_cached",
    )
)
# Functions of JAX that wait for results and copy them to the host.
_FETCHING = frozenset(("_value", "block_until_ready", "device_get"))
# Called by the garbage collector; it gives up the interpreter there, if it is asked to.
_COLLECTING = "_xla_gc_callback"
# In the first operation of all, whatever that is.
_INITIALISING = "_init_backend"
# Functions of JAX that copy to a device.
_PUTTING = frozenset(
    ("device_put", "batched_device_put", "_batched_device_put_impl", "_device_put_impl")
)
_ROLES = {
    **dict.fromkeys(_COMPILING, COMPILE),
    **dict.fromkeys(_FETCHING, FETCH),
    **dict.fromkeys(_PUTTING, TRANSFER),
    _COLLECTING: GC,
    _INITIALISING: STARTUP,
}
# Of JAX's NumPy, which convert what is no array; of lists, each element by itself.
_MAKING = frozenset(("array", "asarray"))
_MAKERS = tuple(
    [_end("_src", "numpy", name) for name in ("array_constructors.py", "lax_numpy.py")]
)
_DISPATCHES = ("", EAGER)
# Whose line does that, through libraries or not, drives the device.
_DRIVEN = frozenset((EAGER, DEVICE, FETCH, TRANSFER, MAKE))
# Whatever has called it.
_STAYS = frozenset((COMPILE, GC, STARTUP))
# Also if it has called code that is not JAX's.
_WHATEVER_BELOW = frozenset((COMPILE, STARTUP))
# Where threads of the standard library wait, by file and function.
_FOR_ITEM = ("queue.py", "get")
# The queues of `multiprocessing` read from a pipe, some calls further down.
_OF_PROCESSES = os.path.join("multiprocessing", "queues.py")  # noqa: PTH118 - end of a path
_ABOVE_PIPE = 6
_POOL = os.path.join("multiprocessing", "pool.py")  # noqa: PTH118 - end of a path
_FOR_WORK = frozenset(
    (
        ("selectors.py", "select"),
        ("thread.py", "_worker"),
        ("socketserver.py", "serve_forever"),
        ("socket.py", "accept"),
    )
)
# Of modules, whose own code a function of this file calls.
_IMPORTING = "<frozen importlib"
# May be what a module does that is imported.
_MAY_IMPORT = frozenset(("", EAGER, GC, STARTUP))
# Of asyncio; those of uvloop have no Python functions but the second.
_EVENT_LOOPS = {
    "_run_once": os.path.join("asyncio", "base_events.py"),  # noqa: PTH118 - end of a path
    "run": os.path.join("asyncio", "runners.py"),  # noqa: PTH118 - end of a path
}
# How a program just compiled, or one with effects, is run, and one that was compiled
# ahead of time; and a pmap, since 0.8.
_RUNNING = {
    "__call__": (_end("_src", "interpreters", "pxla.py"), _end("_src", "stages.py")),
    "wrapped": (_end("_src", "pmap.py"),),
}
_PARKED = (_THREADING, "wait")
_FOR_THREADS = frozenset(((_THREADING, "join"), (_THREADING, "_wait_for_tstate_lock")))
# It calls the program's handler of a connection, which waits for its requests.
_HANDLING = ("socketserver.py", "finish_request")
# Of the flags of code.
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NO_DISPATCH = (_end("_src", "tree_util.py"), _end("_src", "profiler.py"))
_USER, _LIBRARY, _JAX, _OURS = range(4)
_NOT_THEIRS = frozenset((_JAX, _OURS))
_UNKNOWN = SourceLine("", 0, "")


class Doing(NamedTuple):
    """
    What a thread is doing.

    Attributes:
        state: one of the constants here; `PYTHON` if it runs, or waits in, anything
            else.
        line: the innermost line of the user's code, from a file if any of it is.
        function: the label of the jitted function that is being called, if known.
        drives: whether it is in code that calls jitted functions or operations.
        event_loop: whether an event loop of asyncio has called that.
        of_user: whether code of the user's does.
        parked: whether it waits for an event or a condition of `threading`.
        ours: whether it is what we do, on a thread of the program.
        caller: the line of code that drives the device which has called *line*, empty
            if that drives it itself, or nothing does.
        divides: whether it waits for what a pool of `multiprocessing` does for it.
        holds_loop: whether a coroutine of the user's has called that, which keeps its
            event loop; then that is the *caller*.
        loop: the line of the outermost loop of the user's that this is in, if any.
    """

    state: str
    line: SourceLine
    function: str = ""
    drives: bool = False
    event_loop: bool = False
    of_user: bool = False
    parked: bool = False
    ours: bool = False
    caller: SourceLine = _UNKNOWN
    divides: bool = False
    holds_loop: bool = False
    loop: SourceLine = _UNKNOWN


class ActivityReader:
    """
    Reads stacks.

    Args:
        jax: the module.
        sites: the known places that call.

    Attributes:
        finder: of the user's lines.
    """

    def __init__(self, jax: ModuleType, sites: CallSites) -> None:
        self._sites = sites
        self._jax = directories(jax)
        self.finder = SourceLineFinder(jax)
        self._loops = CodeLoops()
        self._kinds: dict[str, int] = {}

    def read(self, stack: Stack) -> Doing:
        """
        Return what the thread with this *stack* is doing.

        Costs about half a microsecond per function.
        """
        sites = self._sites
        state, function, rest = self._innermost(stack)
        user: Position | None = None
        caller = _UNKNOWN
        drives = is_packaged = holds = False
        for at in rest:
            kind = self._kind(at.code)
            if kind == _USER:
                if user is None or _is_generated(user) > _is_generated(at):
                    user = at
                is_packaged = is_packaged or package_of(at.code.co_filename) is None
                sites.study(at.code, at.names)
                if state in _DRIVEN and user is at:
                    sites.is_driver(at.code)
                is_driver = not drives and sites.drives(at.code)
                is_first = not (holds or state) and bool(at.code.co_flags & _COROUTINE)
                if (is_driver and not holds) or is_first:
                    caller = _UNKNOWN if user is at else _line(at)
                drives, holds = drives or is_driver, holds or is_first
                if state != COMPILE and sites.waits_for_item(at.code, at.offset):
                    state = DATA_WAIT
            elif kind == _LIBRARY:
                if not is_packaged and state in _MAY_IMPORT and _imports(at.code):
                    # An installed package that is imported is no line of the program.
                    state, user = STARTUP, None
            elif kind == _JAX and state != STARTUP:
                role = _ROLES.get(at.code.co_name, "")
                state = role if role in _WHATEVER_BELOW else state
        line = _UNKNOWN if user is None else _line(user)
        loops = any([_is_event_loop(at.code) for at in rest])
        parked = bool(stack) and _where(stack[0].code) == _PARKED
        of_user = user is not None
        ours = user is None and _is_only_ours(stack)
        state = state or PYTHON
        divides = parked and _of_pool(stack, "get")
        drives = drives or divides
        return Doing(
            *(state, line, function, drives, loops, of_user, parked, ours, caller),
            divides=divides,
            holds_loop=holds and loops,
            loop=self._loop(rest),
        )

    def _loop(self, stack: Stack) -> SourceLine:
        """Return the line of the outermost loop of the user's code on *stack*."""
        found = (self.loop_at(at.code, at.offset) for at in reversed(stack))
        return next(filter(None, found), _UNKNOWN)

    def loop_at(self, code: CodeType, offset: int) -> SourceLine | None:
        """Return the line of the outermost loop of *code*, if it is the user's."""
        is_user = self._kind(code) == _USER
        return self._loops.at(code, offset) if is_user else None

    def _innermost(self, stack: Stack) -> tuple[str, str, Stack]:
        """
        Return what the innermost functions do, the label of the jitted function that
        they call, and the stack above those of JAX.
        """
        state, depth = "", 0
        while depth < len(stack):
            code = stack[depth].code
            if (kind := self._kind(code)) not in _NOT_THEIRS:
                break
            if kind == _JAX:
                # A running program waits for what JAX does around a callback.
                state = DEVICE if _is_callback(code) else _in_jax(code, state)
            depth += 1
        rest = stack[depth:]
        if not rest:
            return state, "", rest
        at, sites = rest[0], self._sites
        if state:
            calls = state in {DEVICE, COMPILE}
            return state, self._runs_first(at) if calls else "", rest
        sites.study(at.code, at.names)
        site = sites.at(at.code, at.offset)
        if site is None:
            return self._waiting(rest), "", rest
        wraps = self._kind(at.code) == _LIBRARY and sites.calls(at.code)
        if site.state == FETCH and wraps:
            # It calls a jitted function, and always waits for it: Equinox does.
            return DEVICE, "", rest
        return site.state, site.function, rest

    def _runs_first(self, at: Position) -> str:
        """
        Return the label of the jitted function called *at* this position, which JAX
        compiles, or whose program it runs from Python, as the first call after that is.
        """
        site = self._sites.at(at.code, at.offset)
        return site.function if site is not None and site.state == DEVICE else ""

    def _waiting(self, stack: Stack) -> str:
        """Return the state of a thread that waits, empty if it may not wait."""
        where = [_where(at.code) for at in stack[:2]]
        if _FOR_ITEM in where or _takes_from_process(stack) or _of_pool(stack, "next"):
            return ITEM
        # That of uvloop waits in C.
        if where[0] in _FOR_WORK or _is_event_loop(stack[0].code):
            return IDLE
        if where[0] in _FOR_THREADS:
            # What a library's own thread does, it does for the program: a checkpoint.
            joins = next((at for at in stack if _where(at.code)[0] != _THREADING), None)
            is_packaged = joins is not None and self.finder.is_package(
                joins.code.co_filename
            )
            return "" if is_packaged else JOIN
        receives = self._sites.receives(stack[0].code, stack[0].offset)
        if receives and any(_where(at.code) == _HANDLING for at in stack):
            return IDLE
        return ""

    def lines(self, stack: Stack) -> list[SourceLine]:
        """Return the lines of *stack* without our functions, innermost first."""
        return [_line(at) for at in stack if not _is_ours(at.code.co_filename)]

    def _kind(self, code: CodeType) -> int:
        file = code.co_filename
        kind = self._kinds.get(file)
        return self._learn(file) if kind is None else kind

    def _learn(self, file: str) -> int:
        if file.startswith(self._jax):
            kind = _JAX
        elif _is_ours(file):
            kind = _OURS
        else:
            # Frozen modules are the interpreter's own.
            library = file.startswith("<frozen ") or self.finder.is_library(file)
            kind = _LIBRARY if library else _USER
        if len(self._kinds) >= MAX_SITES:
            self._kinds.clear()
        self._kinds[file] = kind
        return kind


def _is_generated(at: Position) -> bool:
    """Return whether it is no line of a file, as of a class that Python has made."""
    return at.code.co_filename == "<string>"


def _is_event_loop(code: CodeType) -> bool:
    file = _EVENT_LOOPS.get(code.co_name)
    return file is not None and code.co_filename.endswith(file)


def _imports(code: CodeType) -> bool:
    return code.co_filename.startswith(_IMPORTING)


def _is_ours(file: str) -> bool:
    return file.startswith((OURS, AGENT))


def _is_only_ours(stack: Stack) -> bool:
    """Return whether it has functions of ours, and no others of packages."""
    files = {at.code.co_filename for at in stack}
    ours = {file for file in files if _is_ours(file)}
    return bool(ours) and not any(map(package_of, files - ours))


def _line(at: Position) -> SourceLine:
    return SourceLine(at.code.co_filename, at.line, at.code.co_name)


def _in_jax(code: CodeType, state: str) -> str:
    """
    Return what a thread does that runs *code* of JAX, which has called code that does
    *state*.
    """
    name = code.co_name
    if state in _DISPATCHES and name in _RUNNING:
        runs = code.co_filename.endswith(_RUNNING[name])
        return DEVICE if runs else EAGER
    if state in _DISPATCHES and name in _MAKING:
        return MAKE if code.co_filename.endswith(_MAKERS) else EAGER
    stays = state in _STAYS and (state != GC or name not in _COMPILING)
    if stays or (state and name not in _ROLES and name != "cache_miss"):
        return state
    if (role := _ROLES.get(name)) is not None:
        return role
    if state:
        return COMPILE if state == EAGER else state
    # What takes trees apart, for the program or a library, dispatches nothing; nor does
    # what writes a profile.
    return "" if code.co_filename.endswith(_NO_DISPATCH) else EAGER


def _takes_from_process(stack: Stack) -> bool:
    return any(
        at.code.co_name == "get" and at.code.co_filename.endswith(_OF_PROCESSES)
        for at in stack[:_ABOVE_PIPE]
    )


def _of_pool(stack: Stack, function: str) -> bool:
    """Return whether it is in that *function* of a pool's results."""
    return any(
        at.code.co_name == function and at.code.co_filename.endswith(_POOL)
        for at in stack[:_ABOVE_PIPE]
    )


def _where(code: CodeType) -> tuple[str, str]:
    return code.co_filename.rpartition(os.sep)[2], code.co_name
