"""
Re-runs on the calling thread, of programs that donate or run on several devices.

They are dispatched right after the call, and waited for and compared on a thread of
ours. Two threads that launch programs on several devices may do so in a different order
on each; their collectives would deadlock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from jaxmon import interrupts
from jaxmon.agent.checks.kept import KeptOutputs
from jaxmon.agent.checks.results import compare_leaves
from jaxmon.agent.checks.room import Room, has_room
from jaxmon.agent.checks.turns import Turns
from jaxmon.agent.checks.waiting import arrays_in, unready_until
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import (
    copied_on_devices,
    underlying_array,
    with_underlying,
)
from jaxmon.agent.jaxlink.executables import Rerun, traced_program
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic
from jaxmon.threads import Event


if TYPE_CHECKING:
    from jaxmon.agent.checks.deviations import Deviation
    from jaxmon.agent.observers import Sample


# Seconds for which copies are kept for a call that does not come.
_PATIENCE = 60.0


class Replays:
    """
    Re-runs calls on their own thread.

    Args:
        jax: the module.
        room: the memory that they may take.
        turns: when they may be made.
        worker: compares.
        stopped: set when the worker must not wait any longer.
        report: called with the number of outputs compared, and their deviations.

    Attributes:
        known: what re-running calls would do, by function.
    """

    def __init__(  # noqa: PLR0913 - what it shares with those beside the program
        self,
        jax: Any,
        *,
        room: Room,
        turns: Turns,
        worker: Worker,
        stopped: Event,
        report: Callable[[Function, int, Sequence[Deviation]], None],
    ) -> None:
        self._jax = jax
        self._room = room
        self._turns = turns
        self._worker = worker
        self._stopped = stopped
        self._report = report
        self.known: dict[Function, Rerun] = {}
        # At most one, used by whichever thread removes it first.
        self._kept: list[KeptOutputs] = []

    def take(self, sample: Sample) -> None:
        """
        Re-run the call of *sample*, of a `known` function, or the next one if it
        donates.
        """
        function, returned = sample.function, arrays_in(self._jax, sample.outputs)
        known = self.known[function]
        # A copy of the outputs, and those of the second run; of arguments as well.
        sets = 3 if known.donates else 2
        if not self._room.fits(function, returned, sets=sets):
            return
        if not known.donates:
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
            if not self._room.fits(function, returned, sets=2):
                return
            leaves, structure = tree.tree_flatten((sample.args, sample.kwargs))
            given = kept.arguments(leaves, self.known[function].donated)
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
            known = self.known[sample.function].program()
            if traced_program(sample.jitted, args, kwargs) is not known:
                # Its static arguments, shapes or configuration are others.
                del self.known[sample.function]
                return
            found, _ = tree.tree_flatten_with_path(sample.outputs)
            names = [tree.keystr(path) for path, _ in found]
            # The program's next call may donate them.
            first = self._copied([leaf for _, leaf in found])
            again = tree.tree_leaves(sample.jitted(*args, **kwargs))
            job = partial(self._compare, sample.function, names, first, again, began)
            del found
            if self._worker.submit(job):
                goes_on()

    def _copied(self, leaves: Sequence[Any]) -> list[Any]:
        """Return *leaves* with copies of the arrays among them."""
        found, kind = list(leaves), self._jax.Array
        numbers = [n for n, leaf in enumerate(leaves) if isinstance(leaf, kind)]
        arrays = [underlying_array(leaves[n]) for n in numbers]
        for n, copy in zip(numbers, copied_on_devices(self._jax, arrays), strict=True):
            found[n] = with_underlying(leaves[n], copy)
        return found

    def _release(self, kept: KeptOutputs, reason: str) -> None:
        if self._remove(kept):
            kept.free()
            self._turns.postpone(kept.function, reason)
            self._turns.over()

    def _remove(self, kept: KeptOutputs) -> bool:
        """Return whether no other thread has used or freed what was *kept*."""
        try:
            self._kept.remove(kept)
        except ValueError as error:
            interrupts.pass_on(error)
            return False
        return True

    # --- on our own thread -----------------------------------------------------------

    def _compare(
        self,
        function: Function,
        names: Sequence[str],
        first: list[Any],
        again: list[Any],
        began: float,
    ) -> None:
        """
        Compare the leaves of two runs once both are done, and empty the lists. The
        second was dispatched since *began*.
        """
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
