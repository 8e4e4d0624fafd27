"""
Padding in the arguments of sampled calls: rows of whole numbers, as of tokens, that end
with one and the same value. Arrays of NumPy only: to read others may wait.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from jaxmon.agent.checks.repeats import MOST_FUNCTIONS, MOST_LEAVES
from jaxmon.agent.context import Context, Sample
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.contents import argument_name, kind_of_argument
from jaxmon.facts.functions import Padded


# Shorter rows are cheap; of so many elements it is told, in 50 µs.
_SHORTEST, _MOST_ELEMENTS = 32, 1 << 16
# Samples before that is said, and how much of what is not padding has its value.
_SAMPLES, _ALIKE = 4, 0.1


class Padding:
    """Finds how much of the arguments of each function is padding."""

    def __init__(self, context: Context) -> None:
        self._leaves = context.jax.tree_util.tree_leaves
        # By the number of an argument.
        self._found: dict[Function, dict[int, _Seen]] = {}

    def sampled(self, sample: Sample) -> None:
        """Look at the arguments of *sample*."""
        function = sample.function
        if function.internal or len(self._found) >= MOST_FUNCTIONS:
            return
        leaves, is_open = self._leaves((sample.args, sample.kwargs)), False
        for at, leaf in enumerate(leaves[:MOST_LEAVES]):
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu":
                found = self._found.setdefault(function, defaultdict(_Seen))
                found[at].add(padded(leaf))
                is_open |= not found[at].data and found[at].samples < _SAMPLES
        if is_open and sample.follow is not None:
            sample.follow(self.sampled, 0)

    def all(self) -> dict[Function, Padded]:
        """Return the argument of each function of which most is padding."""
        found = {}
        for function, arguments in self._found.copy().items():
            at = max(arguments, key=lambda at: arguments[at].mean)
            seen, jaxpr = arguments[at], function.whole()
            if seen.samples < _SAMPLES or seen.data or jaxpr is None:
                continue
            if kind := kind_of_argument(jaxpr, at):
                name = argument_name(jaxpr, at)
                found[function] = Padded(name, kind, seen.mean, seen.samples)
        return found


class _Seen:
    """The padding in *samples* of an argument; in so many it was *data*."""

    def __init__(self) -> None:
        self.samples = self.data = 0
        self._total = 0.0

    def add(self, ratio: float) -> None:
        """Add a sample."""
        self.samples += 1
        self.data += not ratio
        self._total += ratio

    @property
    def mean(self) -> float:
        """The mean ratio of padding."""
        return self._total / self.samples


def padded(array: Any) -> float:
    """Return how much of *array* is what its rows end with; 0 if that may be data."""
    if array.ndim != 2 or array.shape[1] < _SHORTEST or not array.shape[0]:  # noqa: PLR2004 - rows
        return 0.0
    rows = array[: max(_MOST_ELEMENTS // array.shape[1], 1), :_MOST_ELEMENTS]
    ends, counts = np.unique(rows[:, -1], return_counts=True)
    same = rows == ends[counts.argmax()]
    # From the first on after which there is nothing else.
    tail = np.logical_and.accumulate(same[:, ::-1], axis=1)[:, ::-1]
    rest = ~tail
    is_data = not rest.any() or same[rest].mean() > _ALIKE
    return 0.0 if is_data else float(tail.mean())
