"""
Compile phases, outcomes, recompiles and compiles in progress.

JAX reports the phases through `jax.monitoring`, on the compiling thread, without naming
the function, which is found on the stack. The compile itself is timed with our own
monotonic clock around ``compile_or_get_cached``.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from jaxmon import catalog
from jaxmon.agent.cache.part import PersistentCache
from jaxmon.agent.compiles.misses import (
    Compile,
    CompileThread,
    Miss,
    Misses,
    add_event,
    progress,
)
from jaxmon.agent.context import Built, Context
from jaxmon.agent.functions import UNKNOWN, CompilePhases, Function, active, by_value
from jaxmon.agent.inspection import AnyCall
from jaxmon.agent.jaxlink import patches as patch_targets
from jaxmon.agent.jaxlink.frames import (
    MAX_SOURCES,
    Jitted,
    StackProgram,
    bare,
    executable_at,
    is_for_shapes,
    is_nested,
    lowered_by,
    lowering_at,
    name_at,
    program_at,
    served_call,
    source_location,
    traced_by,
)
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.listeners import (
    CACHE_HIT,
    CACHE_USED,
    COMPILE,
    LOWER,
    RETRIEVAL,
    TRACE,
)
from jaxmon.agent.part import Explanation, Part
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family, gauge, histograms
from jaxmon.indicators.endings import now
from jaxmon.indicators.work import compile_begins


if TYPE_CHECKING:
    from jaxmon.agent.compiles.spans import CompileSpans
    from jaxmon.agent.recompiles.finder import CauseFinder
    from jaxmon.facts.events import Compiling
    from jaxmon.indicators.figures import Indicators


CAUSES = "causes"


class Compiles(Part):
    """Tracks compiles on all threads; is *deaf* if events of the last were missed."""

    name = "compiles"

    def __init__(
        self,
        context: Context,
        misses: Misses,
        indicators: Indicators,
        cache: PersistentCache,
    ) -> None:
        self._context = context
        self._jax = context.jax
        self._table = context.table
        self._misses = misses
        self._cache = cache
        self._observers = context.observers
        self._timeline, self._log = indicators.timeline, indicators.compiles
        self._clean: Callable[[], bool] = bool  # until attached: never
        # `None` if several functions come from one line, as in generated code.
        self._sources: dict[str, Function | None] = {}
        # Two threads that compile first may both make one; all use the first of them.
        self._finders: list[CauseFinder] = []
        self._serving = misses.thread
        self._thread = CompileThread()
        self._unsettled: dict[int, Compile] = {}
        self._heard: Callable[[], bool] = bool
        self.deaf = False
        self._last_ended = 0.0
        self._sees_builds = False

    def attach(self, hooks: Hooks) -> None:
        """Receive JAX's events, and observe its compiles."""
        self._clean = hooks.is_calling
        hooks.hear(
            {CACHE_USED: self._on_look_up, CACHE_HIT: self._on_hit},
            {
                TRACE: self._on_trace,
                LOWER: self._on_lowered,
                COMPILE: self._on_report,
                RETRIEVAL: self._on_retrieval,
            },
        )
        hooks.listen(observes=lambda: not self.deaf)
        if hooks.listeners is not None:
            self._heard = hooks.listeners.restore
        hooks.attach("compiles", self._take)
        hooks.derive(CAUSES, "compiles", "misses")

    def _take(self, at: HookPlaces) -> None:
        at.probe(*patch_targets.compiles(self._jax), self.on_compile)
        for built in patch_targets.builds(self._jax):
            at.probe(*built, self.on_build)
            self._sees_builds = True
        for clear in patch_targets.cache_clears(self._jax):
            at.probe(*clear, self.on_clear)

    # --- observers ---------------------------------------------------------------

    def on_compile(self, frame: FrameType, original: AnyCall) -> AnyCall:
        """Observe ``compiler.compile_or_get_cached``."""
        outer = self._thread.latest
        while outer is not None and outer.end:  # and it was not reported
            self._settle_unreported(outer)
            outer = outer.outer
        served = served_call(frame, self._serving.calls)
        if served is None:
            compile_ = self._outside_of_calls(frame, outer)
        else:
            compile_ = Compile(served[0].function, frame, outer)
        compile_.deaf = not self._heard()
        try:
            # From here on: finding the cause is part of the compile, not of a step.
            self._timeline.open_compile(compile_.end)
            if served is not None:
                compile_.began = served[0].started
                self._find_cause(compile_, *served)
            for refuse in self._observers.refusing:
                why = self._differences(compile_)
                if refusal := refuse(compile_.function, compile_.began, why):
                    compile_.end.append(now())
                    return refusal
            # The call has traced and lowered since it began. Loading from the
            # persistent cache counts as a compile.
            compile_begins(self._log, compile_.began, compile_.end)
            for check in list(self._observers.compiling):
                check()
            if self._observers.tracer is not None:
                self._spans.begins(compile_)
            self._unsettled[id(compile_)] = compile_
            self._thread.latest = compile_
            compile_.started = now()
            # Not a local variable: a stored traceback would keep it alive.
            return compile_.watched(original)
        except BaseException:  # it does not start
            compile_.end.append(0)
            self._thread.latest = outer
            self._unsettled.pop(id(compile_), None)
            raise

    def on_build(self, _: FrameType, __: AnyCall) -> None:
        """Observe the call of XLA for a program not in the persistent cache."""
        if (compile_ := self._current) is not None:
            compile_.built = True

    def on_clear(self, frame: FrameType, _: AnyCall) -> None:
        """Observe ``util.clear_all_caches``."""
        for finder in self._finders:
            finder.note_clear(frame)

    # --- events of jax.monitoring; the reporting frame is two up

    def _on_look_up(self) -> None:
        if (compile_ := self._current) is not None:
            compile_.looked_up = True

    def _on_hit(self) -> None:
        if (compile_ := self._current) is not None:
            compile_.hit = True

    def _on_trace(self, seconds: float, fun_name: str | None) -> None:
        frame = sys._getframe(2)  # noqa: SLF001
        # Up to 0.9 every nested jit reports its trace within the outer trace.
        if (self._clean() or not is_nested(frame)) and not is_for_shapes(frame):
            self._observe_phase("trace", frame, fun_name, seconds)

    def _on_lowered(self, seconds: float, fun_name: str | None) -> None:
        frame = sys._getframe(2)  # noqa: SLF001
        at = lowering_at(frame)
        phase = "lower", at or frame, fun_name, seconds
        function, called = self._observe_phase(*phase)
        self._timeline.compiled(seconds)  # JAX reports only the end
        if not function.internal:
            jaxpr = lowered_by(at)
            if jaxpr is not None:
                # JAX keeps the whole for as long as it may compile it again.
                function.lowered = weakref.ref(jaxpr)
                whole = traced_by(at) if function.is_users else None
                function.whole = weakref.ref(jaxpr if whole is None else whole)
            for observe in self._observers.lowered:
                observe(function, None if called else frame, jaxpr)

    def _on_retrieval(self, seconds: float, _: str | None) -> None:
        if (compile_ := self._current) is not None:
            span = compile_.span
            ids = None if span is None else self._spans.retrieved(compile_, seconds)
            compile_.function.observe_phase("cache_retrieval", seconds, ids)

    def _on_report(self, _: float, __: str | None) -> None:
        """Handle JAX's report that a compile has finished."""
        frame, compile_ = sys._getframe(2), self._thread.latest  # noqa: SLF001
        if compile_ is None:
            return
        if not compile_.end:  # an inspection of stacks would keep what is on them
            if executable_at(frame) is None or not _is_on(frame, compile_.frame):
                return  # this reports another one
            compile_.end.append(now())
        self._thread.latest = compile_.outer
        error = sys.exception()
        failed = error is not None and error is not compile_.outer_error
        self._settle(compile_, failed=failed)
        if failed or (executable := executable_at(frame)) is None:
            return
        function = compile_.function
        if not function.internal:
            self._table.compiled.append((wall_time(), function.name))
        traced, lowered = self._thread.seconds(function)
        xla = compile_.end[0] - compile_.started
        phases = CompilePhases(traced, lowered, xla, compile_.hit)
        for take in self._observers.executable:
            take(function, executable, phases)

    def _observe_phase(
        self, phase: str, frame: FrameType, fun_name: str | None, seconds: float
    ) -> tuple[Function, bool]:
        """Observe what *frame* reports; return whose it is, and if it is a call's."""
        served = served_call(frame, self._serving.calls)
        if served is not None:
            function = served[0].function
        else:
            program = program_at(frame)
            function = self._function(program, fun_name or program.name)
        traced = self._observers.tracer is not None
        ids = self._spans.phase(phase, seconds) if traced else None
        function.observe_phase(phase, seconds, ids)
        self._thread.phases[phase] = function, seconds
        return function, served is not None

    @functools.cached_property
    def _spans(self) -> CompileSpans:
        # Loaded once there is a tracer.
        from jaxmon.agent.compiles.spans import CompileSpans  # noqa: PLC0415

        return CompileSpans(self._observers)

    @property
    def _current(self) -> Compile | None:
        """The compile in progress on this thread."""
        latest = self._thread.latest
        return None if latest is None or latest.end else latest

    # --- reading -----------------------------------------------------------------

    def collect(self) -> list[Family]:
        """
        Return the metrics of compiles and recompiles.

        User functions have every cause from the start, so that a rate covers the first
        recompile. JAX's own recompile by design and have only those that occurred.
        """
        self.settle()
        running, oldest, _ = self.in_progress()
        functions = active(self._table)
        recompiles = (
            (
                function,
                () if function.internal or function.name == UNKNOWN else catalog.CAUSES,
                function.recompiles,
            )
            for function in functions
        )
        return [
            by_value(catalog.RECOMPILES, recompiles),
            gauge(catalog.COMPILES_IN_PROGRESS, running),
            gauge(catalog.COMPILE_OLDEST_SECONDS, oldest),
            by_value(
                catalog.COMPILES,
                ((function, (), function.compiles) for function in functions),
            ),
            histograms(
                catalog.COMPILE_SECONDS,
                [
                    phase
                    for function in functions
                    for phase in list(function.phases.values())
                ],
            ),
        ]

    def explain(self) -> Explanation:
        """Return the compiles in progress."""
        return Explanation({"compiling": self._progress})

    def _progress(self) -> Compiling:
        return progress(self._jax, self._running())

    def in_progress(self) -> tuple[int, float, str]:
        """Return the number of compiles in progress, and age and name of the oldest."""
        running = self._running()
        if not running:
            return 0, 0.0, ""
        return len(running), running[0].age, running[0].function.name

    def _running(self) -> list[Compile]:
        running = [of for of in list(self._unsettled.values()) if not of.end]
        return sorted(running, key=lambda of: of.started)

    def settle(self) -> None:
        """
        Count compiles that finished without a report.

        Up to 0.5 JAX reports no failed compile but raises, and the frame that would
        report is gone. A listener of the program may keep a report from us, or ours may
        have been disabled.
        """
        # In this order: a compile that reports meanwhile is no longer unsettled.
        unsettled = [of for of in list(self._unsettled.values()) if of.end]
        stacks = sys._current_frames() if unsettled else {}  # noqa: SLF001
        for compile_ in unsettled:
            if not _is_on(stacks.get(compile_.thread), compile_.frame):
                self._settle_unreported(compile_)

    # --- inside ------------------------------------------------------------------

    def _finder(self) -> CauseFinder | None:
        """Return what finds causes, loaded at the first compile, if it can be."""
        if not self._finders:
            try:
                from jaxmon.agent.recompiles.finder import CauseFinder  # noqa: PLC0415

                self._finders.append(CauseFinder(self._context, CAUSES))
            except Exception:  # noqa: BLE001 - contained: the compile itself still counts
                self._context.guard.failed(CAUSES, stays_on=True)
                return None
        return self._finders[0]

    def _find_cause(
        self, compile_: Compile, miss: Miss, frame: FrameType, inner: FrameType
    ) -> None:
        """Record the call that caused *compile_*."""
        miss.compiled = True
        finder = self._finder()
        found = finder and finder.find_cause(miss.function, frame, inner)
        if found:
            jitted, compile_.pending = found
            self._remember(jitted, miss.function)

    def _outside_of_calls(self, frame: FrameType, outer: Compile | None) -> Compile:
        """Return the compile called by *frame*, ahead of time or transformed."""
        finder = self._finder()
        found = finder and finder.transformed(frame)
        function = None
        if finder and found and found.jitted is None:
            function = finder.owner_of(found)
        if function is None:
            function = self._function(program_at(frame), name_at(frame))
        compile_ = Compile(function, frame, outer)
        if finder and found:
            compile_.pending = finder.find_transformed_cause(function, found, frame)
        return compile_

    def _differences(self, compile_: Compile) -> str:
        """Return why *compile_* is needed, empty if that is not known."""
        pending = compile_.pending
        if pending is None or pending.cause is None:
            return ""
        from jaxmon.agent.recompiles.finder import message  # noqa: PLC0415 - as above

        return message(pending.cause)

    def _settle_unreported(self, compile_: Compile) -> None:
        # JAX reports each that succeeded.
        succeeded = compile_.raised is False
        self._settle(compile_, failed=not succeeded, missed=succeeded)

    def _settle(self, compile_: Compile, *, failed: bool, missed: bool = False) -> None:
        """Count *compile_*, once; *missed*: although its report was expected."""
        if self._unsettled.pop(id(compile_), None) is None:
            return  # another thread does
        compile_.deaf |= missed
        function = compile_.function
        ended = compile_.end[0]
        if ended >= self._last_ended:  # one without a report may be settled late
            self.deaf, self._last_ended = compile_.deaf, ended
        if compile_.deaf and self._sees_builds:
            compile_.hit = not compile_.built
        outcome = "failed" if failed else "cache_hit" if compile_.hit else "compiled"
        function.compiles[outcome].add()
        cause = None
        pending = compile_.pending
        if pending and not failed:
            seconds = ended - compile_.began
            cause = self._finders[0].record(function, pending, seconds=seconds)
        for see in () if failed else self._observers.built:
            why = self._differences(compile_)
            see(Built(function, compile_.began, ended, compile_.hit), why)
        looked_up = compile_.looked_up and self._cache.looked_up(
            function, hit=compile_.hit, heard=not compile_.deaf
        )
        ids = None
        if compile_.span is not None:
            ids = self._spans.ended(compile_, outcome, cause, looked_up=looked_up)
        if cause is None and not failed:
            add_event(self._context.events, compile_, looked_up=looked_up)
        if outcome != "cache_hit":
            seconds = ended - compile_.started
            function.observe_phase("backend_compile", seconds, ids)

    def _function(self, program: StackProgram, name: str | None) -> Function:
        """Return whose *program* it is, ``unknown`` rather than a guess."""
        if program.jitted is not None:
            function = self._misses.function_of(program.jitted)
            self._remember(program.jitted, function)
            return function
        if program.source is None:
            return self._table.by_short_name(bare(name or UNKNOWN))
        return self._sources.get(program.source) or self._table.named(UNKNOWN)

    def _remember(self, jitted: Jitted, function: Function) -> None:
        for see in self._observers.compiled:
            see(function, jitted)
        source = source_location(jitted.source)
        if source is None:
            return
        if source not in self._sources and len(self._sources) < MAX_SOURCES:
            self._sources[source] = function
        elif self._sources.get(source) is not function:
            self._sources[source] = None


def _is_on(frame: FrameType | None, wanted: int) -> bool:
    """Return whether the frame with the id *wanted* is on the stack from *frame* up."""
    while frame is not None:
        if id(frame) == wanted:
            return True
        frame = frame.f_back
    return False
