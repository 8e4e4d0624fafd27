"""
Re-runs sampled calls to check whether the outputs agree.

Apart from device time and memory, re-running a call must have no observable effect. So
a call is re-run only if that is certain: no effects, no callbacks, the same
configuration, one process, arguments that still exist or were copied before.

Calls that donate nothing and run on one device are re-run on a thread of ours. Others
are dispatched right after the call, on its thread, and waited for and compared on ours:
two threads that launch programs on several devices may do so in a different order on
each; their collectives would deadlock.

A training step donates the state that its previous call returned. After the call that
state is gone, and nothing of ours runs between the evaluation of the arguments and the
call. So the outputs of one call are copied, each shard on its device, and if the next
call donates them, its re-run gets the copies.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from jaxmon import interrupts
from jaxmon.agent.checks.arrays import arrays_in, unready_until
from jaxmon.agent.checks.results import (
    DeterminismCheck,
    Deviation,
    HostResult,
    compare_leaves,
)
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import (
    can_copy,
    copied_on_devices,
    shard_bytes,
    underlying_array,
    with_underlying,
)
from jaxmon.agent.jaxlink.configuration import surroundings
from jaxmon.agent.jaxlink.executables import Rerun, rerun_of, traced_program
from jaxmon.agent.jaxlink.failures import kind_of
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic
from jaxmon.threads import Event


if TYPE_CHECKING:
    from jaxmon.agent.context import Sample


# A re-run and its comparison take at most this fraction of the time.
SHARE = 0.01

# Seconds after which what was not possible is tried again.
_PATIENCE = 60.0


class Turns:
    """
    One re-run at a time, not before it is *due*: at most once per *interval* seconds,
    no more often than keeps their time below 1 %, with so many bytes of *memory* per
    device.
    """

    def __init__(self, interval: float, memory: int) -> None:
        self._interval = interval
        self._memory = memory
        self._refused: dict[Function, str] = {}
        self._postponed: dict[Function, str] = {}
        # Popped by the thread that makes a re-run: atomic, and idempotent to restore.
        self._token = [True]
        self.due = 0.0

    def has(self, function: Function) -> bool:
        """Return whether a call of *function* may be re-run now."""
        free = not self.busy and monotonic() >= self.due
        return free and function not in self._refused

    @property
    def busy(self) -> bool:
        """Whether a re-run is being made."""
        return not self._token

    def begin(self) -> bool:
        """Start a re-run; return whether no other thread has started one."""
        with interrupts.expected(IndexError):
            return self._token.pop()
        return False

    def cancel(self) -> None:
        """Finish a turn without a re-run."""
        self._token[:] = [True]

    def over(self, taken: float = 0.0) -> None:
        """Finish a re-run that has *taken* so many seconds."""
        pause = max(self._interval, taken / SHARE)
        self.due = max(self.due, monotonic() + pause)
        self.cancel()

    def stop(self) -> None:
        """Allow no more."""
        self.due = float("inf")

    def refuse(self, function: Function, reason: str) -> None:
        """Never re-run *function*."""
        self._refused[function] = reason

    def postpone(self, function: Function, reason: str) -> None:
        """Re-run *function* later, if that is possible then."""
        self._postponed[function] = reason
        self.due = max(self.due, monotonic() + max(self._interval, _PATIENCE))

    def succeeded(self, function: Function) -> None:
        """Forget why *function* was postponed."""
        self._postponed.pop(function, None)

    def reasons(self) -> dict[Function, str]:
        """Return why functions are not re-run."""
        return self._postponed.copy() | self._refused.copy()

    def fits(self, function: Function, returned: Iterable[Any], *, sets: int) -> bool:
        """Return whether *sets* copies of what a call *returned* fit."""
        needed = bytes_by_device(returned)
        for device in needed:
            needed[device] *= sets
        if max(needed.values(), default=0) > self._memory:
            self.refuse(function, "too_large")
        elif not has_room(needed):
            self.postpone(function, "little_memory")
        else:
            return True
        return False

    @contextmanager
    def attempt(self, function: Function) -> Iterator[Callable[[], None]]:
        """
        Finish the turn after the block, unless that calls what this yields; without
        memory postpone the function, and after any other error refuse it.
        """
        pending = [function]
        try:
            yield pending.clear
        except Exception as error:
            interrupts.pass_on(error)
            pending.append(function)
            if kind_of(error) != "oom":
                self.refuse(function, "failed")
                raise
            self.postpone(function, "little_memory")
        finally:
            if pending:
                self.over()


# Fraction of a device's memory that must stay free.
_SPARE = 0.2


def bytes_by_device(arrays: Iterable[Any]) -> Counter[Any]:
    """Return the bytes of *arrays* on each device of this process; some µs each."""
    found: Counter[Any] = Counter()
    for array in arrays:
        size = shard_bytes(array)
        for device in array.sharding.addressable_devices:
            found[device] += size
    return found


def has_room(needed: Counter[Any]) -> bool:
    """Return whether each device keeps a fifth of its memory free, if it reports it."""
    for device, size in needed.items():
        stats = device.memory_stats() or {}
        limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use", 0)
        if limit and used + size > (1 - _SPARE) * limit:
            return False
    return True


def copied(jax: Any, leaves: Sequence[Any], numbers: Sequence[int]) -> list[Any]:
    """Return *leaves* with copies of those *numbers*, which are arrays."""
    found = list(leaves)
    arrays = [underlying_array(found[number]) for number in numbers]
    for number, copy in zip(numbers, copied_on_devices(jax, arrays), strict=True):
        found[number] = with_underlying(found[number], copy)
    return found


class KeptOutputs:
    """Copies of *arrays* that wrap no others; dispatches them, waits for none."""

    def __init__(self, jax: Any, function: Function, arrays: Sequence[Any]) -> None:
        self._jax = jax
        self.function = function
        self.since = monotonic()
        # By identity; the program's own arrays are not kept alive.
        self._copies = {
            id(array): (weakref.ref(array), copy)
            for array, copy in zip(arrays, copied_on_devices(jax, arrays), strict=True)
        }

    def free(self) -> None:
        """Free the copies."""
        self._copies.clear()

    def arguments(
        self, leaves: Sequence[Any], donated: frozenset[int] | None
    ) -> list[Any] | None:
        """
        Return *leaves*, with copies of those *donated*; `None` if one of others is
        gone.
        """
        found = list(leaves)
        alive = []
        for number, leaf in enumerate(leaves):
            if not isinstance(leaf, self._jax.Array):
                continue
            array = underlying_array(leaf)
            if donated is not None and number not in donated:
                if array.is_deleted():
                    return None
                continue
            original, copy = self._copies.pop(id(array), (None, None))
            if original is not None and original() is array:
                found[number] = with_underlying(leaf, copy)
            elif array.is_deleted():
                return None
            else:
                alive.append(number)
        return copied(self._jax, found, alive)


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
        # What re-running calls would do, by function.
        self._reruns: dict[Function, Rerun] = {}
        # At most one, used by whichever thread removes it first.
        self._kept: list[KeptOutputs] = []

    def take(self, sample: Sample) -> None:
        """Re-run a sampled call, or the next one, if eligible; called on its thread."""
        function = sample.function
        # JAX may reject the keys of a call that has been made.
        checks_keys = getattr(self._jax.config, "jax_debug_key_reuse", False)
        if checks_keys or not self._turns.has(function):
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
        elif function in self._reruns:
            self._replay(sample, returned)
        else:
            self._submit(self._learn, sample)

    def expire(self) -> None:
        """Free copies if no call came for them, or if memory has become scarce."""
        for kept in list(self._kept):
            if monotonic() - kept.since > _PATIENCE:
                self._release(kept, "not_called_again")
            elif not has_room(Counter(dict.fromkeys(self._jax.local_devices(), 0))):
                self._release(kept, "little_memory")

    def stop(self) -> None:
        """Stop re-running calls."""
        self._turns.stop()
        self._stopped.set()
        for kept in list(self._kept):
            self._release(kept, "not_called_again")
        self._worker.stop()

    def skipped(self) -> dict[Function, str]:
        """Return why functions are not re-run."""
        return self._turns.reasons()

    def _here(self, function: Function, arrays: Sequence[Any]) -> bool:
        """Return whether calls with these *arrays* are re-run on the calling thread."""
        rerun = self._reruns.get(function)
        return (
            (rerun is not None and rerun.donates)
            or any([array.is_deleted() for array in arrays])
            or any([len(array.sharding.device_set) > 1 for array in arrays])
        )

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

    def _replay(self, sample: Sample, returned: Sequence[Any]) -> None:
        """Re-run the call of *sample*, or the next one if it donates."""
        function, rerun = sample.function, self._reruns[sample.function]
        # A copy of the outputs, and those of the second run; of arguments as well.
        sets = 3 if rerun.donates else 2
        if not self._turns.fits(function, returned, sets=sets):
            return
        if not rerun.donates:
            if self._turns.begin():
                self._dispatch(sample, sample.args, sample.kwargs)
        elif sample.follow is not None and self._turns.begin():
            with self._turns.attempt(function) as goes_on:
                kept = KeptOutputs(self._jax, function, returned)
                self._kept.append(kept)
                sample.follow(partial(self._take_next, kept), 0)
                goes_on()

    def _take_next(self, kept: KeptOutputs, sample: Sample) -> None:
        """Re-run the call after the one whose outputs were *kept*."""
        if not self._remove(kept):
            return
        function = kept.function
        with self._turns.attempt(function) as goes_on:
            tree = self._jax.tree_util
            returned = arrays_in(self._jax, sample.outputs)
            if not self._turns.fits(function, returned, sets=2):
                return
            leaves, structure = tree.tree_flatten((sample.args, sample.kwargs))
            given = kept.arguments(leaves, self._reruns[function].donated)
            if given is None:
                self._turns.postpone(function, "donates_others")
                return
            args, kwargs = tree.tree_unflatten(structure, given)
            del given
            goes_on()
            self._dispatch(sample, args, kwargs)

    def _dispatch(
        self, sample: Sample, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Dispatch the re-run of *sample*, and have it compared later."""
        began, tree = monotonic(), self._jax.tree_util
        with self._turns.attempt(sample.function) as goes_on:
            program = self._reruns[sample.function].program()
            if traced_program(sample.jitted, args, kwargs) is not program:
                # Its static arguments, shapes or configuration are others.
                del self._reruns[sample.function]
                return
            found, _ = tree.tree_flatten_with_path(sample.outputs)
            names = [tree.keystr(path) for path, _ in found]
            # The program's next call may donate them.
            leaves, kind = [leaf for _, leaf in found], self._jax.Array
            arrays = [n for n, leaf in enumerate(leaves) if isinstance(leaf, kind)]
            first = copied(self._jax, leaves, arrays)
            again = tree.tree_leaves(sample.jitted(*args, **kwargs))
            job = partial(self._compare, sample.function, names, first, again, began)
            del found, leaves
            if self._worker.submit(job):
                goes_on()

    def _release(self, kept: KeptOutputs, reason: str) -> None:
        if self._remove(kept):
            kept.free()
            self._turns.postpone(kept.function, reason)
            self._turns.over()

    def _remove(self, kept: KeptOutputs) -> bool:
        """Return whether no other thread has used or freed what was *kept*."""
        with interrupts.expected(ValueError):
            self._kept.remove(kept)
            return True
        return False

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
        self._reruns[sample.function] = rerun
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

    def _compare(
        self,
        function: Function,
        names: Sequence[str],
        first: list[Any],
        again: list[Any],
        began: float,
    ) -> None:
        """Compare two runs once both are done; the second began at *began*."""
        dispatching, started = monotonic() - began, began
        with self._turns.attempt(function) as goes_on:
            unready = unready_until(self._jax, first, self._stopped)
            if unready is None:
                return
            # Until the first run is done, the devices work for the program.
            started = max(began, unready - dispatching)
            if unready_until(self._jax, again, self._stopped) is None:
                return
            found = compare_leaves(self._jax, names, first, again)
            self._report(function, len(names), found)
            goes_on()
            self._turns.over(monotonic() - started)
