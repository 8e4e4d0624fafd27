"""
States that functions return, and that do not change any more.

A state is what a function returns in the form of an argument. One that changed, and is
the same in sample after sample while other outputs change, is frozen: its updates are
skipped, as those with NaN are by a guard, or zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.checks.arrays import Pending, array_of, reading
from jaxmon.agent.context import Context, Sample
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder, lines_with
from jaxmon.agent.worker import Watcher
from jaxmon.clocks import thread_time
from jaxmon.facts import functions as facts


# Samples in a row, and calls, in which a state has not changed before that is said.
_UNCHANGED, _UNCHANGED_CALLS = 3, 100

# Most elements of what is read of a state, of how many outputs, and fewest: a scalar
# says too little. What is beside it has fewer.
_ELEMENTS, _READ, _FEWEST, _BESIDE = 16_384, 4, 4, 1024
_MOST_OUTPUTS = 1000
_COUNTS = ("notfinite", "not_finite", "nonfinite")


class StateHistory:
    """
    The state that a function returns, by digests of what is read of it.

    Attributes:
        names: where it is in what the function returns.
        counts: integers in it that count what is not finite, by name.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.counts: dict[str, int] = {}
        self._state = self._others = 0
        self._changed = False
        # Since the state changed: samples, and whether other outputs changed.
        self._samples, self._moved = 0, False
        self._first = self._last = 0

    def add(
        self, names: tuple[str, ...], state: bytes, others: bytes, call: int
    ) -> None:
        """Add the *state* of a *call* whose *others* are its other small outputs."""
        found, beside = hash(state), hash(others)
        if names != self.names or found != self._state:
            self._changed = self._first > 0 and names == self.names
            self.names, self._state = names, found
            self._samples, self._moved, self._first = 0, False, call
        else:
            self._samples += 1
            self._moved |= beside != self._others
        self._others, self._last = beside, call

    def explain(self) -> facts.Frozen:
        """Return since when it has not changed, if that is long."""
        calls = self._last - self._first
        long = self._samples >= _UNCHANGED and calls >= _UNCHANGED_CALLS
        if not (long and self._changed and self._moved):
            return facts.Frozen()
        return facts.Frozen(
            self.names, self._first, calls, self._samples + 1, self.counts
        )


class States:
    """
    Reads some of the states that sampled calls return.

    Args:
        watcher: the thread that reads them.
        is_float: returns whether a leaf has floating-point values, at most so many.
        names: returns where in what a function returns each of its leaves is.
    """

    def __init__(
        self,
        context: Context,
        watcher: Watcher,
        *,
        is_float: Callable[[Any, int], bool],
        names: Callable[[Function, Any, int], list[str]],
    ) -> None:
        self._jax = context.jax
        self._budget = context.scheduler.budget
        self._watcher = watcher
        self._is_float = is_float
        self._names = names
        self._histories: dict[Function, StateHistory] = {}

    def sampled(self, sample: Sample) -> None:
        """Have some of the state read that *sample* returned."""
        tree, function = self._jax.tree_util, sample.function
        outputs = tree.tree_leaves(sample.outputs)
        if len(outputs) > _MOST_OUTPUTS:
            return
        given = {
            (leaf.shape, leaf.dtype)
            for leaf in tree.tree_leaves((sample.args, sample.kwargs))
            if isinstance(leaf, self._jax.Array)
        }
        fitting = [
            n
            for n, leaf in enumerate(outputs)
            if self._is_float(leaf, _ELEMENTS)
            and leaf.size >= _FEWEST
            and (leaf.shape, leaf.dtype) in given
        ]
        if not fitting:
            return
        fitting.sort(key=lambda n: -outputs[n].size)
        names = self._names(function, sample.outputs, len(outputs))
        state = {names[n]: outputs[n] for n in sorted(fitting[:_READ])}
        counts = {
            name: leaf
            for name, leaf in zip(names, outputs, strict=False)
            if any([word in name for word in _COUNTS])
            and getattr(leaf, "shape", None) == ()
        }
        beside = [
            leaf
            for n, leaf in enumerate(outputs)
            if n not in fitting and self._is_float(leaf, _BESIDE)
        ][:_READ]
        call = function.objects.calls or function.other_missed.value
        read = partial(self._read, function, call, state, counts, beside)
        arrays = [*state.values(), *counts.values(), *beside]
        self._watcher.submit(Pending(arrays, read))

    def of(self, function: Function) -> facts.Frozen:
        """Return the state that does not change, with the line of optax's guard."""
        history = self._histories.get(function)
        frozen = facts.Frozen() if history is None else history.explain()
        if not frozen.counts:
            return frozen
        lines = lines_with(r"\bapply_if_finite\(", SourceLineFinder(self._jax))
        return frozen.replace(where=lines[0] if len(lines) == 1 else "")

    def _read(
        self,
        function: Function,
        call: int,
        state: Mapping[str, Any],
        counts: Mapping[str, Any],
        beside: Sequence[Any],
    ) -> None:
        began = thread_time()
        try:
            with reading(self._jax):
                found = b"".join([array_of(leaf).tobytes() for leaf in state.values()])
                numbers = {name: int(array_of(leaf)) for name, leaf in counts.items()}
                others = b"".join([array_of(leaf).tobytes() for leaf in beside])
        except Exception as error:  # noqa: BLE001 - deleted, or its program failed
            interrupts.pass_on(error)
            return
        history = self._histories.setdefault(function, StateHistory())
        history.add(tuple(state), found, others, call)
        history.counts = numbers
        self._budget.spend(began)
