"""
Compiles: phases, outcomes, recompiles, and what is being compiled right now.

JAX reports the phases through `jax.monitoring`, on the compiling thread, without
saying for which function; the stack at that moment does. The compile itself is
timed with our own monotonic clock around ``compile_or_get_cached``.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from jaxmon.agent.causes import Causes
from jaxmon.agent.functions import UNKNOWN, Function, FunctionTable
from jaxmon.agent.guard import Guard
from jaxmon.agent.misses import Misses
from jaxmon.agent.probe import Ending
from jaxmon.agent.stack import MAX_SOURCES, Program, is_nested, program_at
from jaxmon.agent.tally import Tally


TRACE = "/jax/core/compile/jaxpr_trace_duration"
LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"
RETRIEVAL = "/jax/compilation_cache/cache_retrieval_time_sec"
CACHE_USED = "/jax/compilation_cache/compile_requests_use_cache"
CACHE_HIT = "/jax/compilation_cache/cache_hits"

# To 0.5 JAX reports no end of a compile that failed; one that ended this many
# seconds ago without a report is taken for failed.
_SETTLE_SECONDS = 1.0


class Compile:
    """
    One call of ``compile_or_get_cached``.
    """

    __slots__ = (
        "ended",
        "function",
        "hit",
        "looked_up",
        "outer_error",
        "paid",
        "program",
        "started",
    )

    def __init__(self, function: Function, program: Program) -> None:
        self.function = function
        self.program = program
        self.outer_error = sys.exception()
        self.looked_up = False
        self.hit = False
        self.paid: Callable[[], None] | None = None
        self.ended: float | None = None
        self.started = time.perf_counter()


class _Thread(threading.local):
    current: Compile | None = None
    ended: Compile | None = None


class Compiles:
    """
    Follows compiles on all threads.

    Args:
        persistent_cache: tells whether JAX has a persistent cache directory; the
            event that reports a look-up fires without one too.
    """

    def __init__(
        self,
        table: FunctionTable,
        misses: Misses,
        guard: Guard,
        *,
        clean: Callable[[], bool],
        persistent_cache: Callable[[], bool],
    ) -> None:
        self._table = table
        self._misses = misses
        self._guard = guard
        self._clean = clean
        self._persistent_cache = persistent_cache
        self._sources: dict[str, Function] = {}
        self._causes = Causes()
        self._thread = _Thread()
        self._running: dict[int, Compile] = {}
        self._unsettled: dict[int, Compile] = {}
        self.persistent = {"hit": Tally(), "miss": Tally()}

    # --- observers ---------------------------------------------------------------

    def on_compile(
        self, frame: FrameType, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        """
        Observe ``compiler.compile_or_get_cached``.
        """
        self._settle_failed(self._thread.ended)
        program = program_at(frame)
        name = str(frame.f_locals.get("name") or UNKNOWN)
        compile_ = Compile(self._function(program, name), program)
        compile_.paid = self._misses.payers.compile_begins()
        running = Ending(original)
        running.on_end = functools.partial(self._end, compile_)
        self._thread.current = compile_
        self._running[id(compile_)] = compile_
        return running

    def on_event(self, event: str) -> None:
        """
        Take an event of `jax.monitoring`.
        """
        compile_ = self._thread.current
        if compile_ is None:
            return
        if event == CACHE_USED:
            compile_.looked_up = True
        elif event == CACHE_HIT:
            compile_.hit = True

    def on_duration(self, event: str, seconds: float, fun_name: str | None) -> None:
        """
        Take a duration of `jax.monitoring`.
        """
        if event == COMPILE:
            compile_, self._thread.ended = self._thread.ended, None
            if compile_ is not None:
                error = sys.exception()
                failed = error is not None and error is not compile_.outer_error
                self._settle(compile_, failed=failed)
        elif event == RETRIEVAL:
            if (compile_ := self._thread.current) is not None:
                compile_.function.observe_phase("cache_retrieval", seconds)
        elif event in (TRACE, LOWER):
            # The frame that reports, two above: the listener, then us.
            frame = sys._getframe(2)  # noqa: SLF001
            # To 0.9 every nested jit reports the trace within the outer trace.
            if event == TRACE and not self._clean() and is_nested(frame):
                return
            program = program_at(frame)
            phase = "trace" if event == TRACE else "lower"
            name = fun_name or program.name or UNKNOWN
            self._function(program, name).observe_phase(phase, seconds)
            if event == LOWER:
                self._misses.payers.lowered(seconds)

    # --- reading -----------------------------------------------------------------

    def in_progress(self) -> tuple[int, float]:
        """
        Return how many compiles run and the age of the oldest in seconds.
        """
        now = time.perf_counter()
        ages = [now - compile_.started for compile_ in list(self._running.values())]
        return len(ages), max(ages, default=0.0)

    def settle(self) -> None:
        """
        Count as failed what ended a while ago without a report.
        """
        now = time.perf_counter()
        for compile_ in list(self._unsettled.values()):
            if compile_.ended is not None and now - compile_.ended > _SETTLE_SECONDS:
                self._settle_failed(compile_)

    # --- inside ------------------------------------------------------------------

    def _end(self, compile_: Compile) -> None:
        try:
            compile_.ended = time.perf_counter()
            self._unsettled[id(compile_)] = compile_
            self._running.pop(id(compile_), None)
            self._thread.current = None
            self._thread.ended = compile_
            if compile_.paid is not None:
                compile_.paid()
        except Exception:  # noqa: BLE001 - contained: runs as JAX returns
            self._guard.failed("compiles")

    def _settle_failed(self, compile_: Compile | None) -> None:
        if compile_ is not None:
            self._settle(compile_, failed=True)

    def _settle(self, compile_: Compile, *, failed: bool) -> None:
        if self._unsettled.pop(id(compile_), None) is None:
            return
        function = compile_.function
        outcome = "failed" if failed else "cache_hit" if compile_.hit else "compiled"
        function.compiles[outcome].add()
        if outcome != "cache_hit" and compile_.ended is not None:
            seconds = compile_.ended - compile_.started
            function.observe_phase("backend_compile", seconds)
        if compile_.looked_up and self._persistent_cache():
            self.persistent["hit" if compile_.hit else "miss"].add()
        program = compile_.program
        if failed or program.jitted is None or not self._misses.is_call(program.entry):
            return
        cause = self._causes.of(program.jitted, program.avals)
        if cause is not None:
            function.count_recompile(cause)

    def _function(self, program: Program, name: str) -> Function:
        """
        Return the function that *program* belongs to.

        Args:
            program: what the stack tells.
            name: what JAX or XLA calls it: ``f``, ``jit(f)`` or ``jit_f``.
        """
        if program.jitted is not None:
            function = self._misses.function_of(program.jitted)
            if program.jitted.source and len(self._sources) < MAX_SOURCES:
                self._sources[program.jitted.source] = function
            return function
        if program.source is not None and program.source in self._sources:
            return self._sources[program.source]
        return self._table.by_short_name(_bare(name))


def _bare(name: str) -> str:
    """
    Return ``f`` for ``jit(f)``, ``jit_f`` and ``pmap(f)``.
    """
    for wrapper in ("jit", "pmap"):
        if name.startswith(f"{wrapper}(") and name.endswith(")"):
            return name[len(wrapper) + 1 : -1]
        if name.startswith(f"{wrapper}_"):
            return name[len(wrapper) + 1 :]
    return name
