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
from jaxmon.agent.context import Context, Options, Sample
from jaxmon.agent.flops.roofline import (
    MODEL,
    CallCost,
    DevicePeak,
    Executions,
    cost_of,
    peak_of,
    roofline,
    without_peak,
)
from jaxmon.agent.functions import Function, series_of
from jaxmon.agent.jaxlink import flops as counting
from jaxmon.agent.jaxlink.arguments import (
    JitCall,
    Shapes,
    array_classes,
    shapes_of,
    shapes_of_kinds,
)
from jaxmon.agent.jaxlink.executables import accessed_bytes
from jaxmon.agent.jaxlink.flops import Flops
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import applied_at
from jaxmon.agent.part import Explanation, Part
from jaxmon.exposition.families import Family, series
from jaxmon.facts.functions import Roofline, Uncounted
from jaxmon.facts.functions import Utilization as Facts
from jaxmon.threads import RLock


SITE = "flops"

_MOST_PROGRAMS = 1024


class FunctionTally:
    """
    The FLOPs of a function's calls. Thread-safe.

    JAX does not say which program a cached call runs. If all programs of a function
    need as much, *only* that, calls times that is exact. Otherwise each sampled call
    stands for those since the sample before: their shapes distinguish the programs.
    Calls of one that is *uncounted* are not seen; *open_loop* is as in `Flops`, of the
    latest program.
    """

    def __init__(self) -> None:
        self.unknown: Uncounted | None = None
        self.uncounted = False
        self.open_loop = ""
        self._lock = RLock()
        # By the hash of the arguments' shapes, which would take much more memory.
        self._costs: dict[int, CallCost] = {}
        self.only: CallCost | None = None
        self._settled = 0
        # Calls before each program that is not counted yet.
        self._expected: list[int] = []
        self._flops: dict[str, float] = {}
        self._ideal: dict[str, float] | None = {}

    @property
    def multiplies(self) -> bool:
        """Whether a program of the function has FLOPs."""
        return any(any(cost.flops.values()) for cost in list(self._costs.values()))

    @property
    def mixed(self) -> bool:
        """Whether programs of the function need different FLOPs."""
        return self.only is None and bool(self._costs)

    def expect(self, calls: int) -> None:
        """Note that one of *calls* so far compiled a program, about to be counted."""
        with self._lock:
            if self.only is not None and not self._expected:
                self._settle(self.only, calls - 1)
            self._expected.append(calls - 1)

    def expect_none(self) -> None:
        """Note that a program which was expected will not be counted."""
        with self._lock:
            del self._expected[-1:]
            self.unknown = self.unknown or Uncounted("untraced")

    def add(self, cost: CallCost | Uncounted, shapes: Shapes | None) -> None:
        """Note a program that was expected: its cost, and its *shapes*, if known."""
        with self._lock:
            del self._expected[:1]
            if isinstance(cost, Uncounted):
                self.unknown = self.unknown or cost
                return
            key = hash(shapes)
            same = self._costs.get(key)
            if same is not None and same != cost:
                if not same.is_same(cost):  # static arguments differ
                    self.unknown = self.unknown or Uncounted("programs")
                cost = cost._replace(part=0.0)  # shardings differ
            if not self._costs:
                self.only = cost
            elif self.only is not None and not self.only.is_same(cost):
                self.only = None  # its calls were settled when this was compiled
            if key in self._costs or len(self._costs) < _MOST_PROGRAMS:
                self._costs[key] = cost
            if self.only is not None and self._expected:
                # Another was compiled before this one was counted.
                self._settle(self.only, self._expected[0])

    def sampled(self, shapes: Shapes, calls: int) -> None:
        """Count *calls* so far, the latest of which had arguments of these *shapes*."""
        with self._lock:
            if not self.mixed:
                return
            cost = self._costs.get(hash(shapes))
            if cost is None:
                self.unknown = self.unknown or Uncounted("programs")
            else:
                self._settle(cost, calls)

    def cost(self, shapes: Shapes) -> CallCost | None:
        """Return what a call with arguments of these *shapes* takes, if known."""
        return self._costs.get(hash(shapes)) or self.only

    def totals(self, calls: int) -> CallCost:
        """Return what *calls* took; the latest ones are added at the next sample."""
        with self._lock:
            if self.only is not None and not self._expected:
                self._settle(self.only, calls)
            ideal = None if self._ideal is None else dict(self._ideal)
            return CallCost(dict(self._flops), ideal)

    def _settle(self, cost: CallCost, calls: int) -> None:
        fresh = max(calls - self._settled, 0)
        self._settled += fresh
        for work, number in cost.flops.items():
            self._flops[work] = self._flops.get(work, 0.0) + number * fresh
        if self._ideal is not None and cost.ideal is not None:
            for work, seconds in cost.ideal.items():
                self._ideal[work] = self._ideal.get(work, 0.0) + seconds * fresh
        else:
            self._ideal = None


