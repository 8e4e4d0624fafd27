"""What a thread is doing, from the stack of its Python frames, many times a second."""

from __future__ import annotations

import inspect
import os
from functools import lru_cache
from itertools import dropwhile
from types import CodeType, ModuleType

from jaxmon.agent.jaxlink import other_threads
from jaxmon.agent.jaxlink.call_sites import (
    DEVICE,
    EAGER,
    FETCH,
    MAX_SITES,
    TRANSFER,
    CallSites,
)
from jaxmon.agent.jaxlink.jit import SHAPES, directories
from jaxmon.agent.jaxlink.other_threads import Position, Stack, end, where
from jaxmon.agent.jaxlink.source_lines import (
    AGENT,
    UNKNOWN,
    CodeLoops,
    SourceLine,
    SourceLineFinder,
)
from jaxmon.host.sources import OURS, package_of
from jaxmon.tuples import NamedTuple


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
_GIVES_ITEM = "__getitem__"
# Called by the garbage collector; it gives up the interpreter there, if it is asked to.
_COLLECTING = "_xla_gc_callback"
# In the first operation of all, whatever that is; the first imports plugins.
_INITIALISING = frozenset(("discover_pjrt_plugins", "_init_backend"))
# Functions of JAX that copy to a device.
_PUTTING = frozenset(
    ("device_put", "batched_device_put", "_batched_device_put_impl", "_device_put_impl")
)
# What JAX calls after a call while a setting for debugging is on; on any thread.
_CHECKING, _CHECK = "_nan_check_posthook", "check"
_RERAISES = "reraise_with_filtered_traceback"
_ROLES = {
    **dict.fromkeys(_COMPILING, COMPILE),
    **dict.fromkeys(_FETCHING, FETCH),
    **dict.fromkeys(_PUTTING, TRANSFER),
    _COLLECTING: GC,
    **dict.fromkeys(_INITIALISING, STARTUP),
    _CHECKING: _CHECK,
}
# Of JAX's NumPy, which convert what is no array; of lists, each element by itself.
_MAKING = frozenset(("array", "asarray"))
_MAKERS = tuple(
    [end("_src", "numpy", name) for name in ("array_constructors.py", "lax_numpy.py")]
)
_DISPATCHES = ("", EAGER)
# Whose line does that, through libraries or not, drives the device.
_DRIVEN = frozenset((EAGER, DEVICE, FETCH, TRANSFER, MAKE))
# Whatever has called it.
_STAYS = frozenset((COMPILE, GC, STARTUP))
# Also if it has called code that is not JAX's.
_WHATEVER_BELOW = frozenset((COMPILE, STARTUP))
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
# ahead of time; a pmap, since 0.8; and one whose keys JAX checks.
_RUNNING = {
    "call_impl_with_key_reuse_checks": (end("experimental", "key_reuse", "_core.py"),),
    "__call__": (end("_src", "interpreters", "pxla.py"), end("_src", "stages.py")),
    "wrapped": (end("_src", "pmap.py"),),
}
_PARKED, _JIT = (other_threads.THREADING, "wait"), end("_src", "pjit.py")
# It calls the program's handler of a connection, which waits for its requests.
_HANDLING = ("socketserver.py", "finish_request")
# Of the flags of code.
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NO_DISPATCH = (end("_src", "tree_util.py"), end("_src", "profiler.py"))
# Of JAX's core, which ask what something is, whatever they call.
_CORE = end("_src", "core.py")
_ASKING = frozenset(("__instancecheck__", "get_opaque_trace_state", "typeof"))
_USER, _LIBRARY, _JAX, _OURS = range(4)
_NOT_THEIRS = frozenset((_JAX, _OURS))
# Packages, or the standard library, of which JAX calls functions while it traces.
_TOOLS = frozenset((None, "numpy"))


