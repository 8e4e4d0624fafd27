"""
Re-runs sampled calls to check whether the outputs agree.

Apart from device time and memory, re-running a call must have no observable effect. So
a call is re-run only if that is certain: no effects, no callbacks, the same
configuration, one process, arguments that still exist or were copied before.

Calls that donate nothing and run on one device are re-run here, on a thread of ours;
for others see `jaxmon.agent.checks.replays`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from jaxmon.agent.checks.arrays import arrays_in, unready_until
from jaxmon.agent.checks.replays import Replays, Turns
from jaxmon.agent.checks.results import DeterminismCheck, Deviation, HostResult
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import can_copy
from jaxmon.agent.jaxlink.configuration import surroundings
from jaxmon.agent.jaxlink.executables import Rerun, rerun_of
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic
from jaxmon.threads import Event


if TYPE_CHECKING:
    from jaxmon.agent.context import Sample


class ShadowRunner:
    """Re-runs one sampled call at a time."""

    def __init__(
        self, context: Context, checked: Callable[[Function, DeterminismCheck], None]
    ) -> None:
        self._jax = context.jax
        self._checked = checked
        self._worker = Worker("shadow", context.scheduler, limit=1)
        settings = context.settings
        self._turns = Turns(settings.shadow_interval, settings.shadow_memory)
        self._stopped = Event()
        self._replays = Replays(
            context.jax,
            turns=self._turns,
            worker=self._worker,
            stopped=self._stopped,
            report=self._report,
        )
        self.expire = self._replays.expire

    def take(self, sample: Sample) -> None:
        """Re-run a sampled call, or the next one, if eligible; called on its thread."""
        function = sample.function
        if not self._turns.has(function) or self._checks_keys():
            return
        given = self._jax.tree_util.tree_leaves((sample.args, sample.kwargs))
        # Mutable arguments may have been changed before the second run.
        if any([hasattr(leaf, "__array_interface__") for leaf in given]):
            self._turns.refuse(function, "numpy_argument")
            return
        returned = arrays_in(self._jax, sample.outputs)
        if not self._here(function, arrays_in(self._jax, given) + returned):
            if self._turns.fits(function, returned, sets=1):
                self._submit(self._repeat, sample)
        elif not can_copy(self._jax):
            self._turns.refuse(function, "old_jax")
        elif self._jax.process_count() > 1:
            # The others would have to take part; without one, they would wait for ever.
            self._turns.refuse(function, "several_processes")
        elif function in self._replays.reruns:
            self._replays.take(sample)
        else:
            self._submit(self._learn, sample)

    def stop(self) -> None:
        """Stop re-running calls."""
        self._turns.stop()
        self._stopped.set()
        self._replays.stop()
        self._worker.stop()

    def skipped_functions(self) -> Iterator[tuple[Function, str]]:
        """Yield the functions whose calls are not re-run, with the reason."""
        yield from self._turns.reasons().items()

    def _here(self, function: Function, arrays: Sequence[Any]) -> bool:
        """Return whether calls with these *arrays* are re-run on the calling thread."""
        rerun = self._replays.reruns.get(function)
        return (
            (rerun is not None and rerun.donates)
            or any([array.is_deleted() for array in arrays])
            or any([len(array.sharding.device_set) > 1 for array in arrays])
        )

    def _checks_keys(self) -> bool:
        """Return whether JAX would reject the keys of a call that has been made."""
        return bool(getattr(self._jax.config, "jax_debug_key_reuse", False))

    def _submit(
        self, job: Callable[[list[Sample], object], None], sample: Sample
    ) -> None:
        if not self._turns.begin():
            return
        # In a list, so that our thread does not hold it longer than it must.
        if not self._worker.submit(partial(job, [sample], self._trace_context())):
            self._turns.cancel()

    @cached_property
    def _trace_context(self) -> Callable[[], object]:
        """Returns the configuration that a trace depends on, on the calling thread."""
        return surroundings(self._jax)

    # --- on our own thread -----------------------------------------------------------

    def _learn(self, call: list[Sample], context: object) -> None:
        """Find out what re-running calls like this one would do."""
        rerun = None
        try:
            rerun = self._rerun(call.pop(), context)
        finally:
            # The next sample is re-run.
            (self._turns.over if rerun is None else self._turns.cancel)()

    def _rerun(self, sample: Sample, context: object) -> Rerun | None:
        """Return what re-running *sample* would do; `None` if it must not be re-run."""
        if self._trace_context() != context:
            return None  # a different program would run here
        rerun = rerun_of(self._jax, sample.jitted, sample.args, sample.kwargs)
        if rerun.effects:
            self._turns.refuse(sample.function, "effects")
            return None
        self._replays.reruns[sample.function] = rerun
        return rerun

    def _repeat(self, call: list[Sample], context: object) -> None:
        """Re-run a call that seems to donate nothing and runs on one device."""
        started, sample = monotonic(), call.pop()
        try:
            if self._jax.process_count() > 1:
                self._turns.refuse(sample.function, "several_processes")
                return
            rerun = self._rerun(sample, context)
            if rerun is None or rerun.donates:  # not all platforms delete what is
                return
            results = self._results(sample)
            if results is not None:
                first, again = results
                self._report(sample.function, len(first), first.deviations(again))
        finally:
            self._turns.over(monotonic() - started)

    def _results(self, sample: Sample) -> tuple[HostResult, HostResult] | None:
        """Return both results, `None` if arrays were donated or the runner stopped."""
        call = sample.args, sample.kwargs, sample.outputs
        if not self._wait_for(sample.outputs) or self._is_gone(call):
            return None
        try:
            first = HostResult(self._jax, sample.outputs)
            again = sample.jitted(*sample.args, **sample.kwargs)
            if not self._wait_for(again):
                return None
            return first, HostResult(self._jax, again)
        except Exception:
            if self._is_gone(call):
                return None
            raise

    def _report(
        self, function: Function, leaves: int, found: Sequence[Deviation]
    ) -> None:
        self._turns.succeeded(function)
        check = DeterminismCheck(function.name, 2, leaves, tuple(found))
        self._checked(function, check)

    def _wait_for(self, outputs: Any) -> bool:
        return unready_until(self._jax, outputs, self._stopped) is not None

    def _is_gone(self, tree: Any) -> bool:
        return any([array.is_deleted() for array in arrays_in(self._jax, tree)])
