"""
States that functions return, and that do not change as they should.

A state is what a function returns in the form of an argument. One that changed, and is
the same in sample after sample while other outputs change, is frozen: its updates are
skipped, as those with NaN are by a guard, or zero. One of 16 bits or less of which the
small elements change, and the large ones do not, rounds its updates away. An integer in
it that counts, and becomes negative, wraps around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

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

# How many integers of a call are read, bytes of an element that is rounded to few
# digits, and of how many leaves what was read is kept, 50 kB at most for each.
_COUNTED, _NARROW, _MOST_KEPT = 16, 2, 64
# Fractions of the elements that must be large and small, how many of those may have
# changed and must have, factors of two between them, and how many values the large ones
# must have: a bound that clips them is one.
_LARGE, _SMALL, _STAYED, _MOVED, _APART, _VALUES = 0.25, 0.1, 0.01, 0.9, 2, 16
# What a count may grow from sample to sample, as a part of what its type holds; and
# between how many samples, if it does so evenly or not. A hash would not.
_GROWTH, _EVEN, _UNEVEN = 8, 2, 5


class StateHistory:
    """The state that a function returns, by digests, and its *counts* of NaN."""

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


class NarrowState:
    """What elements of a state have 16 bits or less, and which of them changed."""

    def __init__(self) -> None:
        self._latest: Any = None
        self._changed: Any = False
        self._first = self._last = self._samples = 0

    def add(self, array: Any, call: int) -> None:
        """Add what a *call* returned; takes 50 µs for 16,384 elements."""
        if self._samples:
            self._changed = self._changed | (array != self._latest)
        self._first = self._first or call
        self._latest, self._last, self._samples = array.copy(), call, self._samples + 1

    def explain(self) -> facts.Output | None:
        """Return from which size on elements do not change, if smaller ones do."""
        if self._samples < _UNCHANGED or self._last - self._first < _UNCHANGED_CALLS:
            return None
        sizes = np.abs(self._latest.astype(np.float32))
        is_judged = np.isfinite(sizes) & (sizes > 0)
        sizes, changed = sizes[is_judged], self._changed[is_judged]
        powers = np.frexp(sizes)[1]
        for power in np.unique(powers):
            large, small = powers >= power, powers < power - _APART
            stays = changed[large].mean() <= _STAYED and large.mean() >= _LARGE
            if stays and small.mean() >= _SMALL and changed[small].mean() >= _MOVED:
                if len(np.unique(sizes[large])) < _VALUES:
                    break
                return facts.Output(
                    state="rounded",
                    dtype=str(self._latest.dtype),
                    samples=self._samples,
                    call=self._first,
                    fraction=float(large.mean()),
                    least=float(np.ldexp(1.0, power - 1)),
                )
        return None


class CountHistory:
    """A signed integer in a state, from sample to sample."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._rates: list[float] = []
        self._crossed: facts.Output | None = None

    def add(self, array: Any, call: int) -> None:
        """Add the integer that a *call* returned."""
        number, span = int(array), 1 << 8 * array.dtype.itemsize
        last, self._last = self._last, (call, number)
        if last is None or call <= last[0]:
            return
        grown = (number - last[1]) % span
        if not 0 < grown < span // _GROWTH:  # it was reset, or does not count
            self._rates, self._crossed = [], None
            return
        self._rates = [*self._rates[-_UNEVEN:], grown / (call - last[0])]
        if number < last[1]:
            self._crossed = facts.Output(
                state="overflowed",
                dtype=str(array.dtype),
                call=call,
                finite_call=last[0],
                finite_value=float(last[1]),
            )

    def explain(self) -> facts.Output | None:
        """Return between which calls it wrapped around, if it is sure to count."""
        enough = _EVEN if len(set(self._rates)) == 1 else _UNEVEN
        return self._crossed if len(self._rates) >= enough else None


class States:
    """Reads some of the states that sampled calls return, of leaves that *is_float*."""

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
        self._kept: dict[tuple[Any, ...], NarrowState | CountHistory] = {}

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
        counting: list[int] = []
        fitting: list[int] = []
        for n, leaf in enumerate(outputs):
            is_float = self._is_float(leaf, _ELEMENTS) and leaf.size >= _FEWEST
            if (is_float or self._is_count(leaf)) and (leaf.shape, leaf.dtype) in given:
                (fitting if is_float else counting).append(n)
        if not fitting and not counting:
            return
        fitting.sort(key=lambda n: -outputs[n].size)
        state = {n: outputs[n] for n in sorted(fitting[:_READ])}
        counts = {n: outputs[n] for n in counting[:_COUNTED]}
        names = self._names(function, sample.outputs, len(outputs))
        beside = [
            leaf
            for n, leaf in enumerate(outputs)
            if n not in fitting and self._is_float(leaf, _BESIDE)
        ][:_READ]
        call = function.objects.calls or function.other_missed.value
        read = partial(self._read, function, call, names, state, counts, beside)
        arrays = [*state.values(), *counts.values(), *beside]
        self._watcher.submit(Pending(arrays, read))

    def _is_count(self, leaf: Any) -> bool:
        """Return whether *leaf* is one signed integer."""
        is_scalar = isinstance(leaf, self._jax.Array) and leaf.shape == ()
        return is_scalar and str(leaf.dtype).startswith("int")

    def of(self, function: Function) -> facts.Frozen:
        """Return the state that does not change, with the line of optax's guard."""
        history = self._histories.get(function)
        frozen = facts.Frozen() if history is None else history.explain()
        if not frozen.counts:
            return frozen
        lines = lines_with(r"\bapply_if_finite\(", SourceLineFinder(self._jax))
        return frozen.replace(where=lines[0] if len(lines) == 1 else "")

    def lost(self) -> dict[Function, list[facts.Output]]:
        """Return what is lost of the numbers in states, with the lines."""
        found: dict[Function, list[facts.Output]] = {}
        lines = SourceLineFinder(self._jax)
        for (function, name, n, number, *_), history in self._kept.copy().items():
            lost = history.explain()
            if lost is None:
                continue
            jaxpr = function.lowered()
            where = lines.place_of_output(jaxpr, n, number) if jaxpr else ""
            found.setdefault(function, []).append(lost.replace(name=name, where=where))
        return found

    def _read(  # noqa: PLR0913, PLR0917 - what was sampled
        self,
        function: Function,
        call: int,
        names: Sequence[str],
        state: Mapping[int, Any],
        counts: Mapping[int, Any],
        beside: Sequence[Any],
    ) -> None:
        began = thread_time()
        try:
            with reading(self._jax):
                arrays = {n: array_of(leaf) for n, leaf in state.items()}
                found = b"".join([array.tobytes() for array in arrays.values()])
                numbers = {n: array_of(leaf) for n, leaf in counts.items()}
                others = b"".join([array_of(leaf).tobytes() for leaf in beside])
        except Exception as error:  # noqa: BLE001 - deleted, or its program failed
            interrupts.pass_on(error)
            return
        history = self._histories.setdefault(function, StateHistory())
        history.add(tuple([names[n] for n in state]), found, others, call)
        history.counts = {
            names[n]: int(number)
            for n, number in numbers.items()
            if any([word in names[n] for word in _COUNTS])
        }
        for n, array in (arrays | numbers).items():
            key = function, names[n], n, len(names), array.shape, array.dtype
            kind = CountHistory if n in numbers else NarrowState
            is_kept = n in numbers or array.dtype.itemsize <= _NARROW
            if is_kept and (key in self._kept or len(self._kept) < _MOST_KEPT):
                self._kept.setdefault(key, kind()).add(array, call)
        self._budget.spend(began)