class Doing(NamedTuple):
    """
    What a thread is doing.

    Attributes:
        state: one of the constants here; `PYTHON` if it runs, or waits in, anything
            else.
        line: the innermost line of the user's code, from a file if any of it is.
        function: the label of the jitted function that is called or traced, if known.
        drives: whether it is in code that calls jitted functions or operations.
        event_loop: whether an event loop of asyncio has called that.
        of_user: whether code of the user's does.
        parked: whether it waits for an event or condition of `threading`, or for a
            socket.
        ours: whether it is what we do, on a thread of the program.
        caller: the line of code that drives the device, or of the outermost loop that
            JAX traces, which has called *line*; empty if there is none.
        divides: whether it waits for what another process of `multiprocessing` does.
        holds_loop: whether a coroutine of the user's, then *caller*, keeps its event
            loop.
        loop: the line of the outermost loop of the user's that this is in, if any.
        work: whether it waits for what may never come: an item, a condition, input.
        answers: whether it waits so for requests, without a time limit, in a loop
            whose code sets the results of futures.
        sleeps: whether it is a line of the user's in `time.sleep`, if it waits.
        once: whether the program comes there only once: from its module, in no loop of
            its own, and no library calls it.
    """

    state: str
    line: SourceLine
    function: str = ""
    drives: bool = False
    event_loop: bool = False
    of_user: bool = False
    parked: bool = False
    ours: bool = False
    caller: SourceLine = UNKNOWN
    divides: bool = False
    holds_loop: bool = False
    loop: SourceLine = UNKNOWN
    work: bool = False
    sleeps: bool = False
    once: bool = False
    answers: bool = False


