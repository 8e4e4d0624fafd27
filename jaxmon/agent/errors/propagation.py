"""
Observes errors that propagate out of JAX.

There are three points of observation. JAX's Python code filters the traceback of each
error that leaves one of its functions: a call that missed, a transformation. An
exception that C++ raises while the program waits for a result does not pass there, so
the construction of the runtime's exceptions is observed too. And JAX raises a builtin
exception when the program reads an array that it has deleted or donated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from jaxmon import interrupts
from jaxmon.agent.functions import Function
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink import failures
from jaxmon.agent.jaxlink.arrays import deleted_message
from jaxmon.agent.jaxlink.failures import Stage
from jaxmon.agent.jaxlink.frames import (
    Jitted,
    asks_for_memory,
    call_in,
    is_below_boundary,
    is_below_call,
    is_our_own,
    is_outside,
    is_wait,
    jitted_at,
)


class ErrorRecorder(Protocol):
    """Counts errors; see `jaxmon.agent.errors.part.ErrorPart`."""

    def record_from_call(
        self, function: Function, error: BaseException, above: FrameType | None = None
    ) -> None:
        """Record *error* from a call of *function* made by *above*."""
        ...

    def record_uncaught(
        self,
        error: BaseException | None,
        *,
        stage: Stage | None = None,
        frame: FrameType | None = None,
    ) -> None:
        """Record an exception that propagated from anything else."""
        ...

    def record_deleted(self, error: RuntimeError, frame: FrameType) -> None:
        """Record that an *error* like this one is raised for *frame*."""
        ...


class ErrorObserver:
    """
    Observes errors that propagate from JAX.

    Args:
        errors: counts them.
        function_of: returns the entry of a jitted function.
        clean: JAX's ``trace_state_clean``: whether the program itself is calling.
        on_call_error: called for each call that an error leaves, with its frame.
    """

    def __init__(
        self,
        errors: ErrorRecorder,
        function_of: Callable[[Jitted], Function],
        clean: Callable[[], bool],
        on_call_error: Callable[[FrameType, Jitted], None],
    ) -> None:
        self._errors = errors
        self._function_of = function_of
        self._clean = clean
        self._on_left = on_call_error

    def on_error(self, frame: FrameType, _: Callable[..., Any]) -> None:
        """
        Observe ``traceback_util._filtering_mode``, called when an error leaves JAX.

        *frame* is JAX's API boundary; the traceback entries below it show whether it
        is, or contains, a call of a jitted function.
        """
        error = sys.exception()
        if error is None or error.__traceback__ is None or not self._clean():
            return
        below = error.__traceback__.tb_next
        call = call_in(below)
        if call is None:
            self._errors.record_uncaught(error, frame=frame.f_back)
            return
        direct = below is not None and call is below.tb_frame
        jitted = jitted_at(call, above=frame.f_back if direct else None)
        if jitted is None:
            return
        if direct and jitted.call:
            self._on_left(call, jitted)
        function = self._function_of(jitted)
        # JAX's NaN check re-runs a function operation by operation: the error belongs
        # to the function, which it leaves next.
        if function.internal and is_below_call(frame.f_back):
            return
        self._errors.record_from_call(function, error, frame.f_back)

    def on_error_created(self, error: BaseException, frame: FrameType | None) -> None:
        """
        Observe the construction of a runtime error below *frame*.

        JAX also constructs and discards errors when it tries things, and clients of the
        coordination service request keys that do not exist yet: out-of-memory errors
        apart, only those count that the program meets next. If an API boundary of JAX
        is on the stack, the error is recorded there, where more is known.
        """
        if is_our_own(frame) or is_below_boundary(frame):
            return
        if failures.kind_of(error) != "oom" and not (
            is_wait(frame) or (is_outside(frame) and failures.is_of_a_program(error))
        ):
            return
        stage: Stage = "dispatch" if asks_for_memory(frame) else "wait"
        # A wrong location is worse than none.
        late = failures.is_created_late(error)
        self._errors.record_uncaught(error, stage=stage, frame=None if late else frame)

    def on_deleted(self, message: str, frame: FrameType) -> None:
        """Observe that *frame* is about to read a deleted array; JAX says *message*."""
        if not is_our_own(frame) and not is_below_boundary(frame):
            self._errors.record_deleted(RuntimeError(message), frame)


class ErrorConstructionHook:
    """
    Replaces ``__init__`` of the runtime's exception class: passes each error to
    *observe* on construction, then runs the original. Adds no frame to its traceback.
    """

    def __init__(
        self,
        observe: Callable[[BaseException, FrameType | None], None],
        *,
        guard: Guard,
        site: str,
    ) -> None:
        self._observe = observe
        self._guard = guard
        self._site = site
        self._kind: Any = None
        self._original: Any = None
        self._defines_init = False
        self.active = False

    def attach(self, kind: type[BaseException]) -> None:
        """Start observing errors of class *kind*."""
        self._kind, self._original = kind, kind.__init__
        self._defines_init = "__init__" in kind.__dict__  # since 0.10
        self.active = True
        self._kind.__init__ = self

    def detach(self) -> None:
        """Restore the class. Idempotent."""
        self.active = False
        if self._kind is None or self._kind.__dict__.get("__init__") is not self:
            return  # never attached, or patched again by code that calls us
        if self._defines_init:
            self._kind.__init__ = self._original
        else:
            del self._kind.__init__

    def __get__(self, error: BaseException | None, kind: type | None = None) -> Any:
        if error is None:
            return self._original
        if self.active and self._guard.on(self._site):
            try:
                self._observe(error, _caller())
            except MemoryError as failed:  # to be expected here
                interrupts.pass_on(failed)
            except Exception:  # noqa: BLE001 - contained: the user's error propagates
                self._guard.failed(self._site)
        return self._original.__get__(error, kind)


class DeletedArrayHook:
    """
    Replaces the method by which JAX's array class raises if an array is deleted: passes
    the message and the frame that needs the array to *observe*. Adds no frame; costs
    0.3 µs where JAX's Python code reads an array, nothing in a cached call.
    """

    __slots__ = ("_bind", "_guard", "_observe", "_site", "active")

    def __init__(
        self,
        original: Any,
        observe: Callable[[str, FrameType], None],
        *,
        guard: Guard,
        site: str,
    ) -> None:
        self._bind = original.__get__
        self._observe = observe
        self._guard = guard
        self._site = site
        self.active = True

    def detach(self) -> None:
        """Stop observing; what replaced the method again still calls this."""
        self.active = False

    def __get__(self, array: Any, owner: type | None = None) -> Any:
        if array is not None and array.is_deleted() and self.active:
            try:
                if self._guard.on(self._site):
                    self._observe(deleted_message(array), sys._getframe(1))  # noqa: SLF001
            except Exception:  # noqa: BLE001 - contained: the user's error propagates
                self._guard.failed(self._site)
        return self._bind(array, owner)


def _caller() -> FrameType | None:
    try:
        return sys._getframe(2)  # noqa: SLF001 - no other frame is there
    except ValueError as error:  # constructed by C++ on a thread without Python
        interrupts.pass_on(error)
        return None
