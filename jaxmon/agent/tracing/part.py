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
from jaxmon.agent.tracing.mistakes import Mistake
from jaxmon.agent.worker import Worker
from jaxmon.facts.events import TraceMistake, Tracing
from jaxmon.host.sources import display_path


_MAX_SOURCES = 5_000
"""Maximum number of functions read in a process."""

_MAX_MISTAKES = 100
_MAX_FUNCTIONS = 8
"""Maximum number of jitted functions remembered per mistake."""

_WAITING = 256
_GATHER_SECONDS = 0.5


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
    few milliseconds, and runs no code of the program.
    """

    name = "tracing"

    def __init__(self, context: Context) -> None:
        self._guard = context.guard
        self._files = SourceLineFinder(context.jax)
        self._worker = Worker(
            self.name, context.scheduler, limit=_WAITING, gather=_GATHER_SECONDS
        )
        # By id, with the code itself, so that the id cannot be reused.
        self._seen: dict[int, types.CodeType] = {}
        self._found: dict[Mistake, dict[str, None]] = {}
        context.observers.compiled.append(self.compiled)

    def compiled(self, function: Function, jitted: Jitted) -> None:
        """Note *jitted*, which is compiled on this thread, to read it later."""
        if function.internal or self.name in self._guard.off:
            return
        try:
            unread = self._unread(function, jitted)
        except Exception:  # noqa: BLE001 - contained: the compile itself still counts
            self._guard.failed(self.name)
            return
        if unread is not None:
            self._worker.submit(functools.partial(self._read, unread))

    def refresh(self, *, asked: bool) -> None:
        """Read what waits for others now: a report of a short run has it, too."""
        del asked
        self._worker.drain(_GATHER_SECONDS)

    def finish(self, timeout: float) -> None:
        """Wait until the functions noted so far are read, at most *timeout* seconds."""
        self._worker.drain(timeout)

    def stop(self) -> None:
        """Drop what has not been read."""
        self._worker.stop()

    def explain(self) -> Explanation:
        """Return the mistakes found."""
        return Explanation({"tracing": self.snapshot})

    def snapshot(self) -> Tracing:
        """Return the mistakes found, in the order in which they were found."""
        return Tracing(
            tuple(
                TraceMistake(
                    kind=one.kind,
                    file=display_path(one.file),
                    line=one.line,
                    text=one.text,
                    within=one.function,
                    functions=tuple(functions),
                )
                for one, functions in self._found.copy().items()
            )
        )

    def _unread(self, function: Function, jitted: Jitted) -> _Unread | None:
        # Loaded at the first compile of a program that has functions to read.
        from jaxmon.agent.tracing.reader import entry_of  # noqa: PLC0415

        entry = entry_of(jitted.fun, self._files.is_library)
        if entry is None:
            return None
        code = entry.function.__code__
        if id(code) in self._seen or len(self._seen) >= _MAX_SOURCES:
            return None
        self._seen[id(code)] = code
        if not self._files.is_user(code.co_filename):
            return None
        static = static_arguments(jitted.key)
        return _Unread(
            function,
            weakref.ref(entry.function),
            _reference(entry.holder),
            entry.given,
            entry.traced and static is not None,
            static or (),
        )

    def _read(self, unread: _Unread) -> None:
        from jaxmon.agent.tracing.reader import TracedFunction, read  # noqa: PLC0415

        code = unread.code()
        if code is None:  # it is gone
            return
        holder = ABSENT if unread.holder is None else unread.holder()
        entry = TracedFunction(code, holder, unread.given, unread.traced)
        found = read(entry, static=unread.static, is_user=self._files.is_user)
        for one in found:
            if one not in self._found and len(self._found) >= _MAX_MISTAKES:
                return
            functions = self._found.setdefault(one, {})
            if len(functions) < _MAX_FUNCTIONS:
                functions[unread.function.name] = None


def _reference(holder: Any) -> Callable[[], Any] | None:
    try:
        return None if holder is ABSENT else weakref.ref(holder)
    except TypeError as error:  # its class has no weak references
        interrupts.pass_on(error)
        return type(None)