class ActivityReader:
    """Reads stacks, by the known places that call; *finder* finds the user's lines."""

    def __init__(self, jax: ModuleType, sites: CallSites) -> None:
        self._sites = sites
        self._jax = directories(jax)
        self.finder = SourceLineFinder(jax)
        self._loops = CodeLoops()
        self._kind_of = lru_cache(MAX_SITES)(self._kind)

    def read(self, stack: Stack) -> Doing:
        """Return what the thread does; about half a microsecond per function."""
        sites = self._sites
        state, function, rest = self._innermost(stack)
        user: Position | None = None
        caller = UNKNOWN
        drives = is_packaged = holds = answers = gives_item = False
        for at in rest:
            kind = self._kind_of(at.code.co_filename)
            if kind == _USER:
                if user is None or _is_generated(user) > _is_generated(at):
                    user = at
                is_packaged = is_packaged or package_of(at.code.co_filename) is None
                sites.study(at.code, at.names)
                answers = answers or sites.offsets(at.code).answers
                if state in _DRIVEN and user is at:
                    sites.is_driver(at.code)
                is_driver = not drives and sites.drives(at.code)
                is_first = not (holds or state) and bool(at.code.co_flags & _COROUTINE)
                if (is_driver and not holds) or is_first:
                    caller = UNKNOWN if user is at else _line(at)
                drives, holds = drives or is_driver, holds or is_first
                if state != COMPILE and (
                    sites.waits_for_item(at.code, at.offset)
                    or (gives_item and sites.drives(at.code))
                ):
                    state = DATA_WAIT
            elif kind == _LIBRARY:
                if not is_packaged and state in _MAY_IMPORT and _imports(at.code):
                    # An installed package that is imported is no line of the program.
                    state, user = STARTUP, None
            elif kind == _JAX and state != STARTUP:
                role = _ROLES.get(at.code.co_name, "")
                state = role if role in _WHATEVER_BELOW else state
            # Those of libraries may be of files, or of anything.
            gives_item = kind == _USER and at.code.co_name == _GIVES_ITEM
        line = UNKNOWN if user is None else _line(user)
        loops = any([_is_event_loop(at.code) for at in rest])
        parked, work = self._sleeps(stack[0], stack) if stack else (False, False)
        of_user = user is not None
        ours = user is None and _is_only_ours(stack)
        state = self._finished(stack, state)
        caller = self._calls(rest, user) if state == EAGER else caller
        function, caller = self._traced(rest, state, (function, caller))
        divides = parked and _of_pool(stack, "get")
        drives = drives or divides
        divides = (
            divides
            or other_threads.takes_from_process(stack)
            or _of_pool(stack, "next")
        )
        loop = self._loop(rest)
        return Doing(
            *(state, line, function, drives, loops, of_user, parked, ours, caller),
            divides=divides,
            holds_loop=holds and loops,
            loop=loop,
            work=work,
            sleeps=bool(stack)
            and stack[0].offset in self._sites.offsets(stack[0].code).sleeping,
            answers=answers and work and other_threads.needs_threads(stack),
            once=not loop.file and self._is_once(rest),
        )

    def _traced(
        self, stack: Stack, state: str, called: tuple[str, SourceLine]
    ) -> tuple[str, SourceLine]:
        if state != COMPILE or not stack:
            return called
        (function, _), caller, within, inner = called, UNKNOWN, UNKNOWN, stack[0]
        traces = jits = False
        for at in stack:
            if self._kind_of(at.code.co_filename) in _NOT_THEIRS:
                traces = traces or at.code.co_name in _COMPILING
                jits = jits or at.code.co_filename.endswith(_JIT)
                continue
            if traces and (outer := self._runs_first(at) or jits * self._label(inner)):
                function, caller = outer, within
            inner, traces, jits = at, False, False
            within = _line(at) if self.loop_at(at.code, at.offset) else within
        return function, caller

    def _finished(self, stack: Stack, state: str) -> str:
        """
        Return *state*; that of an operation outside of jit if all that JAX traces is
        for shapes which a library asks for, as Flax does at each call.
        """
        asks = shapes = False
        for at in stack if state == COMPILE else ():
            kind, name = self._kind_of(at.code.co_filename), at.code.co_name
            if kind != _JAX:
                shapes, asks = (shapes or asks) and (not asks or kind != _USER), False
            elif name == SHAPES or name in _COMPILING:
                asks, shapes = name == SHAPES, False
        return EAGER if shapes else state or PYTHON

    def _label(self, at: Position) -> str:
        """Return the name of a function, unless it is a tool that JAX itself uses."""
        file, module = at.code.co_filename, dict.get(at.names, "__name__")
        is_tool = self._kind_of(file) == _LIBRARY and package_of(file) in _TOOLS
        return (
            ""
            if is_tool or type(module) is not str
            else f"{module}.{at.code.co_qualname}"
        )

    def _calls(self, stack: Stack, user: Position | None) -> SourceLine:
        """
        Return the line of a loop that leads to *user*, which is in none, or which a
        library has called.
        """
        calls = user is not None and not self.loop_at(user.code, user.offset)
        for at in dropwhile(lambda at: at is not user, stack):
            if self._kind_of(at.code.co_filename) != _USER:
                calls = True
            elif calls and self.loop_at(at.code, at.offset):
                return _line(at)
        return UNKNOWN

    def _sleeps(self, top: Position, stack: Stack) -> tuple[bool, bool]:
        offsets = self._sites.offsets(top.code)
        parked = top.offset in offsets.receiving or where(top.code) == _PARKED
        return parked, top.offset in offsets.taking or other_threads.takes(stack)

    def _loop(self, stack: Stack) -> SourceLine:
        found = (self.loop_at(at.code, at.offset) for at in reversed(stack))
        return next(filter(None, found), UNKNOWN)

    def _is_once(self, stack: Stack) -> bool:
        begun = left = False
        for at in reversed(stack):
            if _imports(at.code):
                continue
            if self._kind_of(at.code.co_filename) != _USER:
                left = begun
            elif left or not (begun or at.code.co_name == "<module>"):
                return False
            else:
                begun = True
        return begun

    def user_line(self, stack: Stack) -> SourceLine:
        """Return the innermost line of the user's."""
        users = (at for at in stack if self._kind_of(at.code.co_filename) == _USER)
        return next(map(_line, users), UNKNOWN)

    def loop_at(self, code: CodeType, offset: int) -> SourceLine | None:
        """Return the line of the outermost loop of *code*, if it is the user's."""
        is_user = self._kind_of(code.co_filename) == _USER
        return self._loops.at(code, offset) if is_user else None

    def _innermost(self, stack: Stack) -> tuple[str, str, Stack]:
        """Return what the innermost do, what jitted one they call, and what calls."""
        state, depth = "", 0
        while depth < len(stack):
            code = stack[depth].code
            if (kind := self._kind_of(code.co_filename)) not in _NOT_THEIRS:
                break
            if kind == _JAX:
                # A running program waits for what JAX does around a callback.
                state = (
                    DEVICE if other_threads.is_callback(code) else _in_jax(code, state)
                )
            depth += 1
        rest = stack[depth:]
        if not rest:
            return state, "", rest
        at, sites = rest[0], self._sites
        if is_check := state == _CHECK:
            called = sites.at(at.code, at.offset)
            state = EAGER if called is not None and called.state == EAGER else FETCH
        calls = is_check or state in {DEVICE, COMPILE}
        if state:
            return state, self._runs_first(at) if calls else "", rest
        sites.study(at.code, at.names)
        site = sites.at(at.code, at.offset)
        if site is None:
            return self._waiting(rest), "", rest
        wraps = self._kind_of(at.code.co_filename) == _LIBRARY and sites.calls(at.code)
        if site.state == FETCH and wraps:
            # It calls a jitted function, and always waits for it: Equinox does.
            return DEVICE, "", rest
        return site.state, site.function, rest

    def _runs_first(self, at: Position) -> str:
        """Return which jitted function JAX compiles or runs at this position."""
        site = self._sites.at(at.code, at.offset)
        return site.function if site is not None and site.state == DEVICE else ""

    def _waiting(self, stack: Stack) -> str:
        """Return the state of a thread that waits, empty if it may not wait."""
        places = [where(at.code) for at in stack[:2]]
        if (
            other_threads.FOR_ITEM in places
            or other_threads.takes_from_process(stack)
            or _of_pool(stack, "next")
        ):
            return ITEM
        # That of uvloop waits in C.
        if places[0] in _FOR_WORK or _is_event_loop(stack[0].code):
            return IDLE
        if places[0] in other_threads.FOR_THREADS:
            # What a library's own thread does, it does for the program: a checkpoint.
            joins = next(
                (at for at in stack if where(at.code)[0] != other_threads.THREADING),
                None,
            )
            is_packaged = joins is not None and self.finder.is_package(
                joins.code.co_filename
            )
            return "" if is_packaged else JOIN
        top, offsets = stack[0], self._sites.offsets(stack[0].code)
        handles = any(where(at.code) == _HANDLING for at in stack)
        receives = handles and top.offset in offsets.receiving
        return IDLE if receives or top.offset in offsets.idling else ""

    def lines(self, stack: Stack) -> list[SourceLine]:
        """Return the lines of *stack* without our functions, innermost first."""
        return [_line(at) for at in stack if not _is_ours(at.code.co_filename)]

    def _kind(self, file: str) -> int:
        if file.startswith(self._jax):
            return _JAX
        if _is_ours(file):
            return _OURS
        # Frozen modules are the interpreter's own.
        library = file.startswith("<frozen ") or self.finder.is_library(file)
        return _LIBRARY if library else _USER


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
    """Return what a thread does that runs *code* of JAX, which called *state*."""
    name = code.co_name
    if state in _DISPATCHES and name in _RUNNING:
        return DEVICE if code.co_filename.endswith(_RUNNING[name]) else EAGER
    if state in _DISPATCHES and name in _MAKING:
        return MAKE if code.co_filename.endswith(_MAKERS) else EAGER
    asks = state in _DISPATCHES and name in _ASKING
    if asks := asks and code.co_filename.endswith(_CORE):
        state = ""
    stays = state in _STAYS and (state != GC or name not in _COMPILING)
    if stays or (state and name not in _ROLES and name != "cache_miss"):
        return EAGER if state == _CHECK and name != _RERAISES else state
    if (role := _ROLES.get(name)) is not None:
        return role
    if state:
        return COMPILE if state == EAGER else state
    # What takes trees apart, for the program or a library, dispatches nothing; nor does
    # what writes a profile.
    return "" if asks or code.co_filename.endswith(_NO_DISPATCH) else EAGER


def _of_pool(stack: Stack, function: str) -> bool:
    """Return whether it is in that *function* of a pool's results."""
    return any(
        at.code.co_name == function and at.code.co_filename.endswith(_POOL)
        for at in stack[: other_threads.ABOVE_PIPE]
    )
