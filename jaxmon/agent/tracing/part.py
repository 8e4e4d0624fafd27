"""
Reads the source of each function of the user when it is first compiled.

What a jitted function does beside its computation happens while JAX traces it, and on
no other call: a random number of the host becomes a constant, a list gets a traced
value. JAX reports nothing of that, so the source is read, on a thread of ours.
"""

from __future__ import annotations

import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.inspection import ABSENT
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.jit import static_arguments
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.tracing.sources import Mistake, TracedFunction, entry_of
from jaxmon.agent.worker import Worker
from jaxmon.clocks import thread_time
from jaxmon.facts.events import TraceMistake, Tracing
from jaxmon.host.sources import display_path


_MAX_SOURCES = 5_000
"""Maximum number of functions read in a process."""

_MAX_MISTAKES = 100
_MAX_FUNCTIONS = 8
"""Maximum number of jitted functions remembered per mistake."""

_GATHER_SECONDS = 0.5
# A request waits so long.
_ASKED_SECONDS = 0.5


class _Unread(NamedTuple):
    """
    A function to read; none of its objects is kept alive.

    Attributes:
        function: its statistics.
        code: reference to the Python function.
        holder: reference to the object that it is a method of, if it is one.
        given: as in `TracedFunction`.
        traced: as in `TracedFunction`.
        static: positions and names of its static arguments.
    """

    function: Function
    code: weakref.ref[Any]
    holder: Callable[[], Any] | None
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
        if type(fun) is types.FunctionType and not fun.__dict__:  # as most
            entry: TracedFunction | None = TracedFunction(fun)
        else:
            entry = entry_of(fun, self._files.is_library)
        if entry is None:
            return
        code = entry.function.__code__
        if id(code) in self._seen or len(self._seen) >= _MAX_SOURCES:
            return
        self._seen[id(code)] = code
        static = static_arguments(jitted.key)
        unread = _Unread(
            function,
            weakref.ref(entry.function),
            None if entry.holder is ABSENT else _reference(entry.holder),
            entry.given,
            entry.traced and static is not None,
            static or (),
        )
        self._unread.append(unread)
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
                    kind=mistake.kind,
                    file=display_path(mistake.file),
                    line=mistake.line,
                    text=mistake.text,
                    within=mistake.function,
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
        while self._unread and goes_on():
            began = thread_time()
            self._read(self._unread.popleft())
            self._budget.spend(began)

    def _read(self, unread: _Unread) -> None:
        # Loaded once there are functions to read.
        from jaxmon.agent.tracing.reader import read  # noqa: PLC0415

        function = unread.code()
        if function is None:  # it is gone
            return
        if not self._files.is_user(function.__code__.co_filename):
            return
        holder = ABSENT if unread.holder is None else unread.holder()
        entry = TracedFunction(function, holder, unread.given, unread.traced)
        found = read(entry, static=unread.static, is_user=self._files.is_user)
        for mistake in found:
            if mistake not in self._found and len(self._found) >= _MAX_MISTAKES:
                return
            functions = self._found.setdefault(mistake, {})
            if len(functions) < _MAX_FUNCTIONS:
                functions[unread.function.name] = None


def _reference(holder: Any) -> Callable[[], Any]:
    with interrupts.expected(TypeError):  # its class has no weak references
        return weakref.ref(holder)
    return type(None)
