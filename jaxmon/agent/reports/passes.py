"""
Traces of XLA's passes, for `jaxmon compiles run`, and on request: a session of XLA's
profiler for each compile, or several at once, so that what the program does otherwise
is in none.

The program's own session takes precedence: there is only one in a process. What is
known is kept at once: in files, it is left however the program ends.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.context import Built, Context
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.contents import folded
from jaxmon.agent.jaxlink.equations import EquationReader
from jaxmon.agent.jaxlink.profiler import Busy, reserved
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.part import Part
from jaxmon.agent.reports.profile import GPU_REASON, Recording
from jaxmon.clocks import monotonic
from jaxmon.facts.record import encoded
from jaxmon.host import sources
from jaxmon.host.http.messages import Response
from jaxmon.indicators.endings import now
from jaxmon.threads import Event, RLock, get_ident


_MOST_BYTES = 128 << 20
_LIMIT = f"{_MOST_BYTES >> 20} MiB of traces had been recorded before"
_BEFORE = "another compile had begun before"
_FILES = ".jsonl", ".xplane.pb"
_LOOK_SECONDS, _LONGEST_SECONDS = 0.5, 90.0
_MOST_CALLS = 1000
# What a compile must take for its lines to be read, and for how long at most.
_NOTICED, _READ_SECONDS = 0.25, 1.0


_Looks: TypeAlias = dict[tuple[str, str], float]


class _Lowering(NamedTuple):
    """A *jaxpr*, `None` if it is gone, and the looks at its trace."""

    jaxpr: Callable[[], Any]
    looks: _Looks


class PassTraces(Part):
    """
    Records compiles, and what XLA does in each. *compiling* returns the number of
    compiles in progress, and more, *tracing* for how long functions were traced, by
    line and loop. Without a directory, what would be in its files is *kept*: lines, and
    a trace.
    """

    name = "passes"

    def __init__(
        self,
        context: Context,
        compiling: Callable[[], tuple[int, float, str]],
        tracing: Callable[[], dict[str, _Looks]],
    ) -> None:
        self._context, self._guard = context, context.guard
        self._compiling, self._tracing = compiling, tracing
        self.kept = bytearray(), bytearray()
        self._left, self._began, self._until = _MOST_BYTES, now(), inf
        self._lock, self._over = RLock(), Event()
        self._markers = map("jaxmon-compile/{}".format, itertools.count())
        self._recording: Recording | None = None
        # Of compiles in progress, and those that failed: marker and start.
        self._open: dict[tuple[int, Function], tuple[str, float]] = {}
        # By thread: when calls that compiled began, and their seconds.
        self._calls: dict[int, list[tuple[float, float]]] = {}
        self._phases = {function: _sums(function) for function in context.table}
        # What was lowered, and not compiled yet, and looks at its trace.
        self._lowerings: dict[tuple[int, Function], list[_Lowering]] = {}
        self._looks = tracing()
        context.observers.lowered.append(self._lowered)
        context.observers.refusing.append(self._begins)
        context.observers.built.append(self._built)

    def follow(self, seconds: float, gave_up: Callable[[], bool]) -> Response:
        """
        Record for so long, and compiles that began by then to their end, within limits;
        not after the client *gave_up*. Return what is kept.
        """
        self._until = now() + seconds
        while not (self._over.wait(_LOOK_SECONDS) or gave_up()):
            late = now() - self._until
            if late > min(_LONGEST_SECONDS, self._compiling()[1]):
                break
        self.stop()
        return Response(b"\0".join(self.kept), "application/octet-stream")

    def end(self, _: str) -> None:
        """End `follow`."""
        self._over.set()

    def stop(self) -> None:
        """End the trace."""
        self._leave()
        with self._lock:
            self._end()

    def abandon(self) -> None:
        """Leave everything to the parent; in a forked child."""
        if self._recording is not None:
            self._recording.release()
        self._leave()

    release = abandon

    def _leave(self) -> None:
        # Not in place: a compile may be going through them.
        observers = self._context.observers
        observers.lowered = [of for of in observers.lowered if of != self._lowered]
        observers.refusing = [of for of in observers.refusing if of != self._begins]
        observers.built = [of for of in observers.built if of != self._built]

    def _lowered(self, function: Function, _: FrameType | None, jaxpr: Any) -> None:
        if jaxpr is None or now() > self._until:
            return
        with self._guard.contained(self.name, stays_on=True), self._lock:
            looks = self._tracing().get(function.name, {})
            before, call = self._looks.get(function.name, {}), ""
            if at := self._lines.that_calls(sys._getframe()):  # noqa: SLF001
                call = f"{sources.display_path(at.file)}:{at.line}"
            # At the call, it is lowered as well.
            looks = {
                line: seconds - before.get(line, 0.0)
                for line, seconds in looks.items()
                if line[0] != call and seconds > before.get(line, 0.0)
            }
            several = self._lowerings.setdefault((get_ident(), function), [])
            several[1:] = [_Lowering(weakref.ref(jaxpr), looks)]

    def _begins(self, function: Function, _: float, __: str) -> None:
        if now() > self._until:
            return
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
        if self._compiling()[1] > now() - self._began:  # its passes would be in it
            return _BEFORE
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

    def _built(self, built: Built, _: str) -> None:
        key = get_ident(), built.function
        with self._guard.contained(self.name, stays_on=True):
            with self._lock:
                marker = self._note(built, key)
                lowerings = self._lowerings.pop(key, [])
                if lowerings:
                    looks = self._tracing().get(built.function.name, {})
                    self._looks[built.function.name] = looks
            # Compiles of other threads do not wait for that.
            if marker and len(lowerings) == 1:
                self._note_lines(marker, built.function, lowerings[0])

    def _note(self, built: Built, key: tuple[int, Function]) -> str:
        """Write what a compile took; return its marker if that was noticeable."""
        marker, started = self._open.pop(key, ("", 0.0))
        if not marker:
            return ""
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
        return marker if call - inner >= _NOTICED else ""

    def _note_lines(self, marker: str, function: Function, lowering: _Lowering) -> None:
        """Write which lines make most of a program, if its jaxpr is there."""
        if (jaxpr := lowering.jaxpr()) is None:
            return
        reader = EquationReader(self._lines, monotonic() + _READ_SECONDS)
        found = reader.heaviest(jaxpr, function.place)
        found = found.replace(folded=folded(jaxpr, self._lines))
        places, loops = defaultdict[str, float](float), defaultdict[str, float](float)
        for (place, loop), seconds in lowering.looks.items():
            places[place] += seconds
            loops[loop] += seconds
        traced = max(places, key=places.__getitem__, default="")
        loop = max(loops, key=loops.__getitem__, default="")
        seconds = places[traced]
        found = found.replace(traced=traced, traced_seconds=seconds, loop=loop)
        with self._lock:
            self._write(marker=marker, lines=encoded(found))

    @cached_property
    def _lines(self) -> SourceLineFinder:
        return SourceLineFinder(self._context.jax)

    def _spent(self, function: Function) -> dict[str, float]:
        """Return the seconds of JAX's phases since the latest compile of *function*."""
        sums = _sums(function)
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
            self._append(1, space)

    def _write(self, **line: Any) -> None:
        self._append(0, f"{json.dumps(line)}\n".encode())

    def _append(self, kind: int, data: bytes) -> None:
        if (directory := self._context.settings.passes_dir) is None:
            self.kept[kind].extend(data)
            return
        file = Path(directory) / f"{os.getpid()}{_FILES[kind]}"
        with file.open("ab") as written:
            written.write(data)


def _sums(function: Function) -> dict[str, float]:
    return {phase: of.sum for phase, of in function.phases.copy().items()}
