"""
Re-runs sampled calls to check whether the outputs agree.

Apart from device time, re-running a call must have no observable effect. So a call is
re-run only if that is certain: nothing donated, no effects, no callbacks, the same
configuration, one device, small inputs and outputs that still exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from jaxmon.agent.checks.deviations import DeterminismCheck, HostResult
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import is_ready_or_deleted, underlying_array
from jaxmon.agent.jaxlink.configuration import surroundings
from jaxmon.agent.jaxlink.executables import why_not_again
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic


if TYPE_CHECKING:
    from jaxmon.agent.observers import Sample


LIMIT_BYTES = 256 * 1024 * 1024
"""Maximum total size of arguments and outputs of a re-run call."""

# Fraction of device memory that must stay free, including the re-run's outputs.
_SPARE = 0.2

_FIRST_LOOK, _LAST_LOOK = 0.002, 0.1


class ShadowRunner:
    """
    Re-runs one sampled call at a time, at most once per `shadow_interval`.

    Args:
        context: shared state of the agent.
        checked: called with each result.
    """

    def __init__(
        self, context: Context, checked: Callable[[Function, DeterminismCheck], None]
    ) -> None:
        self._jax = context.jax
        self._interval = context.settings.shadow_interval
        self._checked = checked
        self._worker = Worker("shadow", context.guard, limit=1)
        self._refused: dict[Function, str] = {}
        self._busy = False
        self._due = 0.0
        self._stopped = threading.Event()

    def take(self, sample: Sample) -> None:
        """Queue a sampled call for re-running if eligible; called on its thread."""
        now = monotonic()
        if self._busy or now < self._due or sample.function in self._refused:
            return
        jax = self._jax
        leaves = jax.tree_util.tree_leaves((sample.args, sample.kwargs, sample.outputs))
        arrays = [
            underlying_array(leaf) for leaf in leaves if isinstance(leaf, jax.Array)
        ]
        if any([array.is_deleted() for array in arrays]):
            self._refused[sample.function] = "donates"
            return
        # Two threads that launch programs on several devices may do so in a different
        # order on each; their collectives would deadlock.
        if any([len(array.sharding.device_set) > 1 for array in arrays]):
            self._refused[sample.function] = "several_devices"
            return
        # Mutable arguments may have been changed before the second run.
        if any([hasattr(leaf, "__array_interface__") for leaf in leaves]):
            self._refused[sample.function] = "numpy_argument"
            return
        if sum(array.nbytes for array in arrays) > LIMIT_BYTES:
            self._refused[sample.function] = "too_large"
            return
        self._busy = True
        self._due = now + self._interval
        job = partial(
            self._repeat,
            sample.function,
            sample.jitted,
            [(sample.args, sample.kwargs, sample.outputs)],
            self._trace_context(),
        )
        if not self._worker.submit(job):
            self._busy = False

    def stop(self) -> None:
        """Stop re-running calls."""
        self._due = float("inf")
        self._stopped.set()
        self._worker.stop()

    def skipped_functions(self) -> Iterator[tuple[Function, str]]:
        """Yield the functions whose calls are not re-run, with the reason."""
        yield from list(self._refused.copy().items())

    # --- on our own thread -------------------------------------------------------

    def _repeat(
        self,
        function: Function,
        jitted: Any,
        call: list[tuple[Any, Any, Any]],
        surroundings: object,
    ) -> None:
        try:
            args, kwargs, outputs = call.pop()
            if self._trace_context() != surroundings:
                return  # a different program would run here
            reason = self._obstacle(jitted, args, kwargs)
            if reason is not None:
                self._refused[function] = reason
                return
            if not self._has_room(outputs):
                return
            results = self._results(jitted, args, kwargs, outputs)
            if results is not None:
                first, again = results
                found = tuple(first.deviations(again))
                self._checked(
                    function, DeterminismCheck(function.name, 2, len(first), found)
                )
        finally:
            self._busy = False

    def _results(
        self, jitted: Any, args: Any, kwargs: Any, outputs: Any
    ) -> tuple[HostResult, HostResult] | None:
        """
        Return both results, `None` if the program has donated an array meanwhile, or
        the runner was stopped.
        """
        call = args, kwargs, outputs
        if not self._wait_for(outputs) or self._is_gone(call):
            return None
        try:
            first = HostResult(self._jax, outputs)
            again = jitted(*args, **kwargs)
            if not self._wait_for(again):
                return None
            return first, HostResult(self._jax, again)
        except Exception:
            if self._is_gone(call):
                return None
            raise

    def _obstacle(self, jitted: Any, args: Any, kwargs: Any) -> str | None:
        """Return why *jitted* must not be re-run, if so."""
        if self._jax.process_count() > 1:
            return "several_processes"  # the others might have to take part
        return why_not_again(jitted, args, kwargs)

    @cached_property
    def _trace_context(self) -> Callable[[], object]:
        """Returns the configuration that a trace depends on, on the calling thread."""
        return surroundings(self._jax)

    def _has_room(self, outputs: Any) -> bool:
        leaves = self._jax.tree_util.tree_leaves(outputs)
        needed = sum(getattr(underlying_array(leaf), "nbytes", 0) for leaf in leaves)
        for device in self._jax.local_devices():
            stats = device.memory_stats() or {}
            limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use", 0)
            if limit and used + needed > (1 - _SPARE) * limit:
                return False
        return True

    def _wait_for(self, outputs: Any) -> bool:
        """
        Wait for the device; return `False` if stopped meanwhile.

        Does not block inside JAX: a thread blocked there at interpreter exit crashes
        the process and changes its exit code.
        """
        leaves = self._jax.tree_util.tree_leaves(outputs)
        arrays = [
            underlying_array(leaf)
            for leaf in leaves
            if isinstance(leaf, self._jax.Array)
        ]
        pause = _FIRST_LOOK
        while not all(map(is_ready_or_deleted, arrays)):
            if self._stopped.wait(pause):
                return False
            pause = min(pause * 1.5, _LAST_LOOK)
        return True

    def _is_gone(self, tree: Any) -> bool:
        return any(
            leaf.is_deleted()
            for leaf in self._jax.tree_util.tree_leaves(tree)
            if isinstance(leaf, self._jax.Array)
        )
