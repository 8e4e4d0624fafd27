"""
What calls compute, what of that their devices could, and how near they come.

The FLOPs of a program are counted in the jaxpr that JAX lowers (`jaxlink.flops`), on
the thread that analyses programs; a cached call costs nothing. See `docs/flops.md`.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context, Options, Sample, Shapes
from jaxmon.agent.flops.roofline import (
    CallCost,
    DevicePeak,
    Executions,
    FunctionTally,
    peak_of,
    roofline,
)
from jaxmon.agent.functions import Function, series_of
from jaxmon.agent.jaxlink import flops as counting
from jaxmon.agent.jaxlink.arguments import JitCall
from jaxmon.agent.jaxlink.executables import accessed_bytes
from jaxmon.agent.jaxlink.flops import Flops
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import applied_at
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.sampling.shapes import array_classes, shapes_of, shapes_of_kinds
from jaxmon.exposition.families import Family, series
from jaxmon.facts.functions import Roofline, Uncounted
from jaxmon.facts.functions import Utilization as Facts


SITE = "flops"

MODEL, RECOMPUTED = catalog.FLOPS_WORK


class Lowered(NamedTuple):
    """
    A program that is compiled.

    Attributes:
        jaxpr: what JAX lowered, `None` if that was not seen.
        shapes: of the arguments of the call that compiles it, `None` if there is none.
    """

    jaxpr: Any
    shapes: Shapes | None


class _FlopThread(threading.local):
    """
    Attributes:
        jaxpr: the function lowered last, and a reference to the jaxpr.
        shapes: the function called last that compiles, and the shapes of its arguments.
        applied: whether what is lowered is called, not ahead of time.
    """

    jaxpr: tuple[Function, Callable[[], Any]] | None = None
    shapes: tuple[Function, Shapes] | None = None
    applied: bool = False


class UtilizationPart(Part):
    """
    Counts the FLOPs of calls.

    `Programs` passes it each program, with what `lowered` returned for it.
    """

    name = SITE

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._settings = context.settings
        self._thread = _FlopThread()
        self._tallies: dict[Function, FunctionTally] = {}
        self._executions: dict[Function, Executions] = {}
        self._rooflines: dict[Function, Roofline] = {}
        # FLOPs, ideal seconds and bandwidth of programs until their bytes are known.
        self._unplaced: dict[Function, tuple[Flops, float, float, float]] = {}
        self._peak: DevicePeak | None = None
        observers = context.observers
        observers.lowered.append(self._on_lowered)
        observers.call.append(self._on_call)
        observers.sample.append(self._on_sample)
        observers.executed.append(self._on_executed)

    # --- the compiling thread ----------------------------------------------------

    def _on_lowered(self, function: Function, frame: FrameType, jaxpr: Any) -> None:
        """Note the *jaxpr* that is lowered below *frame*; a microsecond."""
        if SITE in self._guard.off:
            return
        try:
            reference = None if jaxpr is None else (function, weakref.ref(jaxpr))
            self._thread.jaxpr = reference
            self._thread.applied = applied_at(frame) is not None
        except Exception:  # noqa: BLE001 - contained: the compile goes on
            self._guard.failed(SITE)

    def _on_call(
        self, function: Function, jitted: Jitted, call: JitCall, options: Options
    ) -> None:
        """Note the shapes of the arguments of a call that compiles."""
        del jitted, options
        if SITE in self._guard.off:
            return
        try:
            shapes, static = None, call.static_argnums or call.static_argnames
            # Static arguments are among the shapes, and not among the kinds.
            if call.kinds and not static and call.given.maker == "jax.jit":
                shapes = shapes_of_kinds(call.kinds, self._arrays[0])
            if shapes is None:
                shapes = self._shapes(call.args, call.kwargs)
            self._thread.shapes = function, shapes
        except Exception:  # noqa: BLE001 - contained: the compile goes on
            self._guard.failed(SITE)

    def lowered(self, function: Function) -> Lowered:
        """
        Return what is known of the program of *function* that was just compiled, and
        expect it to be counted.
        """
        thread = self._thread
        lowered, thread.jaxpr = thread.jaxpr, None
        called, thread.shapes = thread.shapes, None
        shapes = called[1] if called and called[0] is function else None
        if function.is_users:
            tally = self._tallies.setdefault(function, FunctionTally())
            tally.expect(function.calls_and_hits()[0])
            # Under vmap or grad outside of jit, JAX calls it, which nothing counts.
            tally.uncounted |= thread.applied and shapes is None
        return Lowered(
            lowered[1]() if lowered and lowered[0] is function else None,
            shapes,
        )

    def dropped_program(self, function: Function) -> None:
        """Note that the program of *function* compiled last will not be counted."""
        if function.is_users:
            self._tallies[function].expect_none()

    # --- the thread that analyses programs ----------------------------------------

    def count(
        self,
        function: Function,
        lowered: Lowered,
        executable: Any,
        facts: Mapping[str, float],
    ) -> dict[str, float]:
        """
        Count the FLOPs of a program; takes some milliseconds for a large one.

        Args:
            function: that it was compiled for.
            lowered: what was known when it was compiled.
            executable: XLA's loaded executable.
            facts: what else is known of it: ``devices``.

        Returns:
            Those that the model needs, and those computed once more, on all devices;
            empty if unknown.
        """
        if not function.is_users:
            return {}
        tally = self._tallies.setdefault(function, FunctionTally())
        try:
            return self._count(function, tally, lowered, executable, facts)
        except Exception:  # noqa: BLE001 - contained: the rest is known of the program
            self._guard.failed(SITE)
            tally.add(Uncounted("untraced"), lowered.shapes)
            return {}

    def _count(
        self,
        function: Function,
        tally: FunctionTally,
        lowered: Lowered,
        executable: Any,
        facts: Mapping[str, float],
    ) -> dict[str, float]:
        self._rooflines.pop(function, None)
        self._unplaced.pop(function, None)
        if lowered.jaxpr is None:
            # Another device needs another program, but JAX lowers no second one.
            tally.add(tally.only or Uncounted("untraced"), lowered.shapes)
            return {}
        found = counting.count(self._jax, lowered.jaxpr, self._lines)
        tally.open_loop = found.open_loop
        if found.unknown is not None:
            tally.add(found.unknown, lowered.shapes)
            return {}
        mine = list(executable.local_devices())
        devices = max(int(facts.get("devices", 1)), len(mine), 1)
        peak = self._peak_of(mine)
        whole = cost_of(found, peak)
        if whole.ideal is None and peak is not None and peak.flops:
            # Other functions have a utilization, which this one would make too low.
            tally.add(Uncounted("format", _without_peak(found, peak)), lowered.shapes)
            return {f"{work}_flops": number for work, number in whole.flops.items()}
        tally.add(self._share(whole, len(mine), devices), lowered.shapes)
        seconds = None if whole.ideal is None else sum(whole.ideal.values()) / devices
        bandwidth = None if peak is None else peak.bandwidth
        flops = sum(whole.flops.values()) / devices
        if flops and seconds and bandwidth:
            self._unplaced[function] = found, flops, seconds, bandwidth
        return {f"{work}_flops": number for work, number in whole.flops.items()}

    def place(
        self, function: Function, executable: Any, facts: Mapping[str, float]
    ) -> None:
        """
        Place the program of *function* that was counted last in the roofline; the
        *facts* have its ``accessed_bytes``.
        """
        unplaced = self._unplaced.pop(function, None)
        if unplaced is None:
            return
        try:
            found, flops, seconds, bandwidth = unplaced
            accessed = self._accessed(found, executable, facts)
            if place := roofline(flops, seconds, accessed, bandwidth):
                self._rooflines[function] = place
        except Exception:  # noqa: BLE001 - contained: the rest is known of the program
            self._guard.failed(SITE)

    def _accessed(
        self, found: Flops, executable: Any, facts: Mapping[str, float]
    ) -> float | None:
        """Return the bytes that one device accesses, with each trip of loops."""
        if not found.loops:
            return facts.get("accessed_bytes")
        try:
            return accessed_bytes(self._jax, executable)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            interrupts.pass_on(error)
            return None  # its backend shows no HLO, or XLA does not take it back

    def _share(self, whole: CallCost, mine: int, devices: int) -> CallCost:
        """
        Return the cost of a program on *mine* of its *devices*, those of this process.
        """
        local = max(len(self._jax.local_devices()), mine)
        share = mine / devices
        flops = {work: number * share for work, number in whole.flops.items()}
        ideal = whole.ideal
        if ideal is not None:
            ideal = {work: seconds * share / local for work, seconds in ideal.items()}
        return CallCost(flops, ideal, mine / local)

    def _peak_of(self, devices: list[Any]) -> DevicePeak | None:
        """Return the peak of each of *devices*; `None` if not all devices are alike."""
        wanted = self._settings
        local = self._jax.local_devices()
        kinds = {(device.platform, device.device_kind) for device in (*devices, *local)}
        if len(kinds) != 1:
            return None
        self._peak = peak_of(
            local[0], flops=wanted.peak_flops, bandwidth=wanted.peak_bandwidth
        )
        return self._peak

    # --- sampled calls -------------------------------------------------------------

    def _on_sample(self, sample: Sample) -> None:
        tally = self._tallies.get(sample.function)
        if tally is not None and tally.mixed:
            shapes = self._shapes(sample.args, sample.kwargs)
            tally.sampled(shapes, sample.function.calls_and_hits()[0])

    def _on_executed(self, function: Function, shapes: Shapes, seconds: float) -> None:
        tally = self._tallies.get(function)
        cost = None if tally is None or tally.unknown else tally.cost(shapes)
        if cost is not None:
            self._executions.setdefault(function, Executions()).add(cost, seconds)

    def _shapes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Shapes:
        leaves = self._jax.tree_util.tree_leaves((args, dict(kwargs)))
        return shapes_of(leaves, self._arrays)

    @functools.cached_property
    def _arrays(self) -> tuple[Any, ...]:
        return array_classes(self._jax)

    @functools.cached_property
    def _lines(self) -> SourceLineFinder:
        return SourceLineFinder(self._jax)

    # --- reading -------------------------------------------------------------------

    def collect(self) -> list[Family]:
        """Return the FLOPs of calls, and for which functions they are unknown."""
        flops, ideal = catalog.FLOPS, catalog.IDEAL_SECONDS
        unknown, peak = catalog.FLOPS_UNKNOWN_REASON, catalog.DEVICE_PEAK_FLOPS
        done: list[tuple[str, float]] = []
        could: list[tuple[str, float]] = []
        reasons: list[tuple[str, float]] = []
        for function, tally in self._tallies.copy().items():
            why = _unknown(function, tally)
            if why is not None:
                reasons.append((series_of(function, unknown, why.reason), 1))
                continue
            total = tally.totals(function.calls_and_hits()[0])
            # Most functions multiply no matrices, which is known of them.
            done += [
                (series_of(function, flops, work), number)
                for work, number in total.flops.items()
            ]
            for work, seconds in (total.ideal or {}).items():
                if seconds:
                    could.append((series_of(function, ideal, work), seconds))
        peaks = {} if self._peak is None else self._peak.flops
        return [
            Family(flops, done),
            Family(ideal, could),
            Family(unknown, reasons),
            Family(peak, [(series(peak, name), n) for name, n in peaks.items()]),
        ]

    def ideal_seconds(self) -> tuple[float, int] | None:
        """
        Return the seconds that the model FLOPs of all calls take the process's devices
        at their peak, and the number of calls whose FLOPs are unknown; `None` if a peak
        is unknown, or whether there are calls.
        """
        seconds, calls = 0.0, 0
        for function, tally in self._tallies.copy().items():
            called = function.calls_and_hits()[0]
            if (why := _unknown(function, tally)) is not None:
                if why.reason == "uncounted" and function.counted:
                    return None
                calls += called if function.counted else function.missed
                continue
            total = tally.totals(called).ideal
            if total is None:
                return None
            seconds += total.get(MODEL, 0.0)
        return seconds, calls

    def explain(self) -> Explanation:
        """Return what each function achieves, or why that is unknown."""
        return Explanation(functions={"flops": self._snapshot})

    def _snapshot(self) -> dict[str, Facts]:
        found = {}
        for function, tally in self._tallies.copy().items():
            why = _unknown(function, tally)
            if why is not None:
                facts = Facts(unknown=why, open_loop=tally.open_loop)
                found[function.name] = facts
                continue
            facts = Facts(open_loop=tally.open_loop)
            executions = self._executions.get(function)
            if executions is not None:
                facts = facts.replace(
                    achieved=executions.achieved, of_peak=executions.of_peak
                )
            place = self._rooflines.get(function)
            if place is not None:
                facts = facts.replace(roofline=place)
            found[function.name] = facts
        return found


def cost_of(found: Flops, peak: DevicePeak | None) -> CallCost:
    """Return the cost of a program whose devices, taken together, have this *peak*."""
    flops, ideal = {MODEL: 0.0}, {MODEL: 0.0}
    is_complete = peak is not None
    for (format_, recomputed), number in found.amounts.items():
        work = RECOMPUTED if recomputed else MODEL
        flops[work] = flops.get(work, 0.0) + number
        best = None if peak is None else peak.of(format_)
        if best is None:
            is_complete = False
        else:
            ideal[work] = ideal.get(work, 0.0) + number / best
    return CallCost(flops, ideal if is_complete else None)


def _without_peak(found: Flops, peak: DevicePeak) -> str:
    """Return a format of operands for which there is no *peak*."""
    return next((flops for flops, _ in found.amounts if peak.of(flops) is None), "")


def _unknown(function: Function, tally: FunctionTally) -> Uncounted | None:
    """
    Return why the FLOPs of a function's calls are unknown. If a program has never been
    called, it was compiled ahead of time, and its calls are not seen.
    """
    called = function.counted and function.calls_and_hits()[0]
    matters = tally.multiplies or tally.unknown is not None
    if matters and (tally.uncounted or not called):
        return Uncounted("uncounted")
    return tally.unknown
