"""
The miss path: calls that left the C++ fast path.

A cached call of a jitted function never reaches Python. A miss does, through JAX
functions that are looked up in their module at each call, so a `Probe` there observes
every jitted function, including those created before `jaxmon.instrument`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from jaxmon import catalog
from jaxmon.agent.compiles.compile import CompileAttribution
from jaxmon.agent.context import Context
from jaxmon.agent.families import active, series_of
from jaxmon.agent.functions import UNKNOWN, Function
from jaxmon.agent.jaxlink import patch_targets
from jaxmon.agent.jaxlink.frames import (
    Jitted,
    entry_of,
    jitted_at,
    key_at,
    outputs_at,
)
from jaxmon.agent.jaxlink.hooks import Hooks, Places
from jaxmon.agent.jaxlink.probe import ending
from jaxmon.agent.part import Part
from jaxmon.clocks import perf_counter
from jaxmon.exposition.families import Family
from jaxmon.indicators.endings import End, noting


# The program nests few calls (callbacks, constants computed while tracing); the bound
# only keeps stale frame ids from accumulating.
_OPEN = 32
_LOOKED = 16
"""Maximum number of misses without a compile examined per function."""


class Miss:
    """
    A call currently on the miss path.

    Attributes:
        function: the function called.
        started: `time.perf_counter` at its start.
        compiled: whether it compiled anything.
    """

    __slots__ = ("compiled", "function", "started")

    def __init__(self, function: Function, started: float) -> None:
        self.function = function
        self.started = started
        self.compiled = False


class _Thread(threading.local):
    def __init__(self) -> None:
        # By id of the frame that serves the call, latest last.
        self.calls: dict[int, Miss] = {}


class Misses(Part):
    """
    Observers of the miss path.

    Args:
        context: shared state of the agent.
        attribution: attributes compiles to requests.
    """

    name = "misses"

    def __init__(self, context: Context, attribution: CompileAttribution) -> None:
        self._jax = context.jax
        self._table = context.table
        self._events = context.events
        self._registry = context.registry
        self._returned = context.observers.returned
        self._sites = context.sites
        self._attribution = attribution
        self._looked: dict[Function, int] = {}
        self._reported: set[tuple[Function, str]] = set()
        self._hooks: Hooks | None = None
        self._clean: Callable[[], bool] = bool  # until attached: never
        self._thread = _Thread()

    def attach(self, hooks: Hooks) -> None:
        """Observe the JAX functions that run on each miss."""
        self._hooks, self._clean = hooks, hooks.is_calling
        hooks.attach("misses", self._take)

    def _take(self, at: Places) -> None:
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
                    (series_of(one, metric), one.missed)
                    for one in active(self._table)
                    if one.name != UNKNOWN
                ],
            )
        ]

    def function_of(self, jitted: Jitted) -> Function:
        """Return the entry of *jitted*."""
        return self._registry.by_key(jitted.key) or self._table.of(jitted.fun)

    def miss(self, entry: int) -> Miss | None:
        """
        Return the call on this thread that is served by the ``cache_miss`` frame with
        this id; `None` if JAX is tracing or transforming, or there is no such call.
        """
        return self._thread.calls.get(entry)

    def on_miss(
        self, frame: FrameType, original: Callable[..., Any]
    ) -> Callable[..., Any] | None:
        """
        Observe the function that JAX runs on every miss, including calls with effects,
        which always miss, and ahead of time, which is not a call.
        """
        serving, entered = frame, self._registry.by_code(frame.f_code)
        if entered is None:
            if (found := entry_of(frame)) is None:
                return None
            if found is not frame:  # to 0.8
                serving, entered = found, self._registry.by_code(found.f_code)
        entry, calls = id(serving), self._thread.calls
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
        self._begin(serving, function, entered=entered is not None)
        # The original traces the function unless it is already traced.
        end: End = []
        try:
            if self._attribution.tracing_begins(end):
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

    def _begin(self, frame: FrameType, function: Function, *, entered: bool) -> None:
        entry, calls = id(frame), self._thread.calls
        if entry not in calls:
            while len(calls) >= _OPEN:
                del calls[next(iter(calls))]
        calls[entry] = Miss(function, perf_counter())
        self._sites.call_from(frame.f_back, function.name, internal=function.internal)
        (function.entered_missed if entered else function.other_missed).add()

    def on_call_error(self, frame: FrameType, jitted: Jitted) -> None:
        """
        Record that an error propagates from the call of *jitted* served by a
        ``cache_miss`` *frame*. A call rejected before JAX examined it, as under
        ``jax.no_tracing``, is a miss whose start no hook observed.
        """
        if self._hooks is None or not self._hooks.is_active("misses"):
            return  # otherwise each would look like a miss whose start was not observed
        if self._thread.calls.pop(id(frame), None) is not None:
            return
        known = self._registry
        entered = known.by_code(frame.f_code) or known.by_key(jitted.key)
        function = entered or self._table.of(jitted.fun)
        (function.entered_missed if entered else function.other_missed).add()

    def on_done(self, frame: FrameType, original: Callable[..., Any]) -> None:
        """Observe the function that JAX runs when a missed call has succeeded."""
        miss = self._thread.calls.pop(id(frame), None)
        if miss is None:
            return
        function = miss.function
        if not function.internal:
            for observe in self._returned:
                observe(function, functools.partial(outputs_at, frame))
        if miss.compiled:
            return
        looked = self._looked.get(function, 0)
        if looked >= _LOOKED or function.internal:
            return
        self._looked[function] = looked + 1
        # Few misses come here, and in most programs none.
        from jaxmon.agent.recompiles.miss_reasons import why_missed  # noqa: PLC0415

        reason = why_missed(frame, original)
        if reason is None or (function, reason.name) in self._reported:
            return
        self._reported.add((function, reason.name))
        self._events.add("miss", function.name, reason.text, reason=reason.name)