class Lowered(NamedTuple):
    """What JAX lowered, and the shapes of the call's arguments, if they were seen."""

    jaxpr: Any
    shapes: Shapes | None


class _FlopThread(threading.local):
    """The function lowered last, and the one called last, with what they have."""

    jaxpr: tuple[Function, Callable[[], Any]] | None = None
    shapes: tuple[Function, Shapes] | None = None
    applied: bool = False


class UtilizationPart(Part):
    """Counts the FLOPs of calls of each program that `Programs` passes it."""

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
        observers.lowered.append(self._on_lower)
        observers.call.append(self._on_call)
        observers.sample.append(self._on_sample)
        observers.executed.append(self._on_executed)

    # --- the compiling thread ----------------------------------------------------

    def _on_lower(
        self, function: Function, frame: FrameType | None, jaxpr: Any
    ) -> None:
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
        self, function: Function, _: Jitted, call: JitCall, __: Options
    ) -> None:
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
        """Return what is known of the program just compiled; it is to be counted."""
        thread = self._thread
        lowered, thread.jaxpr = thread.jaxpr, None
        called, thread.shapes = thread.shapes, None
        shapes = called[1] if called and called[0] is function else None
        if function.is_users:
            tally = self._tallies.get(function) or self._tally(function)
            tally.expect(function.calls)
            # Under vmap or grad outside of jit, JAX calls it, which nothing counts.
            tally.uncounted |= thread.applied and shapes is None
        jaxpr = lowered[1]() if lowered and lowered[0] is function else None
        return Lowered(jaxpr, shapes)

    def _tally(self, function: Function) -> FunctionTally:
        return self._tallies.setdefault(function, FunctionTally())

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
        """Count FLOPs, of the model and computed once more; milliseconds if many."""
        if not function.is_users:
            return {}
        self._rooflines.pop(function, None)
        self._unplaced.pop(function, None)
        tally = self._tally(function)
        if lowered.jaxpr is None:
            # Another device needs another program, but JAX lowers no second one.
            tally.add(tally.only or Uncounted("untraced"), lowered.shapes)
            return {}
        with self._guard.contained(SITE):  # the rest is known of the program
            found = counting.count(self._jax, lowered.jaxpr, self._lines)
            tally.open_loop = found.open_loop
            if found.unknown is not None:
                tally.add(found.unknown, lowered.shapes)
                return {}
            mine = list(executable.local_devices())
            devices = max(int(facts.get("devices", 1)), len(mine), 1)
            peak = self._peak_of(mine)
            whole = cost_of(found, peak)
            figures = {f"{work}_flops": n for work, n in whole.flops.items()}
            if whole.ideal is None and peak is not None and peak.flops:
                # Other functions have a utilization, which this would make too low.
                reason = Uncounted("format", without_peak(found, peak))
                tally.add(reason, lowered.shapes)
                return figures
            tally.add(self._share(whole, len(mine), devices), lowered.shapes)
            flops = sum(whole.flops.values()) / devices
            if flops and whole.ideal and peak is not None and peak.bandwidth:
                seconds = sum(whole.ideal.values()) / devices
                self._unplaced[function] = found, flops, seconds, peak.bandwidth
            return figures
        tally.add(Uncounted("untraced"), lowered.shapes)
        return {}

    def place(
        self, function: Function, executable: Any, facts: Mapping[str, float]
    ) -> None:
        """Place the program counted last in the roofline, by ``accessed_bytes``."""
        unplaced = self._unplaced.pop(function, None)
        if unplaced is None:
            return
        with self._guard.contained(SITE):  # the rest is known of the program
            found, flops, seconds, bandwidth = unplaced
            accessed = self._accessed(found, executable, facts)
            if place := roofline(flops, seconds, accessed, bandwidth):
                self._rooflines[function] = place

    def _accessed(
        self, found: Flops, executable: Any, facts: Mapping[str, float]
    ) -> float | None:
        if not found.loops:
            return facts.get("accessed_bytes")
        with interrupts.expected(RuntimeError, TypeError, ValueError):
            return accessed_bytes(self._jax, executable)
        return None  # its backend shows no HLO, or XLA does not take it back

    def _share(self, whole: CallCost, mine: int, devices: int) -> CallCost:
        local = max(len(self._jax.local_devices()), mine)
        share = mine / devices
        flops = {work: number * share for work, number in whole.flops.items()}
        ideal = whole.ideal
        if ideal is not None:
            ideal = {work: seconds * share / local for work, seconds in ideal.items()}
        return CallCost(flops, ideal, mine / local)

    def _peak_of(self, devices: list[Any]) -> DevicePeak | None:
        """Return the peak of each of *devices*; `None` if not all devices are alike."""
        local, wanted = self._jax.local_devices(), self._settings
        kinds = {(device.platform, device.device_kind) for device in (*devices, *local)}
        if len(kinds) != 1:
            return None
        self._peak = peak_of(
            local[0], flops=wanted.peak_flops, bandwidth=wanted.peak_bandwidth
        )
        return self._peak

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

    def collect(self) -> list[Family]:
        """Return the FLOPs of calls, and for which functions they are unknown."""
        flops, ideal = catalog.FLOPS, catalog.IDEAL_SECONDS
        unknown, peak = catalog.FLOPS_UNKNOWN_REASON, catalog.DEVICE_PEAK_FLOPS
        done: list[tuple[str, float]] = []
        could: list[tuple[str, float]] = []
        reasons: list[tuple[str, float]] = []
        for function, tally in self._tallies.copy().items():
            if (why := _unknown(function, tally)) is not None:
                reasons.append((series_of(function, unknown, why.reason), 1))
                continue
            total = tally.totals(function.calls_and_hits()[0])
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
        Return the seconds that the model FLOPs of all calls take the devices at their
        peak, and the number of calls without known FLOPs; `None` if a peak, or whether
        there are calls, is unknown.
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
            given: dict[str, Any] = {"open_loop": tally.open_loop}
            if (why := _unknown(function, tally)) is not None:
                found[function.name] = Facts(unknown=why, **given)
                continue
            if (done := self._executions.get(function)) is not None:
                given |= {"achieved": done.achieved, "of_peak": done.of_peak}
            if (place := self._rooflines.get(function)) is not None:
                given["roofline"] = place
            found[function.name] = Facts(**given)
        return found


def _unknown(function: Function, tally: FunctionTally) -> Uncounted | None:
    """Return why FLOPs of calls are unknown; ahead-of-time calls are not seen."""
    matters = tally.multiplies or tally.unknown is not None
    if matters and (
        tally.uncounted or not function.counted or not function.calls_and_hits()[0]
    ):
        return Uncounted("uncounted")
    return tally.unknown
