"""
Sampled calls: a few calls of each function, measured in detail.

A timer arms one object of each function that is being called; its next call is timed,
passed to the observers, and polled until its work is done. Other calls cost nothing
extra. See `docs/time.md` for the meaning of the metrics.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import FrameType
from typing import Any

from jaxmon import catalog
from jaxmon.agent.context import Context, OnSample, Sample
from jaxmon.agent.counted import CountedFunction, arm, armed, disarm, waiting_for
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arguments import Shapes, array_classes, shapes_of
from jaxmon.agent.jaxlink.backends import is_calling
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks, PostCallHook
from jaxmon.agent.jaxlink.other_threads import is_debugged
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.sampling import window as windows
from jaxmon.agent.sampling.execution import (
    CallTiming,
    ExecutionFigures,
    ExecutionTimer,
    Sampler,
)
from jaxmon.agent.sampling.window import CallEnd, DispatchProbe
from jaxmon.agent.worker import Watcher
from jaxmon.clocks import perf_counter, thread_time
from jaxmon.exposition.families import Family, histograms
from jaxmon.facts import functions as facts


# Maximum share of one core for sampling, and how much of it may accumulate.
_SHARE = 0.005
_SAVINGS = 0.03

# Maximum number of calls skipped at random first: if short and long runs alternate, the
# timer mostly fires during a long one.
_PASSED = 16

# Calls of an armed function within which to find one whose previous work is known.
_ATTEMPTS = 4

# Maximum number of input arrays of a sampled call checked for readiness.
_INPUTS = 256

_random = random.Random()  # noqa: S311 - spreads samples, hides nothing


class Sampling(Part):
    """
    Times sampled calls and passes them to `Observers.sample`; *run_ahead* follows those
    that are *spanning* processes.
    """

    name = "sampling"

    def __init__(
        self, context: Context, spanning: Callable[[], Collection[Function]] = tuple
    ) -> None:
        self._context = context
        self._jax = context.jax
        self._guard = context.guard
        self._observers = context.observers.sample
        self._executed = context.observers.executed
        self._figures: dict[Function, ExecutionFigures] = {}
        self.run_ahead = windows.RunAhead(spanning, self.begin)
        self._watcher = Watcher("watcher", context.scheduler)
        self._window: windows.DispatchWindow | None = None
        self._clean: Callable[[], bool] = bool  # until attached: never
        self._arrays: tuple[Any, ...] = ()
        self._pid = os.getpid()
        self._ticked = perf_counter()
        self._saved = _SAVINGS
        self._spent = self._spent_before = 0.0
        self._sampled = 0
        self._cost = 1e-3
        context.observers.timer.append(self._tick)

    def attach(self, hooks: Hooks) -> None:
        """Find the hook in JAX."""
        hooks.attach(windows.SITE, self._take, needs=("watcher",))

    def _take(self, at: HookPlaces) -> None:
        at.undo_by(self.detach)
        place = PostCallHook(self._jax)
        self._clean = is_calling(self._jax)
        self._arrays = array_classes(self._jax)
        missed = self._context.table.missed
        self._window = windows.DispatchWindow(
            self._jax, place, self._ended, missed, self._guard
        )

    def detach(self) -> None:
        """Restore JAX. Calls in progress are no longer sampled."""
        window, self._window = self._window, None
        if window is not None:
            window.close()
        self._disarm()

    def _disarm(self) -> None:
        for function in self._context.table:
            for _, counted in function.objects.newest_first():
                if armed(counted):
                    disarm(counted)

    def stop(self) -> None:
        """Sample nothing more, and stop polling."""
        self.detach()
        self._watcher.stop()

    def dropped(self) -> dict[str, int]:
        """Return the number of samples refused because too many were being polled."""
        return {"sample": self._watcher.refused.value}

    @property
    def spent(self) -> float:
        """Processor seconds that sampling has taken, on all threads."""
        window = self._window
        return self._spent + self._watcher.spent + (window.spent if window else 0.0)

    def explain(self) -> Explanation:
        """Return the samples, and how they vary."""
        return Explanation(
            functions={"samples": self.snapshot, "spreads": self._spreads}
        )

    def _spreads(self) -> dict[str, dict[str, facts.Spread | None]]:
        return {f.name: self._spread(f) for f in self._context.table if f.counted}

    def _spread(self, function: Function) -> dict[str, facts.Spread | None]:
        figures = self._figures.get(function)
        if figures is None:  # it has made no call that could be sampled
            return {"dispatch": None, "execution": None}
        return {
            "dispatch": facts.spread_of(figures.dispatches.latest),
            "execution": facts.spread_of(figures.executions.latest),
        }

    def snapshot(self) -> dict[str, facts.Samples]:
        """Return samples and median times of each sampled function."""
        return {
            function.name: facts.Samples(
                samples=figures.dispatch.count,
                dispatch_seconds=figures.dispatches.median,
                execution_seconds=figures.executions.median,
                execution_mean=figures.steady.pace,
            )
            for function, figures in self._figures.copy().items()
            if figures.dispatch.count
        }

    def collect(self) -> list[Family]:
        """Return dispatch and execution times."""
        found = list(self._figures.values())
        dispatch = [f.dispatch for f in found if f.dispatch.count]
        execution = [f.execution for f in found if f.execution.count]
        return [
            histograms(catalog.DISPATCH_SECONDS, dispatch),
            histograms(catalog.EXECUTION_SECONDS, execution),
        ]

    # --- the timer ---------------------------------------------------------------

    def _tick(self) -> None:
        if self._guard.on(windows.SITE):
            with self._guard.contained(windows.SITE):  # the timer goes on
                self.arm(_PASSED)

    def arm(self, passed: int = 1) -> None:
        """Arm functions with hits; of these up to *passed* are skipped first."""
        # Stepping into a call must not lead into the lookup of an armed function.
        if is_debugged():
            self._disarm()
            return
        before = thread_time()
        window = self._window
        if window is None:
            return
        window.expire()
        affordable = self._affordable()
        waiting = []
        for function in self._context.table:
            if not (function.counted and function.objects):
                continue  # as most in a program that keeps making functions
            not_hits = function.traced.value + function.entered_missed.value
            hits = function.objects.calls - not_hits
            if hits <= 0:
                continue
            figures = self._figures_of(function)
            fresh, figures.hits = hits - figures.hits, max(hits, figures.hits)
            if fresh > 0:
                waiting.append((figures.sampled, function, figures, fresh))
        # The longest-waiting function comes first.
        waiting.sort(key=lambda item: item[0])
        for _, function, figures, fresh in waiting[:affordable]:
            figures.sampled = perf_counter()
            counted = figures.busiest()
            waits = None if counted is None else waiting_for(counted)
            if counted is None or isinstance(waits, Sampler):
                continue
            number = _random.randrange(min(passed, fresh))
            sampler = Sampler(self.begin, function, figures, number)
            if isinstance(waits, DispatchProbe):
                waits.then = waits.then or sampler
            else:
                arm(counted, sampler)
        self._spent += thread_time() - before

    def _figures_of(self, function: Function) -> ExecutionFigures:
        found = self._figures.get(function)
        return found or self._figures.setdefault(function, ExecutionFigures(function))

    def _affordable(self) -> int:
        now = perf_counter()
        spent = self.spent
        fresh, self._spent_before = spent - self._spent_before, spent
        sampled, self._sampled = self._sampled, 0
        if sampled:
            self._cost += (fresh / sampled - self._cost) / 4
        granted = (now - self._ticked) * _SHARE
        self._ticked = now
        self._saved = min(self._saved + granted, _SAVINGS) - fresh
        # However expensive a sample is, the budget recovers, and the next one shows
        # whether it still is.
        return max(int(self._saved / min(self._cost, _SAVINGS / 2)), 0)

    # --- the calling thread ------------------------------------------------------

    def begin(
        self,
        sampler: Sampler | DispatchProbe,
        counted: CountedFunction,
        jitted: Callable[..., Any],
        frame: FrameType,
    ) -> None:
        """Start a call. Calls that JAX traces or interprets are ignored."""
        window = self._window
        if window is None or not self._guard.on(windows.SITE):
            return
        try:
            if (
                os.getpid() == self._pid
                and self._clean()
                and not self._jax.config.jax_disable_jit
            ):
                window.begin(sampler, counted, jitted, frame)
                self._context.sites.call_from(frame, sampler.function.name)
        except Exception:  # noqa: BLE001 - contained: the call goes on
            self._guard.failed(windows.SITE)

    def _ended(self, call: CallEnd) -> None:
        window, sampler = self._window, call.begun.arm
        if isinstance(sampler, DispatchProbe):
            self.run_ahead.dispatched(call)
        if window is None or not isinstance(sampler, Sampler):
            return
        window.waiting.discard(sampler)
        followed, sampler.followed = sampler.followed, ()
        sampler.attempts += 1
        figures = sampler.figures
        first = not sampler.shown
        if first:
            self.run_ahead.sampled(sampler.function, call.begun.counted)
            sampler.shown = True
            figures.dispatched(call.ended - call.begun.started)
        if sampler.timed or call.work is None:
            pass
        # A call that is followed may have been preceded by work of ours.
        elif call.previous is not None and not followed:
            self._sampled += 1
            sampler.timed = True
            self._watch(call, sampler)
        elif sampler.attempts < _ATTEMPTS:
            window.waiting.add(sampler)
            arm(call.begun.counted, sampler)
        if first:
            self._show(sampler, call, self._observers)
        elif followed:
            self._show(sampler, call, followed)

    def _watch(self, call: CallEnd, sampler: Sampler) -> None:
        work, previous, figures = call.work, call.previous, sampler.figures
        if work is None or previous is None:
            return
        before = []
        started = call.begun.started
        if previous.finished is None or previous.finished > started:
            before.append(previous)
        leaves = self._jax.tree_util.tree_leaves((call.args, call.kwargs))
        before += windows.unready(leaves, self._jax.Array, limit=_INPUTS)
        taken = None if call.since is None else thread_time() - call.since
        called = CallTiming(started, call.ended, taken)
        record = figures.executed
        if self._executed:
            record = partial(self._record, sampler, shapes_of(leaves, self._arrays))
        self._watcher.submit(ExecutionTimer(called, before, work, figures.pace, record))

    def _record(self, sampler: Sampler, shapes: Shapes, seconds: float) -> None:
        sampler.figures.executed(seconds)
        for notify in self._executed:
            # The time is exported.
            with self._guard.contained("observers", stays_on=True):
                notify(sampler.function, shapes, seconds)

    def _show(
        self, sampler: Sampler, call: CallEnd, observers: Sequence[OnSample]
    ) -> None:
        sample: Sample | None = None
        for observe in observers:
            sample = sample or Sample(
                sampler.function,
                call.begun.jitted,
                call.args,
                call.kwargs,
                call.outputs,
                partial(self._follow, sampler, call.begun.counted),
            )
            # Others still see it.
            with self._guard.contained("observers", stays_on=True):
                observe(sample)

    def _follow(
        self, sampler: Sampler, counted: CountedFunction, observe: OnSample, passed: int
    ) -> None:
        sampler.passed = min(passed, sampler.passed) if sampler.followed else passed
        sampler.followed += (observe,)
        arm(counted, sampler)
