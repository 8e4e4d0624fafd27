"""
A signal at a chosen point of jaxmon's code, and whether the program gets what its
handler raises.
"""

from __future__ import annotations

import dis
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Alarm(Exception):  # noqa: N818 - a time limit's, as programs have them
    """What the program's signal handler raises."""


class LikeOurs(  # noqa: N818 - see above
    AttributeError, LookupError, MemoryError, TypeError, ValueError
):
    """The same, of every builtin class that our code expects from something else."""


class LikeAFile(TimeoutError):  # noqa: N818 - see above
    """The same, as most programs have it: an `OSError`."""


# Where the interpreter looks for signals.
_AFTER = ("CALL", "RESUME", "JUMP_BACKWARD")


class Points:
    """
    Counts the points of jaxmon's code at which a handler may run, as they are passed,
    and sends a signal at the one numbered *at*.
    """

    def __init__(self, at: int | None = None) -> None:
        self.passed = 0
        self.where = ""
        self._at = at
        self._before: dict[int, str] = {}

    def trace(self, frame: FrameType, _event: str, _: object) -> Any:
        """Be `sys.settrace`'s function."""
        name = str(frame.f_globals.get("__name__"))
        if not name.startswith("jaxmon."):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._local

    def _local(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            before = self._before.get(id(frame), "")
            op = frame.f_code.co_code[frame.f_lasti]
            self._before[id(frame)] = dis.opname[op]
            # Nor does the interpreter look on the way from a call to a handler.
            if before.startswith(_AFTER) and dis.opname[op] != "PUSH_EXC_INFO":
                self._pass(frame)
        elif event == "return":
            self._before.pop(id(frame), None)
            # The interpreter does not look on the way back into Python code.
            if frame.f_back is not None and id(frame.f_back) in self._before:
                self._before[id(frame.f_back)] = ""
        return self._local

    def _pass(self, frame: FrameType) -> None:
        self.passed += 1
        if self.passed == self._at:
            self.where = " < ".join(_ours(frame))
            signal.raise_signal(signal.SIGUSR1)


def _ours(frame: FrameType | None) -> Iterator[str]:
    """Yield what runs at *frame*, and what of jaxmon has called it."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("jaxmon."):
            code = frame.f_code
            yield f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
        frame = frame.f_back


@contextmanager
def alarms(kind: type[Exception] = Alarm) -> Iterator[list[Exception]]:
    """Have SIGUSR1 raise an exception of *kind*; yield those that were raised."""
    raised: list[Exception] = []

    def handle(signum: int, frame: object) -> None:
        del signum, frame
        raised.append(kind("time is up"))
        raise raised[-1]

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield raised
    finally:
        signal.signal(signal.SIGUSR1, before)


def run(program: Callable[[], object], at: int | None = None) -> tuple[Points, Any]:
    """
    Run *program* with a signal at the point *at*; return the points and what it raised.
    """
    points, caught = Points(at), None
    sys.settrace(points.trace)
    try:
        program()
    except Exception as error:  # noqa: BLE001 - the program's own time limit
        caught = error
    finally:
        sys.settrace(None)
    return points, caught
