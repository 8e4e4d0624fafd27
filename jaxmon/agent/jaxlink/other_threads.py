"""
Reads the stacks of other threads without crashing the interpreter.

Up to Python 3.11 the garbage collector may run wherever an object is allocated. Asking
for a frame of another thread allocates one; if the collector runs then, and runs Python
code that gives up the interpreter, that thread may return from the function meanwhile,
and the new frame refers to memory that is gone. So a frame is only asked for if the
collector is not due. Since 3.12 it runs between two instructions only.

The number of objects is read by an iterator, and the next thing done is to ask for the
frame: there is no call in between, after which another thread could run.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
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
    """
    Where a function on a stack is.

    Attributes:
        code: the function.
        offset: of its latest instruction.
        names: its global variables.
    """

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
    Return the stacks of some threads, by their ident; a microsecond per function.

    Args:
        choose: returns those to read, of all idents.

    Raises:
        NotNowError: the collector is due.
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
    Return whether a debugger has stopped a thread, or runs the program, as far as can
    be known now. Takes a microsecond per function on all stacks if a debugger was
    imported, else none.
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
    """
    Return the result of *read*, tried for up to 50 ms.

    Raises:
        NotNowError: the collector was always due.
    """
    for _ in range(_ATTEMPTS):
        with suppress(NotNowError):
            return read()
        # The exception is gone, and the frames that it kept.
        sleep(_PAUSE)
        make_room()
    return read()


def make_room() -> None:
    """
    Collect the newest objects, which is due in any case.

    A program that waits allocates nothing, so the collector would stay due.
    """
    if gc.isenabled():
        gc.collect(0)
