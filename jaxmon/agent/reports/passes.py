"""
Traces of XLA's passes, for `jaxmon compiles run`: a session of XLA's profiler for each
compile, or several at once, so that what the program does otherwise is in none.

The program's own session takes precedence: there is only one in a process. What is
known is written at once, and so is left however the program ends.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxmon.agent.context import Built, Context
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.profiler import Busy, reserved
from jaxmon.agent.part import Part
from jaxmon.agent.reports.profile import GPU_REASON, Recording
from jaxmon.indicators.endings import now
from jaxmon.threads import RLock, get_ident


_MOST_BYTES = 128 << 20
_LIMIT = f"{_MOST_BYTES >> 20} MiB of traces had been recorded before"
_LOOK_SECONDS = 0.5
_MOST_CALLS = 1000


class PassTraces(Part):
    """
    Records compiles, and what XLA does in each. *compiling* returns the number of
    compiles in progress, and more, *programs* the programs by function.
    """

    name = "passes"

    def __init__(
        self,
        context: Context,
        compiling: Callable[[], tuple[int, float, str]],
        programs: Callable[[], dict[str, Any]],
    ) -> None:
        self._context, self._guard = context, context.guard
        self._compiling, self._programs = compiling, programs
        self._file = Path(f"{context.settings.passes_dir}/{os.getpid()}.jsonl")
        self._left = _MOST_BYTES
        self._lock = RLock()
        self._markers = map("jaxmon-compile/{}".format, itertools.count())
        self._recording: Recording | None = None
        # Of compiles in progress, and those that failed: marker and start.
        self._open: dict[tuple[int, Function], tuple[str, float]] = {}
        # By thread: when calls that compiled began, and their seconds.
        self._calls: dict[int, list[tuple[float, float]]] = {}
        self._phases: dict[Function, dict[str, float]] = {}
        context.observers.refusing.append(self._begins)
        context.observers.built.append(self._built)

    def stop(self) -> None:
        """End the trace, and write where programs fold constants."""
        with self._lock:
            self._end()
            for function, program in self._programs().items():
                if found := program.folded:
                    self._write(folds=function, by=[found.operation, found.where])

    def abandon(self) -> None:
        """Leave everything to the parent; in a forked child."""
        if self._recording is not None:
            self._recording.release()
        self._context.observers.refusing.remove(self._begins)
        self._context.observers.built.remove(self._built)

    def _begins(self, function: Function, began: float, why: str) -> None:
        del began, why
        with self._guard.contained(self.name, stays_on=True), self._lock:
            about = {"function": function.name, "internal": function.internal}
            marker = next(self._markers)
            self._write(marker=marker, untraced=self._record(), **about)
            self._open[get_ident(), function] = marker, now()
            # An event of this thread in the trace, in front of the compile.
            with self._context.jax.profiler.TraceAnnotation(marker):
                pass

    def _record(self) -> str:
        """Begin to record, if that is possible; else return why not."""
        if self._recording is not None and self._recording.ended is None:
            return ""
        self._end()
        if self._left <= 0:
            return _LIMIT
        jax, platform = self._context.jax, "cpu"
        if backends.initialised(jax):  # not by a compile for other devices
            platform = jax.local_devices()[0].platform
        if platform == "gpu" and not self._context.settings.profile_gpu:
            return GPU_REASON
        try:
            with reserved(jax):
                recording = Recording(jax, self._guard, self.name)
                recording.begin(platform, programs=False)
        except Busy as busy:
            return str(busy)
        self._recording = recording
        self._context.scheduler.later(_LOOK_SECONDS, self._look, site=self.name)
        return ""

    def _built(self, built: Built, why: str) -> None:
        del why
        key = get_ident(), built.function
        with self._guard.contained(self.name, stays_on=True), self._lock:
            marker, started = self._open.pop(key, ("", 0.0))
            if not marker:
                return
            cut = None if self._recording is None else self._recording.cut_short
            if self._is_idle():
                self._end()
            phases = self._spent(built.function)
            xla = built.ended - started
            # What is compiled ahead, or within a trace, has no call of its own.
            call = max(built.ended - built.began, sum(phases.values()) + xla)
            # What is compiled within a trace is another program.
            calls, inner = self._calls.setdefault(key[0], []), 0.0
            while calls and calls[-1][0] >= built.ended - call:
                inner += calls.pop()[1]
            calls.append((built.ended - call, call))
            del calls[:-_MOST_CALLS]
            phases["trace"] = max(phases["trace"] - inner, 0.0)
            about = {"seconds": call - inner, "xla": xla, "phases": phases}
            self._write(marker=marker, cut=cut, loaded=built.loaded, **about)

    def _spent(self, function: Function) -> dict[str, float]:
        """Return the seconds of JAX's phases since the latest compile of *function*."""
        sums = {phase: of.sum for phase, of in function.phases.copy().items()}
        before, self._phases[function] = self._phases.get(function, {}), sums
        names = ("trace", "lower")
        return {name: sums.get(name, 0.0) - before.get(name, 0.0) for name in names}

    def _is_idle(self) -> bool:
        """Return whether nothing compiles, or is about to."""
        latest = max((at for _, at in self._open.values()), default=0.0)
        return not self._compiling()[0] and now() - latest > _LOOK_SECONDS

    def _look(self) -> float | None:
        """End a trace that no compile needs, as after one that failed."""
        with self._lock:
            if self._recording is not None and self._is_idle():
                self._end()
            return None if self._recording is None else _LOOK_SECONDS

    def _end(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.end(None)
            space = recording.space() or b""
            self._left -= len(space)
            with self._file.with_suffix(".xplane.pb").open("ab") as file:
                file.write(space)

    def _write(self, **line: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
