"""
What a thread is doing, from the stack of its Python frames.

Read from another thread, many times a second, so nothing here allocates more than a
tuple, and no variable of a frame is read.
"""

from __future__ import annotations

import os
from types import CodeType, FrameType, ModuleType
from typing import NamedTuple

from jaxmon.agent.jaxlink.call_sites import DEVICE, EAGER, MAX_SITES, CallSites
from jaxmon.agent.jaxlink.other_threads import caller_of, limit
from jaxmon.agent.jaxlink.ownership import directories
from jaxmon.agent.jaxlink.source_lines import (
    AGENT,
    OURS,
    PROGRAMS,
    SourceLine,
    SourceLineFinder,
)


COMPILE = "compile"
DATA_WAIT = "data_wait"
FETCH = "fetch"
TRANSFER = "transfer"
PYTHON = "python"
GC = "gc"
"""Collects garbage."""
ITEM = "item"
"""Waits for an item of a queue: for data in training, for work in serving."""
IDLE = "idle"

_MOST_LINES = 1_000

# Functions of JAX that trace, lower or compile.
_COMPILING = frozenset(
    (
        "trace_to_jaxpr_dynamic",
        "lower_sharding_computation",
        "_cached_compilation",
        "compile_or_get_cached",
    )
)
# Functions of JAX that wait for results and copy them to the host.
_FETCHING = frozenset(("_value", "block_until_ready", "device_get"))
# Called by the garbage collector; it gives up the interpreter there, if it is asked to.
_COLLECTING = "_xla_gc_callback"
# Functions of JAX that copy to a device.
_PUTTING = frozenset(
    ("device_put", "batched_device_put", "_batched_device_put_impl", "_device_put_impl")
)
_ROLES = {
    **dict.fromkeys(_COMPILING, COMPILE),
    **dict.fromkeys(_FETCHING, FETCH),
    **dict.fromkeys(_PUTTING, TRANSFER),
    _COLLECTING: GC,
}
# Whatever has called it.
_STAYS = frozenset((COMPILE, GC))
# Where threads of the standard library wait, by file and function.
_FOR_ITEM = ("queue.py", "get")
_FOR_WORK = frozenset(
    (
        ("selectors.py", "select"),
        ("thread.py", "_worker"),
        ("socketserver.py", "serve_forever"),
        ("socket.py", "accept"),
    )
)
_EXECUTION = os.path.join("interpreters", "pxla.py")  # noqa: PTH118 - end of a path
_USER, _LIBRARY, _JAX, _OURS = range(4)
_NOT_THEIRS = frozenset((_JAX, _OURS))
_UNKNOWN = SourceLine("", 0, "")


class Doing(NamedTuple):
    """
    What a thread is doing.

    Attributes:
        state: one of the constants here; `PYTHON` if it runs, or waits in, anything
            else.
        line: the innermost line of the user's code, else of a library.
        function: the label of the jitted function that is being called, if known.
        drives: whether it is in code that calls jitted functions or operations.
    """

    state: str
    line: SourceLine
    function: str = ""
    drives: bool = False


class ActivityReader:
    """
    Reads stacks.

    Args:
        jax: the module.
        sites: the known places that call.
    """

    def __init__(self, jax: ModuleType, sites: CallSites) -> None:
        self._sites = sites
        self._jax = directories(jax)
        self._lines = SourceLineFinder(jax)
        self._kinds: dict[str, int] = {}

    def read(self, frame: FrameType | None) -> Doing:
        """
        Return what the thread whose innermost frame is *frame* is doing.

        Costs about half a microsecond per frame.

        Raises:
            NotNowError: see `other_threads`.
        """
        sites, most = self._sites, limit()
        state, function, at = self._innermost(frame, most)
        user: FrameType | None = None
        library: FrameType | None = None
        drives = False
        while at is not None:
            kind = self._kind(at)
            if kind == _USER:
                user = user or at
                sites.study(at)
                if state == EAGER and user is at:
                    sites.is_driver(at.f_code)
                drives = drives or sites.drives(at.f_code)
                if state != COMPILE and sites.waits_for_item(at):
                    state = DATA_WAIT
            elif kind == _LIBRARY:
                library = library or at
            elif _ROLES.get(at.f_code.co_name) == COMPILE and kind == _JAX:
                state = COMPILE
            at = caller_of(at, most)
        told = user or library
        line = _UNKNOWN if told is None else _line(told)
        return Doing(state or PYTHON, line, function, drives)

    def _innermost(
        self, at: FrameType | None, most: int
    ) -> tuple[str, str, FrameType | None]:
        """
        Return what the innermost frames do, the label of the jitted function that they
        call, and the first frame above those of JAX.
        """
        state = ""
        while at is not None and (kind := self._kind(at)) in _NOT_THEIRS:
            if kind == _JAX:
                state = _in_jax(at.f_code, state)
            at = caller_of(at, most)
        if state or at is None:
            return state, "", at
        site = self._sites.at(at)
        if site is None:
            return _waiting(at, most), "", at
        return site.state, site.function, at

    def stack(self, frame: FrameType | None) -> list[SourceLine]:
        """
        Return the stack of *frame* without our frames, innermost first.

        Raises:
            NotNowError: see `other_threads`.
        """
        found: list[SourceLine] = []
        most = limit()
        while frame is not None and len(found) < _MOST_LINES:
            if not _is_ours(frame.f_code.co_filename):
                found.append(_line(frame))
            frame = caller_of(frame, most)
        return found

    def _kind(self, frame: FrameType) -> int:
        file = frame.f_code.co_filename
        kind = self._kinds.get(file)
        return self._learn(file) if kind is None else kind

    def _learn(self, file: str) -> int:
        if file.startswith(self._jax):
            kind = _JAX
        elif _is_ours(file):
            kind = _OURS
        else:
            # Frozen modules are the interpreter's own.
            library = file.startswith("<frozen ") or self._lines.is_library(file)
            kind = _LIBRARY if library else _USER
        if len(self._kinds) >= MAX_SITES:
            self._kinds.clear()
        self._kinds[file] = kind
        return kind


def _is_ours(file: str) -> bool:
    return file.startswith((OURS, AGENT)) and not file.startswith(PROGRAMS)


def _line(frame: FrameType) -> SourceLine:
    code = frame.f_code
    # `None` between two instructions of a line that Python has generated.
    number = frame.f_lineno or code.co_firstlineno
    return SourceLine(code.co_filename, number, code.co_name)


def _in_jax(code: CodeType, state: str) -> str:
    """
    Return what a thread does that runs *code* of JAX, which has called code that does
    *state*.
    """
    name = code.co_name
    if state in _STAYS or (state and name not in _ROLES and name != "cache_miss"):
        return state
    if (role := _ROLES.get(name)) is not None:
        return role
    if state:
        return COMPILE if state == EAGER else state
    # How a program just compiled, or one with effects, is run.
    runs = name == "__call__" and code.co_filename.endswith(_EXECUTION)
    return DEVICE if runs else EAGER


def _waiting(frame: FrameType, most: int) -> str:
    """Return the state of a thread that waits in *frame*, empty if it may not wait."""
    if _where(frame) in _FOR_WORK:
        return IDLE
    callers = (frame, caller_of(frame, most))
    return ITEM if any([f and _where(f) == _FOR_ITEM for f in callers]) else ""


def _where(frame: FrameType) -> tuple[str, str]:
    code = frame.f_code
    return code.co_filename.rpartition(os.sep)[2], code.co_name
