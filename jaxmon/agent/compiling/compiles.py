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

from jaxmon.agent.caching.cache import SAVED, STORED, PersistentCache
from jaxmon.agent.compiling.misses import Miss, Misses
from jaxmon.agent.compiling.programs import Programs
from jaxmon.agent.compiling.recompiles import Recompiles
from jaxmon.agent.compiling.signatures import Signature
from jaxmon.agent.compiling.stack import (
    MAX_SOURCES,
    Jitted,
    Program,
    asked_by,
    executable_at,
    is_nested,
    program_at,
)
from jaxmon.agent.context import Context
from jaxmon.agent.functions import UNKNOWN, Function
from jaxmon.agent.probe import Ending


TRACE = "/jax/core/compile/jaxpr_trace_duration"
LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"
RETRIEVAL = "/jax/compilation_cache/cache_retrieval_time_sec"
CACHE_USED = "/jax/compilation_cache/compile_requests_use_cache"
CACHE_HIT = "/jax/compilation_cache/cache_hits"

# To 0.5 JAX reports no end of a compile that failed; one that ended this many
# seconds ago without a report is taken for failed.
_SETTLE_SECONDS = 10.0


class Compile:
    """
    One call of ``compile_or_get_cached``.
    """

    __slots__ = (
        "began",
        "ended",
        "function",
        "hit",
        "jitted",
        "looked_up",
        "outer_error",
        "paid",
        "signature",
        "started",
    )

    def __init__(self, function: Function) -> None:
        self.function = function
        # For what a call had compiled: the function, its arguments, since when.
        self.jitted: Jitted | None = None
        self.signature: Signature | None = None
        self.began = 0.0
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
        context: where the figures go.
        misses: tells functions, and calls from other uses of a function.
        programs: shown each executable.
        cache: told of each look-up in the persistent cache.
        clean: JAX's ``trace_state_clean``.
    """

    def __init__(
        self,
        context: Context,
        misses: Misses,
        programs: Programs,
        cache: PersistentCache,
        *,
        clean: Callable[[], bool],
    ) -> None:
        self._table = context.table
        self._misses = misses
        self._guard = context.guard
        self._programs = programs
        self._cache = cache
        self._clean = clean
        self._sources: dict[str, Function] = {}
        self._recompiles = Recompiles(context)
        self._steps: dict[str, int] = {}
        self._thread = _Thread()
        self._running: dict[int, Compile] = {}
        self._unsettled: dict[int, Compile] = {}

    # --- observers ---------------------------------------------------------------

    def on_compile(
        self, frame: FrameType, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        """
        Observe ``compiler.compile_or_get_cached``.
        """
        self._settle_failed(self._thread.ended)
        asked = self._asked("compile")
        if asked is None:
            program = program_at(frame)
            name = str(frame.f_locals.get("name") or UNKNOWN)
            compile_ = Compile(self._function(program, name))
            if self._misses.miss(program.entry) is not None:
                self._learn("compile", program.entry)
                asked = self._asked("compile")
            # A log that keeps a failure of ours keeps this frame, too. It must hold
            # nothing of the user's, nor what tells us of the end by being dropped.
            del program
        else:
            compile_ = Compile(asked[0].function)
        if asked is not None:
            self._sign(compile_, *asked)
        compile_.paid = self._misses.payers.compile_begins()
        return self._watched(original, compile_)

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
        elif event == STORED:
            self._cache.stored()

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
                if not failed:
                    self._take_program(compile_, sys._getframe(2))  # noqa: SLF001
        elif event == RETRIEVAL:
            if (compile_ := self._thread.current) is not None:
                compile_.function.observe_phase("cache_retrieval", seconds)
        elif event == SAVED:
            self._cache.saved(seconds)
        elif event in (TRACE, LOWER):
            # The frame that reports, two above: the listener, then us.
            frame = sys._getframe(2)  # noqa: SLF001
            # To 0.9 every nested jit reports the trace within the outer trace.
            if event == LOWER or self._clean() or not is_nested(frame):
                phase = "trace" if event == TRACE else "lower"
                self._phase_function(phase, frame, fun_name).observe_phase(
                    phase, seconds
                )
            if event == LOWER:
                self._misses.payers.lowered(seconds)

    def _phase_function(
        self, phase: str, frame: FrameType, fun_name: str | None
    ) -> Function:
        asked = self._asked(phase)
        if asked is not None:
            return asked[0].function
        program = program_at(frame)
        self._learn(phase, program.entry)
        return self._function(program, fun_name or program.name or UNKNOWN)

    def _watched(
        self, original: Callable[..., Any], compile_: Compile
    ) -> Callable[..., Any]:
        running = Ending(original)
        running.on_end = functools.partial(self._end, compile_)
        self._thread.current = compile_
        self._running[id(compile_)] = compile_
        return running

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

    def _asked(self, phase: str) -> tuple[Miss, FrameType, FrameType] | None:
        """
        Return the call that JAX serves now, without a walk, with the frame that
        serves it and the frame that this called.

        From a call to where JAX tells of a *phase* it is as many frames each time.
        Looking there takes a microsecond. A call within the call is deeper.
        """
        try:
            inner = sys._getframe(self._steps[phase])  # noqa: SLF001
        except (KeyError, ValueError):  # not walked yet; a stack less deep
            return None
        frame = inner.f_back
        if frame is None or frame.f_code.co_name != "cache_miss":
            return None
        miss = self._misses.miss(id(frame))
        return None if miss is None else (miss, frame, inner)

    def _learn(self, phase: str, entry: int | None) -> None:
        """
        Remember how far up the frame with the id *entry* is from `_asked`.
        """
        if entry is None:
            return
        frame, steps = sys._getframe(1), 1  # noqa: SLF001
        while (above := frame.f_back) is not None:
            if id(above) == entry:
                self._steps[phase] = steps
                return
            frame, steps = above, steps + 1

    def _sign(
        self, compile_: Compile, miss: Miss, frame: FrameType, inner: FrameType
    ) -> None:
        """
        Note for which call *compile_* is; the others as `_asked` returns them.
        """
        miss.compiled = True
        compile_.began = miss.started
        compile_.jitted, call = asked_by(frame, inner)
        compile_.signature = self._recompiles.signature(call)
        if compile_.jitted is not None:
            self._remember(compile_.jitted, miss.function)

    def _take_program(self, compile_: Compile, frame: FrameType) -> None:
        executable = executable_at(frame)
        if executable is not None:
            outcome = "cache_hit" if compile_.hit else "compiled"
            self._programs.take(compile_.function, executable, outcome=outcome)

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
        if compile_.looked_up:
            self._cache.looked_up(function, hit=compile_.hit)
        if not failed and compile_.jitted is not None:
            seconds = (compile_.ended or compile_.started) - compile_.began
            self._recompiles.judge(
                function, compile_.jitted, compile_.signature, seconds=seconds
            )

    def _function(self, program: Program, name: str) -> Function:
        """
        Return the function that *program* belongs to.

        Args:
            program: what the stack tells.
            name: what JAX or XLA calls it: ``f``, ``jit(f)`` or ``jit_f``.
        """
        if program.jitted is not None:
            function = self._misses.function_of(program.jitted)
            self._remember(program.jitted, function)
            return function
        if program.source is not None and program.source in self._sources:
            return self._sources[program.source]
        return self._table.by_short_name(_bare(name))

    def _remember(self, jitted: Jitted, function: Function) -> None:
        if jitted.source and len(self._sources) < MAX_SOURCES:
            self._sources[jitted.source] = function


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
