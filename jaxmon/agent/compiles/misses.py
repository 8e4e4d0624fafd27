"""
The miss path: calls that left the C++ fast path, and the compiles that they cause.

A cached call of a jitted function never reaches Python. A miss does, through JAX
functions that are looked up in their module at each call, so a `Probe` there observes
every jitted function, including those created before `jaxmon.instrument`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import UNKNOWN, Function, active, series_of
from jaxmon.agent.inspection import AnyCall, package_of
from jaxmon.agent.jaxlink import patches as patch_targets
from jaxmon.agent.jaxlink.frames import (
    Jitted,
    entry_of,
    executable_of,
    held,
    jitted_at,
    key_at,
    outputs_at,
)
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.jit import copied
from jaxmon.agent.jaxlink.listeners import ending
from jaxmon.agent.part import Part
from jaxmon.clocks import monotonic, perf_counter
from jaxmon.exposition.families import Family
from jaxmon.indicators import work
from jaxmon.indicators.endings import End, noting, now
from jaxmon.indicators.timeline import Timeline
from jaxmon.threads import get_ident


if TYPE_CHECKING:
    from jaxmon.agent.jaxlink.arguments import Missed
    from jaxmon.agent.recompiles.finder import PendingCause
    from jaxmon.facts.contents import Folded
    from jaxmon.facts.events import Compiling
    from jaxmon.otel.traces.spans import CompileSpan


# From then on it is counted what a compile is of, and for how long at most.
_LONG_SECONDS, _READ_SECONDS = 2.0, 0.2
SLOW_SECONDS = 1.0
"""What a compile that no request waits for must take to be an event."""


class Compile:
    """
    One call of ``compile_or_get_cached``, counted for *function*, made and reported by
    *frame*, within the *outer* compile of this thread.

    Attributes:
        pending: why a call caused it.
        size: its equations, once counted: all, most from one line, and that line; and
            what is done with constants.
        began: when that call started, or it did, on the performance counter.
        started: when it did, without what we looked for before.
        deaf: whether some of JAX's events were missed.
        end: when it finished; empty until then.
    """

    pending: PendingCause | None = None
    size: tuple[int, int, str, Folded | None] | None = None
    span: CompileSpan | None = None
    looked_up = hit = built = deaf = False

    def __init__(
        self, function: Function, frame: FrameType, outer: Compile | None
    ) -> None:
        self.function = function
        self.outer = outer
        self.frame = id(frame)
        self.thread = get_ident()
        self.outer_error = sys.exception()
        self.end: End = []
        # References to the function that is called, before and after.
        self._references: list[int] = []
        # Number of looks at the stacks in progress at its end.
        self._looks: list[int] = []
        self.started = self.began = now()

    @property
    def age(self) -> float:
        """Seconds since it started; 0 if the program has replaced the clock by NaN."""
        return max(0.0, now() - self.started)

    def watched(self, original: AnyCall) -> AnyCall:
        """Return a callable to be called once in place of *original*."""
        if not isinstance(original, FunctionType):
            return ending(original, noting(self.end))
        # A frame in an exception's traceback refers to the function it runs, so if that
        # is called only once, its reference count shows how the call ended.
        copies = repeat(copied(original))
        counts = map(sys.getrefcount, copies)
        note = map(self._references.append, counts)
        self._references.append(next(counts) + 1)  # that of what is returned
        looks = map(self._looks.append, map(len, repeat(held)))
        return ending(next(copies), zip(noting(self.end), note, looks, strict=False))

    @property
    def raised(self) -> bool | None:
        """Whether it raised an exception; `None` if unknown."""
        if len(self._references) < len(("before", "after")):
            return None
        before, after = self._references
        # A look at the stacks refers to the function for a moment, too. An exception
        # just then is far less likely.
        return after > before and not any(self._looks)


def add_event(events: EventLog, compile_: Compile, *, looked_up: bool) -> None:
    """Add an event of *compile_*, no recompile, if it was slow or a request waited."""
    ended, hit = compile_.end[0], compile_.hit
    seconds = ended - compile_.began
    # One that JAX did not report is noticed late, perhaps within another request.
    waiting = work.payers()
    requests = sum([request.started < ended for request in waiting]) if waiting else 0
    if not requests and seconds < SLOW_SECONDS:
        return
    how = "loaded from the persistent cache" if hit else "compiled"
    waited = "a request" if requests == 1 else f"{requests} requests"
    events.add(
        "compile",
        compile_.function.name,
        f"{how} in {seconds:.3g} s{f' while {waited} waited' if requests else ''}",
        cache="hit" if hit else "miss" if looked_up else "off",
        seconds=seconds,
        requests=requests,
    )


# The program nests few calls (callbacks, constants computed while tracing); the bound
# only keeps stale frame ids from accumulating.
_OPEN = 32
_LOOKED = 16
"""Maximum number of misses without a compile examined per function."""

_SHOWN = 3
_DEPTH = 4
_SEARCHED = 1000
_EFFECTS = {
    "ordered": "has ordered effects, such as jax.debug.print(ordered=True)",
    "unordered": "has effects, such as jax.debug.print",
    "callback": "calls the host, such as jax.pure_callback",
}


class Miss:
    """A call currently on the miss path, *started* by `time.perf_counter`."""

    compiled = False

    def __init__(self, function: Function, started: float) -> None:
        self.function, self.started = function, started


class _MissThread(threading.local):
    def __init__(self) -> None:
        # By id of the frame that serves the call, latest last.
        self.calls: dict[int, Miss] = {}


def progress(jax: Any, running: Sequence[Compile]) -> Compiling:
    """Return what is *running*, and how large the first is: 1 µs per equation."""
    from jaxmon.facts.events import Compiling  # noqa: PLC0415 - on request

    if not running:
        return Compiling(0, 0.0)
    oldest = running[0]
    if oldest.age > _LONG_SECONDS and not oldest.function.internal:
        from jaxmon.agent.jaxlink.contents import folded  # noqa: PLC0415
        from jaxmon.agent.jaxlink.equations import EquationReader  # noqa: PLC0415 - as above
        from jaxmon.agent.jaxlink.source_lines import SourceLineFinder  # noqa: PLC0415

        if oldest.size is None and (jaxpr := oldest.function.lowered()) is not None:
            lines = SourceLineFinder(jax)
            reader = EquationReader(lines, monotonic() + _READ_SECONDS)
            most = reader.heaviest(jaxpr, oldest.function.place)
            counted = most.equations, most.most, most.where
            oldest.size = *counted, folded(jaxpr, lines)
    return Compiling(
        len(running), oldest.age, oldest.function.name, *(oldest.size or ())
    )


class CompileThread(threading.local):
    """What a thread compiles, and the seconds of its latest phases."""

    latest: Compile | None = None

    def __init__(self) -> None:
        self.phases: dict[str, tuple[Function, float]] = {}

    def seconds(self, function: Function) -> tuple[float | None, float | None]:
        """Return what tracing and lowering *function* took, once, if they were last."""
        last = self.phases.pop
        trace, lower = last("trace", None), last("lower", None)
        return (
            trace[1] if trace and trace[0] is function else None,
            lower[1] if lower and lower[0] is function else None,
        )


class Misses(Part):
    """Observers of the miss path; *thread* has the calls there of each thread."""

    name = "misses"

    def __init__(self, context: Context, timeline: Timeline) -> None:
        self._jax = context.jax
        self._table = context.table
        self._events = context.events
        self._registry = context.registry
        self._observers = context.observers
        self._sites = context.sites
        self._timeline = timeline
        self._looked: dict[Function, int] = {}
        self._reported: set[tuple[Function, str]] = set()
        self._hooks: Hooks | None = None
        self._clean: Callable[[], bool] = bool  # until attached: never
        self.thread = _MissThread()

    def attach(self, hooks: Hooks) -> None:
        """Observe the JAX functions that run on each miss."""
        self._hooks, self._clean = hooks, hooks.is_calling
        hooks.attach("misses", self._take)

    def _take(self, at: HookPlaces) -> None:
        for place in patch_targets.misses(self._jax):
            at.probe(*place, self.on_miss)
        for place in patch_targets.completed_misses(
            self._jax
        ):  # otherwise no reasons of misses
            at.probe(*place, self.on_done)

    def collect(self) -> list[Family]:
        """Return the misses of each function."""
        metric = catalog.JIT_CACHE_MISSES
        return [
            Family(
                metric,
                [
                    (series_of(function, metric), function.missed)
                    for function in active(self._table)
                    if function.name != UNKNOWN
                ],
            )
        ]

    def function_of(self, jitted: Jitted) -> Function:
        """Return the entry of *jitted*."""
        return self._registry.by_key(jitted.key) or self._table.of(jitted.fun)

    def on_miss(self, frame: FrameType, original: AnyCall) -> AnyCall | None:
        """Observe what JAX runs on every miss, also with effects and ahead of time."""
        registered = self._registry.by_code.get(id(frame.f_code))
        serving, entered = frame, registered and registered[0]
        if entered is None:
            if (found := entry_of(frame)) is None:
                return None
            if found is not frame:  # to 0.8
                registered = self._registry.by_code.get(id(found.f_code))
                serving, entered = found, registered and registered[0]
        entry, calls = id(serving), self.thread.calls
        if not self._clean():
            calls.pop(entry, None)  # the id of an earlier frame
            self._traced(frame, entered)
            return None
        if entered is not None:
            function = entered
        elif (jitted := jitted_at(frame)) is not None:
            entered = self._registry.by_key(jitted.key)
            function = entered or self._table.of(jitted.fun)
        else:
            return None
        while len(calls) >= _OPEN and entry not in calls:
            del calls[next(iter(calls))]
        calls[entry] = Miss(function, perf_counter())
        self._sites.call_from(serving.f_back, function.name, internal=function.internal)
        missed = function.other_missed if entered is None else function.entered_missed
        missed.add()
        # The original traces the function unless it is already traced.
        end: End = []
        try:
            if self._timeline.open_compile(end) is not None:
                return ending(original, noting(end))
        except BaseException:  # no longer recorded
            end.append(0)
            raise
        return None

    def _traced(self, frame: FrameType, entered: Function | None) -> None:
        """Record a call that JAX traces; *entered* is as returned by `by_code`."""
        if entered is None and not self._registry.codes_tell:
            entered = self._registry.by_key(key_at(frame))
        if entered is not None:
            entered.traced.add()

    def on_call_error(self, frame: FrameType, jitted: Jitted) -> None:
        """
        Record an error of the call of *jitted*. One that was rejected before JAX
        examined it, as under ``jax.no_tracing``, is a miss whose start no hook
        observed.
        """
        if self._hooks is None or not self._hooks.is_active("misses"):
            return  # otherwise each would look like a miss whose start was not observed
        if self.thread.calls.pop(id(frame), None) is not None:
            return
        entry = self._registry.by_code.get(id(frame.f_code))
        entered = entry[0] if entry else self._registry.by_key(jitted.key)
        function = entered or self._table.of(jitted.fun)
        (function.entered_missed if entered else function.other_missed).add()

    def on_done(self, frame: FrameType, original: AnyCall) -> None:
        """Observe the function that JAX runs when a missed call has succeeded."""
        miss = self.thread.calls.pop(id(frame), None)
        if miss is None:
            return
        function = miss.function
        if not function.internal:
            for observe in self._observers.returned:
                observe(function, functools.partial(outputs_at, frame))
            for see in self._observers.served:
                see(function, executable_of(frame))
        if miss.compiled:
            return
        looked = self._looked.get(function, 0)
        if looked >= _LOOKED or function.internal:
            return
        self._looked[function] = looked + 1
        reason, text = _why_missed(frame, original)
        if (function, reason) not in self._reported:
            self._reported.add((function, reason))
            self._events.add("miss", function.name, text, reason=reason)


def _why_missed(frame: FrameType, original: AnyCall) -> tuple[str, str]:
    """Return why a call missed; its *frame* asks for the fast path of *original*."""
    from jaxmon.agent.jaxlink.arguments import missed  # noqa: PLC0415 - rarely needed
    from jaxmon.agent.jaxlink.executables import effect_of  # noqa: PLC0415 - likewise

    call = missed(frame)
    effect = effect_of(call.executable, original)
    if effect is not None:
        text = (
            "every call takes the slow path, about half a millisecond: the "
            f"function {_EFFECTS[effect]}; nothing is recompiled"
        )
        return "effects", text
    found = list(_numpy(call))
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        text = (
            f"argument {', '.join(found[:_SHOWN])}{more}: a NumPy array where a "
            "JAX array was cached, or vice versa; misses once per kind, no "
            "recompile"
        )
        return "numpy_argument", text
    text = (
        "no compile was needed: compiled ahead of time, or cached for a different "
        "kind of argument (NumPy array, Python number, JAX array)"
    )
    return "other", text


def _numpy(call: Missed) -> Iterator[str]:
    """Yield the NumPy arrays among the arguments, also those in plain containers."""
    # Loaded with what finds causes, at the first compile.
    from jaxmon.agent.recompiles.argument_trees import (  # noqa: PLC0415
        names_of,
        parameters_of,
    )

    args, kwargs = call.args, call.kwargs
    names = names_of(parameters_of(call.fun, len(args), kwargs), len(args))
    given: list[tuple[str, Any]] = [
        (names[position], value)
        for position, value in enumerate(args)
        if position not in call.static
    ]
    given += [(n, value) for n, value in kwargs.items() if n not in call.static]
    left = [_SEARCHED]
    for name, value in given:
        yield from _inside(name, value, left, 0)


def _inside(where: str, value: Any, left: list[int], depth: int) -> Iterator[str]:
    from jaxmon.agent.recompiles.values import text_of  # noqa: PLC0415 - as above

    left[0] -= 1
    kind = type(value)
    if left[0] < 0 or depth > _DEPTH:
        return
    if package_of(kind) == "numpy":
        yield where
    elif kind is dict:
        for key, item in value.items():
            yield from _inside(f"{where}[{text_of(key)}]", item, left, depth + 1)
    elif kind is list or kind is tuple:
        for number, item in enumerate(value):
            yield from _inside(f"{where}[{number}]", item, left, depth + 1)
