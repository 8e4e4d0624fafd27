"""
Detects exceptions of the program raised while our code runs.

A signal handler, a trace function or `PyThreadState_SetAsyncExc` may raise at any
instruction, ours included: time limits work that way. Such an exception is meant for
the program. Where we contain our own failures, it must propagate, and is not a failure.

The traceback distinguishes them. The interpreter calls a handler from the frame that it
interrupts, and passes it that frame; no code in the traceback called it. An exception
that was thrown into the thread comes from no ``raise`` statement, and the interpreter
makes it from its class alone: it has no arguments, or a class that nothing of what we
call raises. In doubt it is the program's.

Runs only after a failure; costs microseconds. Exceptions that JAX itself drops are
lost: up to 0.8, JAX ignores all errors of something it tries at each compile.
"""

from __future__ import annotations

import _queue
import _signal  # type: ignore[import-not-found]
import functools
import opcode
import sys
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FrameType, MethodType
from typing import Any

from jaxmon.threads import current


_OURS = frozenset({"jaxmon", "jaxmon_exporter"})
# Whatever of this we call raises what is documented there, or a builtin exception.
_KNOWN = (
    _OURS
    | sys.stdlib_module_names
    | frozenset({"builtins", "jax", "jaxlib", "ml_dtypes", "numpy"})
)
# What C raises without arguments.
_BARE = (StopIteration, StopAsyncIteration, MemoryError, _queue.Empty)
_RAISE = opcode.opmap["RAISE_VARARGS"]
# Of a code's flags: it takes any number of arguments.
_VARARGS = 0x04
# Errors that are looked at, of a chain.
_MAX_CHAIN = 16


def pass_on(error: BaseException, *, theirs: bool = False) -> None:
    """
    Raise the exception of the program that *error* is, or that caused *error* while we
    cleaned up after it; return if there is none.

    Call this first when handling *error*.

    Args:
        error: what our code has just caught.
        theirs: we called code of the program on purpose, which may raise anything.
    """
    if current() is not None:  # signal handlers never run there
        return
    chain = _chain(error)
    found = next(
        iter([error for error in chain if _is_interrupt(error, theirs=theirs)]), None
    )
    if found is not None:
        try:
            raise found
        finally:
            # Else its traceback, this frame and it would keep each other, and with them
            # the program's frames, until the garbage collector runs.
            del found, error, chain


class Handled:
    """A block: *handle* is called while one of *kinds* leaves it, and ends that."""

    __slots__ = ("_handle", "_kinds")

    def __init__(
        self, kinds: tuple[type[BaseException], ...], handle: Callable[[], None]
    ) -> None:
        self._kinds, self._handle = kinds, handle

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        del _  # the traceback would refer to this frame, and that to it
        if kind is None or not issubclass(kind, self._kinds):
            return False
        self._handle()
        return True


def expected(*kinds: type[BaseException]) -> Handled:
    """Drop exceptions of *kinds* that a block raises, but for the program's."""
    return Handled(kinds, _pass_on_handled)


def _pass_on_handled() -> None:
    error = sys.exception()
    assert error is not None  # noqa: S101 - for mypy
    try:
        pass_on(error)
    finally:
        del error  # as there


def printed() -> object:
    """Return the exception that was printed last."""
    return getattr(sys, "last_value", None)


def pass_on_printed(*, since: object) -> None:
    """
    Raise the exception of the program that was printed after the one *since*. C code
    that imports NumPy prints whatever ends that, and raises `ImportError`.
    """
    error = printed()
    if (
        error is not since
        and isinstance(error, BaseException)
        and _is_interrupt(error, theirs=False)
    ):
        raise error


def _chain(error: BaseException) -> Iterator[BaseException]:
    linked: BaseException | None = error
    for _ in range(_MAX_CHAIN):
        # An exception that the program itself is handling has been in one of the
        # program's frames.
        if linked is None or linked.__traceback__ is None:
            return
        if not _is_from(linked.__traceback__.tb_frame, _OURS):
            return
        yield linked
        linked = linked.__context__


def _is_interrupt(error: BaseException, *, theirs: bool) -> bool:
    below: FrameType | None = None
    at, traceback = -1, error.__traceback__
    strange = list[FrameType]()
    while traceback is not None:
        frame, at = traceback.tb_frame, traceback.tb_lasti
        if not _is_from(frame, _OURS):
            if _received_frame(frame, below):
                return True
            strange.append(frame)
        below, traceback = frame, traceback.tb_next
    if strange:
        handlers = _handlers()
        if any([frame.f_code in handlers for frame in strange]):
            return True
    if below is None or _is_raise(below.f_code, at):
        return False
    if not error.args and not isinstance(error, _BARE):
        return True
    return not theirs and _root(type(error).__module__) not in _KNOWN


def _is_raise(code: CodeType, at: int) -> bool:
    return 0 <= at < len(code.co_code) and code.co_code[at] == _RAISE


def _received_frame(frame: FrameType, below: FrameType | None) -> bool:
    if below is None:
        return False
    return any([value is below for value in _arguments(frame)])


def _arguments(frame: FrameType) -> Iterator[object]:
    """Yield the arguments of the code in *frame*, those of a tuple one by one."""
    code = frame.f_code
    number = code.co_argcount + code.co_kwonlyargcount
    number += bool(code.co_flags & _VARARGS)
    variables = frame.f_locals
    for name in code.co_varnames[:number]:
        value = variables.get(name)
        yield from value if type(value) is tuple else (value,)


def handled(frame: FrameType | None, numbers: Collection[int]) -> int:
    """
    Return which of the signals *numbers* a handler handles that has called the code in
    *frame*; 0 if none does, or if it handles an exception of its own.
    """
    error = sys.exception()
    caught_by = error and error.__traceback__ and error.__traceback__.tb_frame
    try:
        while frame is not None and frame is not caught_by:
            below = frame.f_back
            if _received_frame(frame, below):
                given = [value for value in _arguments(frame) if isinstance(value, int)]
                return next(iter([value for value in given if value in numbers]), 0)
            frame = below
    finally:
        del error, caught_by  # as there
    return 0


def _handlers() -> set[CodeType]:
    """Return the code of all signal handlers: they may have dropped their arguments."""
    found: set[CodeType] = set()
    # Not `signal`: a program may have a module of that name.
    for number in _signal.valid_signals():
        handler: Any = _signal.getsignal(number)
        if not callable(handler):
            continue
        while isinstance(handler, functools.partial):
            handler = handler.func
        if not isinstance(handler, MethodType) and not hasattr(handler, "__code__"):
            handler = type(handler).__call__
        code = getattr(handler, "__code__", None)
        if code is not None:
            found.add(code)
    return found


def _is_from(frame: FrameType, packages: frozenset[str]) -> bool:
    return _root(frame.f_globals.get("__name__")) in packages


def _root(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""
