"""
Re-runs on the calling thread, of programs that donate or run on several devices: when
one is due, whether there is memory for it, and the copies that it starts from.

They are dispatched right after the call, and waited for and compared on a thread of
ours. Two threads that launch programs on several devices may do so in a different order
on each; their collectives would deadlock.

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
from functools import partial
from typing import TYPE_CHECKING, Any

from jaxmon import interrupts
from jaxmon.agent.checks.arrays import arrays_in, unready_until
from jaxmon.agent.checks.results import compare_leaves
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import (
    copied_on_devices,
    shard_bytes,
    underlying_array,
    with_underlying,
)
from jaxmon.agent.jaxlink.executables import Rerun, traced_program
from jaxmon.agent.jaxlink.failures import kind_of
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic
from jaxmon.threads import Event


if TYPE_CHECKING:
    from jaxmon.agent.checks.results import Deviation
    from jaxmon.agent.context import Sample


# A re-run and its comparison take at most this fraction of the time.
SHARE = 0.01

# Seconds after which what was not possible is tried again.
_PATIENCE = 60.0


class Turns:
    """
    One re-run at a time, at most once per *interval* seconds, and no more often than
    keeps the time that they take below 1 %, with at most so many bytes of *memory* per
    device.

    Attributes:
        due: `time.monotonic` before which none is made.
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
        Finish the turn after the block unless that calls what this yields. Without
        memory the function is postponed; after any other error it is refused.
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
    """
    Return whether each device has room for the bytes *needed* with a fifth of its
    memory still free. A device that does not report its memory counts as empty.
    """
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
    """
    Copies of *arrays*, which must not wrap others; dispatches them, waits for none.
    """

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
        Return the *leaves* of a call that has been made, with copies in place of the
        *donated* ones, of all arrays if it is not known which; `None` if one is gone
        that was not an output. Each copy is returned once.
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


class Replays:
    """
    Re-runs calls on their own thread.

    Args:
        worker: compares.
        stopped: set when the worker must not wait any longer.
        report: called with the number of outputs compared, and their deviations.

    Attributes:
        reruns: what re-running calls would do, by function.
    """

    def __init__(
        self,
        jax: Any,
        *,
        turns: Turns,
        worker: Worker,
        stopped: Event,
        report: Callable[[Function, int, Sequence[Deviation]], None],
    ) -> None:
        self._jax = jax
        self._turns = turns
        self._worker = worker
        self._stopped = stopped
        self._report = report
        self.reruns: dict[Function, Rerun] = {}
        # At most one, used by whichever thread removes it first.
        self._kept: list[KeptOutputs] = []

    def take(self, sample: Sample) -> None:
        """Re-run the call of *sample*, or the next one if it donates."""
        function, returned = sample.function, arrays_in(self._jax, sample.outputs)
        rerun = self.reruns[function]
        # A copy of the outputs, and those of the second run; of arguments as well.
        sets = 3 if rerun.donates else 2
        if not self._turns.fits(function, returned, sets=sets):
            return
        if not rerun.donates:
            if self._turns.begin():
                self._repeat(sample, sample.args, sample.kwargs)
        elif sample.follow is not None and self._turns.begin():
            with self._turns.attempt(function) as goes_on:
                kept = KeptOutputs(self._jax, function, returned)
                self._kept.append(kept)
                sample.follow(partial(self._take_next, kept))
                goes_on()

    def expire(self) -> None:
        """Free copies if no call came for them, or if memory has become scarce."""
        for kept in list(self._kept):
            if monotonic() - kept.since > _PATIENCE:
                self._release(kept, "not_called_again")
            elif not has_room(Counter(dict.fromkeys(self._jax.local_devices(), 0))):
                self._release(kept, "little_memory")

    def stop(self) -> None:
        """Free copies."""
        for kept in list(self._kept):
            self._release(kept, "not_called_again")

    # --- on the calling thread -------------------------------------------------------

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
            given = kept.arguments(leaves, self.reruns[function].donated)
            if given is None:
                self._turns.postpone(function, "donates_others")
                return
            args, kwargs = tree.tree_unflatten(structure, given)
            del given
            goes_on()
            self._repeat(sample, args, kwargs)

    def _repeat(
        self, sample: Sample, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Dispatch the re-run of *sample*, and have it compared later."""
        began, tree = monotonic(), self._jax.tree_util
        with self._turns.attempt(sample.function) as goes_on:
            program = self.reruns[sample.function].program()
            if traced_program(sample.jitted, args, kwargs) is not program:
                # Its static arguments, shapes or configuration are others.
                del self.reruns[sample.function]
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
