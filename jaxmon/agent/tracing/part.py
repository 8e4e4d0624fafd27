"""
Reads the source of each function of the user when it is first compiled.

What a jitted function does beside its computation happens while JAX traces it, and on
no other call: a random number of the host becomes a constant, a list gets a traced
value. JAX reports nothing of that, so the source is read, on a thread of ours.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.counted import uncounted
from jaxmon.agent.functions import Function
from jaxmon.agent.inspection import ABSENT, field_of, is_subclass, partial_parts
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.jit import static_arguments
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.tracing.objects import Mistake, TracedFunction
from jaxmon.agent.worker import Worker
from jaxmon.clocks import thread_time
from jaxmon.facts.events import TraceMistake, Tracing
from jaxmon.host.sources import display_path


_MOST_WRAPPERS = 16
_MAX_SOURCES = 5_000
"""Maximum number of functions read in a process."""

_MAX_MISTAKES = 100
_MAX_FUNCTIONS = 8
"""Maximum number of jitted functions remembered per mistake."""

_GATHER_SECONDS = 0.5
# A request waits so long.
_ASKED_SECONDS = 0.5


class _Unread(NamedTuple):
    """A `TracedFunction` to read, by references, and its static arguments."""

    name: str
    function: Callable[[], Any]
    holder: Callable[[], Any]
    given: tuple[int, frozenset[str]]
    traced: bool
    static: tuple[int | str, ...]


class TraceMistakes(Part):
    """
    Finds mistakes in jitted functions by reading their source, once for each.

    The compiling thread only notes the function: a few microseconds. Reading takes a
    few milliseconds, within the `WorkBudget` or when someone asks, and runs no code of
    the program.
    """

    name = "tracing"

    def __init__(self, context: Context) -> None:
        self._guard = context.guard
        self._budget = context.scheduler.budget
        self._files = SourceLineFinder(context.jax)
        self._worker = Worker(self.name, context.scheduler, gather=_GATHER_SECONDS)
        self._unread: deque[_Unread] = deque()
        self._is_queued = False
        # By id, with the code itself, so that the id cannot be reused.
        self._seen: dict[int, types.CodeType] = {}
        self._found: dict[Mistake, dict[str, None]] = {}
        context.observers.compiled.append(self.compiled)

    def compiled(self, function: Function, jitted: Jitted) -> None:
        """Note *jitted*, which is compiled on this thread, to read it later."""
        if function.internal or self.name in self._guard.off:
            return
        try:
            self._note(function, jitted)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self.name)

    def _note(self, function: Function, jitted: Jitted) -> None:
        fun: Any = jitted.fun
        entry = _PLAIN
        if type(fun) is not types.FunctionType or fun.__dict__:
            found = entry_of(fun, self._files.is_library)
            if found is None:
                return
            entry, fun = found, found.function
        code = fun.__code__
        if id(code) in self._seen or len(self._seen) >= _MAX_SOURCES:
            return
        self._seen[id(code)] = code
        static = static_arguments(jitted.key)
        _, holder, given, traced = entry
        traced = traced and static is not None
        kept = weakref.ref(fun), _reference(holder), given, traced, static or ()
        self._unread.append(_Unread(function.name, *kept))
        if not self._is_queued:
            self._is_queued = self._worker.submit(self._read_affordable)

    def refresh(self, *, asked: bool) -> None:
        """Read all now: a report of a short run has it, too."""
        del asked
        self.finish(_ASKED_SECONDS)

    def finish(self, timeout: float) -> None:
        """Wait until the functions noted so far are read, at most *timeout* seconds."""
        if self._unread:
            self._worker.submit(self._read_all)
        self._worker.drain(timeout)

    def stop(self) -> None:
        """Drop what has not been read."""
        self._unread.clear()
        self._worker.stop()

    def explain(self) -> Explanation:
        """Return the mistakes found."""
        return Explanation({"tracing": self._explained})

    def _explained(self) -> Tracing:
        self.finish(_ASKED_SECONDS)
        return self.snapshot()

    def snapshot(self) -> Tracing:
        """Return the mistakes found, in the order in which they were found."""
        return Tracing(
            tuple(
                TraceMistake(
                    **mistake._replace(file=display_path(mistake.file))._asdict(),
                    functions=tuple(functions),
                )
                for mistake, functions in self._found.copy().items()
            )
        )

    def _read_affordable(self) -> None:
        self._is_queued = False
        self._read_while(self._budget.covers)

    def _read_all(self) -> None:
        self._read_while(object)

    def _read_while(self, goes_on: Callable[[], object]) -> None:
        while goes_on():
            began = thread_time()
            unread = None
            with interrupts.expected(IndexError):  # all are read, or were dropped
                unread = self._unread.popleft()
            if unread is None:
                return
            self._read(unread)
            self._budget.spend(began)

    def _read(self, unread: _Unread) -> None:
        # Loaded once there are functions to read.
        from jaxmon.agent.tracing.reader import read  # noqa: PLC0415

        function = unread.function()
        # It may be gone.
        if function is None or not self._files.is_user(function.__code__.co_filename):
            return
        given = unread.holder(), unread.given, unread.traced
        entry = TracedFunction(function, *given)
        for mistake in read(entry, static=unread.static, is_user=self._files.is_user):
            if mistake not in self._found and len(self._found) >= _MAX_MISTAKES:
                return
            functions = self._found.setdefault(mistake, {})
            if len(functions) < _MAX_FUNCTIONS:
                functions[unread.name] = None


# Most are functions as defined.
_PLAIN = TracedFunction(None)


def _absent() -> object:
    return ABSENT


def _reference(holder: Any) -> Callable[[], Any]:
    if holder is ABSENT:
        return _absent
    with interrupts.expected(TypeError):  # its class has no weak references
        return weakref.ref(holder)
    return type(None)


def entry_of(fun: object, is_library: Callable[[str], bool]) -> TracedFunction | None:
    """Return the user's function inside *fun*; libraries may wrap it."""
    holder: Any = ABSENT
    count, names, traced = 0, frozenset[str](), True
    for _ in range(_MOST_WRAPPERS):
        fun = uncounted(fun)
        if is_subclass(type(fun), functools.partial):
            fun, args, keywords = partial_parts(fun)
            count += len(args)
            names |= frozenset(keywords)
        elif type(fun) is types.MethodType:
            holder, fun = fun.__self__, fun.__func__
        elif (wrapped := field_of(fun, "__wrapped__")) is not ABSENT:
            is_python = type(fun) is types.FunctionType
            code = getattr(fun, "__code__", None) if is_python else None
            # JAX passes on what it gets; others may separate what is static.
            traced = traced and (code is None or not is_library(code.co_filename))
            fun = wrapped
        else:
            break
    if type(fun) is not types.FunctionType:
        return None
    return TracedFunction(fun, holder, (count, names), traced)
