"""
Errors raised by jitted calls or device waits, each counted once.

There are three points of observation. JAX's Python code filters the traceback of each
error that leaves one of its functions: a call that missed, a transformation. An
exception that C++ raises while the program waits for a result does not pass there, so
the construction of the runtime's exceptions is observed too. And JAX raises a builtin
exception when the program reads an array that it has deleted or donated.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import functools
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType, ModuleType, TracebackType
from typing import Any
from weakref import ReferenceType, ref

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context, CountedError
from jaxmon.agent.errors.helpers import HelperFailures
from jaxmon.agent.errors.last_words import LastWords
from jaxmon.agent.functions import UNKNOWN, Function, active, by_value
from jaxmon.agent.jaxlink import failures, frames
from jaxmon.agent.jaxlink import patches as patch_targets
from jaxmon.agent.jaxlink.failures import Stage
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder, raised, stack_of
from jaxmon.agent.part import Part
from jaxmon.exposition.families import Family
from jaxmon.host.sources import display_path


# Errors that may still be propagating, on all threads together.
_REMEMBERED = 64
_MAX_FRAMES = 200
_ASYNCIO = "asyncio"


class _ErrorThread(threading.local):
    """`failed`: a callback that failed was counted, whose error is still to be met."""

    failed = False


class ErrorPart(Part):
    """
    Classifies and counts errors. Called on the thread that has the error; for calls
    that one leaves, *on_call_error* is called with their frames.
    """

    name = "errors"

    def __init__(
        self,
        context: Context,
        *,
        function_of: Callable[[Jitted], Function],
        on_call_error: Callable[[FrameType, Jitted], None],
        words: LastWords,
    ) -> None:
        self.words = words
        self._context = context
        self._guard = context.guard
        self._sites = SourceLineFinder(context.jax)
        self.helpers = HelperFailures(self._sites)
        # An error cannot be kept: its traceback refers to the program's arrays. Builtin
        # classes have no weak references, and ids are reused. But its tuple of
        # arguments belongs to no other error as long as we hold it.
        self._seen: deque[tuple[object, ...]] = deque(maxlen=_REMEMBERED)
        self._seen_weakly: dict[int, ReferenceType[BaseException]] = {}
        self._function_of = function_of
        self._on_left = on_call_error
        self._thread = _ErrorThread()
        self._hooks: Hooks | None = None
        self._clean: Callable[[], bool] = bool  # until attached: never
        context.observers.surfaced.append(self.on_surfaced)

    def attach(self, hooks: Hooks) -> None:
        """Observe errors that leave JAX, and uncaught errors."""
        self._hooks, self._clean = hooks, hooks.is_calling
        jax = self._context.jax

        def take_construction(at: HookPlaces) -> None:
            construction = patch_targets.ErrorConstructionHook(
                # Before 0.8 an alias of jaxlib's XlaRuntimeError.
                jax.errors.JaxRuntimeError,
                self.on_error_created,
                self._guard,
            )
            at.undo_by(construction.detach)
            construction.attach()

        def take_deleted(at: HookPlaces) -> None:
            (owner, name), raises = patch_targets.deleted_array(jax)

            def describe(shape: Any, frame: FrameType) -> None:
                at = frame.f_back or frame
                if frame.f_code is not raises or frames.is_our_own(at):
                    return
                if not frames.is_below_boundary(at):
                    error = RuntimeError(failures.deleted(shape))
                    function = self._context.table.named(UNKNOWN)
                    self._take(function, error, "wait", at)

            original, site = vars(owner)[name], "deleted_arrays"
            deleted = patch_targets.Lookup(original, describe, self._guard, site)
            at.undo_by(deleted.detach)
            at.replace(owner, name, deleted)

        boundary = patch_targets.traceback_filter
        hooks.attach("errors", lambda at: at.probe(*boundary(jax), self.on_error))
        hooks.attach("uncaught", self._take_uncaught)
        hooks.attach(patch_targets.ERRORS_SITE, take_construction)
        hooks.attach("deleted_arrays", take_deleted)

    def _take_uncaught(self, at: HookPlaces) -> None:
        """
        Observe uncaught errors reported by the interpreter and asyncio.

        | place | reports |
        |---|---|
        | `sys.excepthook` | exceptions that end the program |
        | `sys.exit` | its code, which Python does not report, and from where or why |
        | `signal.raise_signal` | a signal that is handled, and then raised again |
        | `threading.excepthook` | exceptions that end a thread |
        | `sys.unraisablehook` | exceptions of finalisers and of callbacks from C |
        | the logger ``asyncio`` | exceptions of tasks and callbacks, never retrieved |

        The hooks may be plain functions: they are called after the traceback was
        created, and then continue as before. asyncio offers one handler, which belongs
        to the program; the default one logs, which a filter of the logger observes,
        including under uvloop.
        """
        at.undo_by(partial(logging.getLogger(_ASYNCIO).removeFilter, self._on_record))
        hook, thread_hook = sys.excepthook, threading.excepthook
        unraisable_hook = sys.unraisablehook
        raise_signal = _signal.raise_signal
        observe, words = self.on_surfaced, self.words

        def excepthook(
            kind: type[BaseException], error: BaseException, tb: TracebackType | None
        ) -> None:
            words.on_uncaught(error)
            observe(error)
            hook(kind, error, tb)

        def thread_excepthook(args: threading.ExceptHookArgs) -> None:
            observe(args.exc_value)
            inner = thread_hook is not threading.__excepthook__
            outer = threading.excepthook is not thread_excepthook
            with self._guard.contained("uncaught"):  # the program is reporting
                handled = inner or outer
                self.helpers.on_uncaught(args.thread, args.exc_value, handled=handled)
            thread_hook(args)

        def unraisablehook(unraisable: Any) -> None:
            observe(unraisable.exc_value)
            unraisable_hook(unraisable)

        _replace(at, sys, "excepthook", excepthook)
        at.replace(sys, "exit", words.exiting(sys.exit))
        # A program may have a module of that name.
        for module in filter(None, (_signal, sys.modules.get("signal"))):
            if vars(module).get("raise_signal") == raise_signal:
                at.probe(module, "raise_signal", words.raising(raise_signal))
        _replace(at, threading, "excepthook", thread_excepthook)
        _replace(at, sys, "unraisablehook", unraisablehook)
        logging.getLogger(_ASYNCIO).addFilter(self._on_record)

    def _on_record(self, record: logging.LogRecord) -> bool:
        # A record created by hand may have anything here.
        found: object = record.exc_info
        if isinstance(found, tuple):
            errors = [value for value in found if isinstance(value, BaseException)]
            self.on_surfaced(errors[0] if errors else None)
        return True

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
        call = frames.call_in(below)
        if call is None:
            self.record_uncaught(error, frame=frame.f_back)
            return
        direct = below is not None and call is below.tb_frame
        jitted = frames.jitted_at(call, above=frame.f_back if direct else None)
        if jitted is None:
            return
        if direct and jitted.call:
            self._on_left(call, jitted)
        function = self._function_of(jitted)
        # JAX's NaN check re-runs a function operation by operation: the error belongs
        # to the function, which it leaves next.
        is_inner = function.internal and frames.is_below_call(frame.f_back)
        if not is_inner and not self._is_known(error):
            self._remember(error)
            self._take(function, error, failures.stage_of(error), frame.f_back)

    def on_error_created(self, error: BaseException, frame: FrameType | None) -> None:
        """
        Observe the construction of a runtime error below *frame*.

        JAX also constructs and discards errors when it tries things, and clients of the
        coordination service request keys that do not exist yet: out-of-memory errors
        apart, only those count that the program meets next. If an API boundary of JAX
        is on the stack, the error is recorded there, where more is known.
        """
        if frames.is_our_own(frame) or frames.is_below_boundary(frame):
            return
        if failures.kind_of(error) != "oom" and not (
            frames.is_wait(frame)
            or (frames.is_outside(frame) and failures.is_of_a_program(error))
        ):
            return
        stage: Stage = "dispatch" if frames.asks_for_memory(frame) else "wait"
        # A wrong location is worse than none.
        late = failures.is_created_late(error)
        self.record_uncaught(error, stage=stage, frame=None if late else frame)

    def on_surfaced(self, error: BaseException | None) -> None:
        """Count *error* if it is from JAX and not counted yet. Never raises."""
        hooks = self._hooks
        if hooks is not None and hooks.on and self._guard.on("uncaught"):
            with self._guard.contained("uncaught"):  # the program is reporting
                self.record_uncaught(error, is_known=self._is_counted)

    def record_uncaught(
        self,
        error: BaseException | None,
        *,
        stage: Stage | None = None,
        frame: FrameType | None = None,
        is_known: Callable[[BaseException], bool] | None = None,
    ) -> None:
        """
        Record an exception that propagated from a thread, request, activity or wait,
        counting JAX errors in it not counted before; others are ignored.

        A failing cached call, or a device error that surfaces when the result is
        awaited, never passes the miss path; the function is then unknown unless the
        message names it. *stage* is better known than from the traceback, *frame* the
        origin of an error that has none yet.
        """
        if error is None:
            return
        for failure in failures.iter_jax_errors(error, is_known or self._is_known):
            self._remember(failure)
            reached = stage or failures.stage_of(failure)
            self._take(self._named_in(failure), failure, reached, frame)

    def record_callback(self, message: str, frame: FrameType) -> None:
        """
        Record that a callback failed, as JAX logs below *frame*. If it is below a
        cached call, that raises next, straight from C++; otherwise the error is seen
        where it leaves JAX, or where the program waits.
        """
        self._thread.failed = False
        if frames.is_below_boundary(frame) or not frames.calls_back_inline(frame):
            return
        text = f"INTERNAL: {message}: {type(sys.exception()).__name__}"
        function = self._context.table.named(UNKNOWN)
        self._take(function, ValueError(text), "dispatch", frame)
        self._thread.failed = True

    def stop(self) -> None:
        """Forget the errors seen."""
        self._seen.clear()
        self._seen_weakly.clear()

    def collect(self) -> list[Family]:
        """Return the errors of each function."""
        found = active(self._context.table)
        kinds = (
            (f, () if f.internal else catalog.ERROR_KINDS, f.errors) for f in found
        )
        return [by_value(catalog.ERRORS, kinds)]

    def _is_counted(self, error: BaseException) -> bool:
        """Return whether *error* is known, or was counted as JAX raised it."""
        if self._hooks is not None and self._hooks.is_active("deleted_arrays"):
            return failures.is_deleted_array(error) or self._is_known(error)
        return self._is_known(error)

    def _take(
        self,
        function: Function,
        error: BaseException,
        stage: Stage | None,
        frame: FrameType | None,
    ) -> None:
        where = self._place(error, frame)
        kind = failures.kind_of(error)
        function.count_error(kind)
        # The user's own exceptions may contain anything.
        quoted = self._context.settings.event_values or failures.is_from_jax(error)
        message = ""
        with self._contained():
            message = failures.message_of(error) if quoted else ""
        seen = CountedError(function, kind, error, message, quoted, stage, where)
        for observe in (self._note, *self._context.observers.error):
            with self._contained():
                observe(seen)

    @contextlib.contextmanager
    def _contained(self) -> Iterator[None]:
        # If there is no memory, that is no failure of ours.
        with (
            self._guard.contained("errors_told", stays_on=True),
            interrupts.expected(MemoryError),
        ):
            yield

    def _note(self, seen: CountedError) -> None:
        name = type(seen.error).__name__
        self._context.events.add(
            "error",
            seen.function.name,
            f"{name}: {seen.message}" if seen.message else name,
            error_kind=seen.kind,
            type=name,
            stage=seen.stage,
            where=seen.where,
        )

    def _is_known(self, error: BaseException) -> bool:
        if self._thread.failed and failures.is_of_callback(error):
            self._thread.failed = False
            self._remember(error)
            return True
        reference = self._seen_weakly.get(id(error))
        if reference is not None and reference() is error:
            return True
        return id(error.args) in map(id, list(self._seen))

    def _remember(self, error: BaseException) -> None:
        key, args = id(error), error.args
        try:
            # The callback is C code and runs before the id can be reused.
            forget = functools.partial(self._seen_weakly.pop, key)
            self._seen_weakly[key] = ref(error, forget)
        except TypeError as failed:
            interrupts.pass_on(failed)
            # Anything else may be large, and would be kept alive; `()` is shared by
            # all.
            if args and all([isinstance(arg, str | int) for arg in args]):
                self._seen.append(args)

    def _place(self, error: BaseException, above: FrameType | None) -> str | None:
        """Return the innermost line of user code that *error* passed or came from."""
        where: str | None = None
        with self._contained():
            stack = raised(error, most=_MAX_FRAMES)
            stack += stack_of(above, most=_MAX_FRAMES - len(stack))
            site = self._sites.of(stack)
            where = f"{display_path(site.file)}:{site.line}" if site.file else None
        return where  # noqa: RET504 - the block may end early

    def _named_in(self, error: BaseException) -> Function:
        name = failures.function_named_in(error)
        table = self._context.table
        found = [f for f in table if name and f.name.rpartition(".")[2] == name]
        return found[0] if len(found) == 1 else table.named(UNKNOWN)


def _replace(at: HookPlaces, owner: ModuleType, name: str, ours: Any) -> None:
    """Replace the hook ``owner.name``; *ours* looks like it, and is pickled by name."""
    functools.update_wrapper(ours, getattr(owner, name))
    ours.__module__, ours.__qualname__ = owner.__name__, name
    ours.__annotations__ = {}
    at.replace(owner, name, ours)
