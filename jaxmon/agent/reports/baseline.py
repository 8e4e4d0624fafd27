"""
What `jaxmon baseline` measures: times of every call of counted functions, and what
functions cost, written to a file when the agent stops.

Each program is waited for before the next one starts: the device is idle when a call
begins, and the call's time is the time until its outputs are ready. So host and device
no longer overlap, which is wrong for a program at work and right for one that is
measured.

On a CPU, the wall time of a call doubles when another process takes one of two cores;
the processor time of all threads of this process changes by a tenth at most. Both are
kept. Between calls the same piece of work is timed again and again, by the calling
thread's own clock: on a slower machine it takes longer too.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.counted import CountedFunction, arm
from jaxmon.agent.functions import UNKNOWN, Function
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink.arguments import Shapes, array_classes, shapes_of, text_of
from jaxmon.agent.jaxlink.backends import is_calling
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks, PostCallHook
from jaxmon.agent.part import Part
from jaxmon.agent.sampling.window import CallStart, DispatchProbe
from jaxmon.agent.versions import calibration_work, versions
from jaxmon.clocks import perf_counter, process_time, thread_time
from jaxmon.facts.functions import Program
from jaxmon.host.files import whole
from jaxmon.host.resources.process import scheduling
from jaxmon.threads import get_ident


SITE = "timing"

# Most calls kept of one program, and programs of one function.
_CALLS = 1000
_PROGRAMS = 50
# Seconds between two runs of the piece of work, which takes a fifth of a millisecond.
_PAUSE = 0.02


class CallTimes:
    """The latest calls of a program: seconds until ready, and of all processors."""

    __slots__ = ("processor", "wall")

    def __init__(self) -> None:
        self.wall: deque[float] = deque(maxlen=_CALLS)
        self.processor: deque[float] = deque(maxlen=_CALLS)


class _TimedCall(NamedTuple):
    function: Function
    start: CallStart
    busy: float
    missed: int


class ExactTiming(Part):
    """Times cached calls, but for the first after a miss, and a piece of work."""

    name = SITE

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._table = context.table
        self._registry = context.registry
        self._place: PostCallHook | None = None
        self._clean: Callable[[], bool] = bool
        self._arrays: tuple[type, ...] = ()
        self._pid = os.getpid()
        # One object, to be recognised in JAX's hook.
        self._hook = self._see
        self._begun: dict[int, _TimedCall] = {}
        self._missed = 0
        self._calibrated = 0.0
        self._times: dict[Function, dict[Shapes, CallTimes]] = {}
        self.calibration: deque[float] = deque(maxlen=_CALLS)

    def attach(self, hooks: Hooks) -> None:
        """Find the hook in JAX, and time what the program jits from now on."""
        hooks.attach(SITE, self._take, needs=("calls",))

    def _take(self, at: HookPlaces) -> None:
        at.undo_by(self.stop)
        self._place = PostCallHook(self._jax)
        self._clean = is_calling(self._jax)
        self._arrays = array_classes(self._jax)
        self._registry.added.append(self._added)

    def stop(self) -> None:
        """Restore JAX."""
        place, self._place = self._place, None
        if place is not None:
            place.leave(self._hook)
            self._registry.added.remove(self._added)

    abandon = stop

    def programs(self) -> dict[str, dict[str, CallTimes]]:
        """Return the times by function and by the shapes of the arguments."""
        return {
            function.name: {text_of(shapes): times for shapes, times in found.items()}
            for function, found in self._times.copy().items()
        }

    def _added(self, function: Function, counted: CountedFunction) -> None:
        arm(counted, DispatchProbe(self.begin, function, None))

    def begin(
        self,
        probe: DispatchProbe,
        counted: CountedFunction,
        jitted: Callable[..., Any],
        frame: FrameType,
    ) -> None:
        """Start a call, and wait for the next one."""
        place = self._place
        if place is None or not self._guard.on(SITE) or os.getpid() != self._pid:
            return
        arm(counted, probe)
        with self._guard.contained(SITE):  # the call goes on
            if not self._clean() or self._jax.config.jax_disable_jit:
                return
            if not place.take(self._hook):
                return
            missed, busy = self._table.missed(), process_time()
            start = CallStart(probe, counted, jitted, frame)
            self._begun[get_ident()] = _TimedCall(probe.function, start, busy, missed)

    def _see(
        self, fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any
    ) -> None:
        place = self._place
        if place is None:
            return
        try:
            begun = self._begun.pop(get_ident(), None)
            self._jax.block_until_ready(outputs)
            ended, busy = perf_counter(), process_time()
        except Exception as error:  # noqa: BLE001 - met where the output is read
            interrupts.pass_on(error)
            return
        with self._guard.contained(SITE):  # the call has been made
            # The frame that made the call; ours is above it only now.
            if begun is not None and begun.start.matches(fun, sys._getframe(1)):  # noqa: SLF001
                fresh, self._missed = begun.missed != self._missed, begun.missed
                if not fresh:
                    times = self._times_of(begun.function, args, kwargs)
                    if times is not None:
                        times.wall.append(ended - begun.start.started)
                        times.processor.append(busy - begun.busy)
                self._calibrate(ended)

    def _times_of(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CallTimes | None:
        leaves = self._jax.tree_util.tree_leaves((args, kwargs))
        shapes = shapes_of(leaves, self._arrays)
        programs = self._times.setdefault(function, {})
        found = programs.get(shapes)
        if found is None and len(programs) < _PROGRAMS:
            found = programs.setdefault(shapes, CallTimes())
        return found

    def _calibrate(self, now: float) -> None:
        if now - self._calibrated >= _PAUSE:
            before = thread_time()
            calibration_work()
            self.calibration.append(thread_time() - before)
            self._calibrated = perf_counter()


# A persistent cache would make compiles look cheap: the time saved is not known here.
_PHASES = ("trace", "lower", "backend_compile")
_FIGURES = (
    *("flops", "model_flops", "accessed_bytes", "argument_bytes", "output_bytes"),
    *("temporary_bytes", "peak_bytes", "code_bytes", "fusions", "instructions"),
)

# Of each distribution; see `jaxmon.preflight.baseline.record`.
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_DIGITS = 4

_numbers = itertools.count(1)


def write_at_end(
    context: Context,
    programs: Mapping[str, Program],
    timing: ExactTiming | None,
    directory: str,
) -> None:
    """Write the costs to a new file in *directory*, atomically; log a failure."""
    try:
        document = {
            "versions": versions(context.jax),
            "functions": {
                of.name: _figures(of, programs.get(of.name, Program()))
                for of in context.table
                if of.built and not of.internal and of.name != UNKNOWN
            },
        }
        if timing is not None:
            document["times"] = _times(timing)
        # A process may run several agents in turn, and a host several processes.
        path = Path(directory, f"{os.getpid()}-{next(_numbers)}.json")
        whole.write(path, json.dumps(document).encode(), follow=False)
    except Exception as error:  # noqa: BLE001 - contained: the program goes on
        interrupts.pass_on(error)
        log.warning("jaxmon could not write the baseline file: %s", error)


def _figures(function: Function, program: Program) -> dict[str, float]:
    seconds = sum(function.phases[p].sum for p in _PHASES if p in function.phases)
    found = {
        "compiles": function.built,
        "recompiles": function.recompiled().total(),
        "compile_seconds": round(seconds, 4),
    }
    if program.programs:
        found["programs"] = program.programs
    for name in _FIGURES:
        if (value := getattr(program, name)) is not None:
            found[name] = int(value) if value == int(value) else value
    return found


def _times(timing: ExactTiming) -> dict[str, Any]:
    return {
        "waited": _waited(),
        "calibration": _quantiles(timing.calibration),
        "functions": {
            name: {
                shapes: {
                    "calls": len(times.wall),
                    "wall": _quantiles(times.wall),
                    "processor": _quantiles(times.processor),
                }
                for shapes, times in programs.items()
                if times.wall
            }
            for name, programs in timing.programs().items()
        },
    }


def _quantiles(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    if not ordered:
        return []
    last = len(ordered) - 1
    return [float(f"{ordered[round(q * last)]:.{_DIGITS}g}") for q in _QUANTILES]


def _waited() -> float | None:
    found = scheduling()
    waiting = None if found is None else found.waiting()
    return None if waiting is None else round(waiting, _DIGITS)
