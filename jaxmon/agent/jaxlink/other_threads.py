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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import sleep
from types import FrameType
from typing import TypeVar


_IN_ALLOCATIONS = sys.version_info < (3, 12)
_WITHOUT_LOCK = not getattr(sys, "_is_gil_enabled", lambda: True)()

# What is allocated for one thread besides its frame, and for one frame.
_FOR_A_THREAD = 2
_SPARE = 16
# Threads that may have started since the last time.
_MORE_THREADS = 16

counts = iter(gc.get_count, None)
"""Yields the numbers of objects, of which the first makes the collector due."""


class NotNowError(Exception):
    """The collector is due; try again in a millisecond."""


_ATTEMPTS = 50
_PAUSE = 0.001
T = TypeVar("T")


class _Threads:
    number = 1


def limit() -> int:
    """
    Return the number of new objects up to which a frame may be asked for.

    Raises:
        NotNowError: never possible: threads run in parallel.
    """
    if _WITHOUT_LOCK:
        raise NotNowError
    if not _IN_ALLOCATIONS or not gc.isenabled():
        return sys.maxsize
    # 0: never due.
    return (gc.get_threshold()[0] or sys.maxsize) - _SPARE


@contextmanager
def frames_by_thread() -> Iterator[dict[int, FrameType]]:
    """
    Yield the innermost frame of each thread.

    They are let go at the end, even if an exception keeps the caller's variables: a
    frame holds the variables of a function that has returned, arrays among them.

    Raises:
        NotNowError: the collector is due.
    """
    room = limit() - _FOR_A_THREAD * (_Threads.number + _MORE_THREADS)
    for count in counts:
        if count[0] < room:
            found = sys._current_frames()  # noqa: SLF001
            break
        raise NotNowError
    _Threads.number = len(found)
    try:
        yield found
    finally:
        found.clear()


def caller_of(frame: FrameType, most: int) -> FrameType | None:
    """
    Return the caller of *frame*, a frame of another thread.

    Args:
        frame: the frame.
        most: the `limit`.

    Raises:
        NotNowError: the collector is due.
    """
    for count in counts:
        if count[0] < most:
            return frame.f_back
        raise NotNowError
    return None  # not reached: there is always a number


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
