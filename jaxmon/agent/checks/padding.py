"""
Padding in the arguments of sampled calls: rows of whole numbers, as of tokens, that end
with one and the same value. Arrays of NumPy only: to read others may wait.

Masks, segments and positions end alike, too: so there must be many values before, which
neither rise along the rows nor come again in the next sample.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from jaxmon.agent.checks.repeats import MOST_FUNCTIONS, MOST_LEAVES
from jaxmon.agent.context import Context, Sample
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.contents import argument_name, kind_of_argument
from jaxmon.facts.functions import Padded


# Shorter rows are cheap. At most so many elements of a sample are read, in 0.2 ms.
_SHORTEST, _MOST_ELEMENTS = 32, 1 << 16
# Samples before that is said, and after which no more are looked at.
_SAMPLES, _ENOUGH = 4, 64
# How much of what is not padding may have its value, how many others there are, and the
# bytes of a number: those of pixels have one.
_ALIKE, _VALUES, _BYTES = 0.1, 16, 2

_Arguments: TypeAlias = dict[tuple[int, tuple[int, ...]], "_Seen"]


class Padding:
    """Finds how much of the arguments of each function is padding."""

    def __init__(self, context: Context) -> None:
        self._leaves = context.jax.tree_util.tree_leaves
        # By the number of leaves: an argument by its own number and shape.
        self._found: dict[tuple[Function, int], _Arguments] = {}

    def sampled(self, sample: Sample) -> None:
        """Look at the arguments of *sample*."""
        leaves = self._leaves((sample.args, sample.kwargs))
        key, left, is_open = (sample.function, len(leaves)), _MOST_ELEMENTS, False
        if len(leaves) > MOST_LEAVES or sample.function.internal:
            return
        for at, leaf in enumerate(leaves):
            # Of a subclass, this may run code of the program.
            if type(leaf) is np.ndarray and left > 0 and _may_be_tokens(leaf):
                if key not in self._found and len(self._found) >= MOST_FUNCTIONS:
                    return
                found = self._found.setdefault(key, {})
                seen = found.setdefault((at, leaf.shape), _Seen())
                if seen.is_open:
                    rows = leaf[:: max(leaf.size // left, 1)]
                    left -= rows.size
                    seen.add(rows)
                    is_open |= seen.asks
        if is_open and sample.follow is not None:
            sample.follow(self.sampled, 0)

    def all(self) -> dict[Function, Padded]:
        """Return the argument of each function of which most is padding."""
        found: dict[Function, Padded] = {}
        for (function, number), arguments in self._found.copy().items():
            jaxpr = function.whole()
            if jaxpr is None:
                continue
            for (at, shape), seen in arguments.copy().items():
                kind = kind_of_argument(jaxpr, at, number)
                before = found.get(function, Padded()).ratio
                sizes = ",".join(map(str, shape))
                is_it = "int" in kind and kind.endswith(f"[{sizes}]")
                if is_it and seen.is_padded and seen.ratio > before:
                    name = argument_name(jaxpr, at)
                    found[function] = Padded(name, kind, seen.ratio, seen.samples)
        return found


class _Seen:
    """An argument: how much of it is padding in *samples*, unless it may be data."""

    def __init__(self) -> None:
        self.samples, self._total, self._is_data = 0, 0.0, False
        self._before = b""

    def add(self, rows: Any) -> None:
        """Add a sample, of which these are some *rows*."""
        ratio, content = padded(rows), rows[:1].tobytes()
        self._is_data |= not ratio or content == self._before
        self._before, self.samples = content, self.samples + 1
        self._total += ratio

    @property
    def is_open(self) -> bool:
        """Whether more samples are needed."""
        return not self._is_data and self.samples < _ENOUGH

    @property
    def asks(self) -> bool:
        """Whether the next call should be a sample."""
        return not self._is_data and self.samples < _SAMPLES

    @property
    def is_padded(self) -> bool:
        """Whether enough samples have padding."""
        return not self._is_data and self.samples >= _SAMPLES

    @property
    def ratio(self) -> float:
        """How much is padding, on average."""
        return self._total / self.samples


def _may_be_tokens(array: Any) -> bool:
    """Return whether *array* has rows of whole numbers, long enough to cost much."""
    is_whole = array.dtype.kind in "iu" and array.dtype.itemsize >= _BYTES
    has_rows = array.ndim > 1 and array.shape[-1] >= _SHORTEST
    return bool(is_whole and has_rows and array.size)


def padded(rows: Any) -> float:
    """
    Return how much of *rows* that have more is what they end with; 0 if that may be
    data.
    """
    rows = rows.reshape(-1, rows.shape[-1])
    ends, counts = np.unique(rows[:, -1], return_counts=True)
    same = rows == ends[counts.argmax()]
    # From the first on after which there is nothing else.
    tail = np.logical_and.accumulate(same[:, ::-1], axis=1)[:, ::-1]
    # Rows with nothing else fill a batch, mostly on purpose.
    used = ~tail.all(axis=1)
    rows, same, tail = rows[used], same[used], tail[used]
    rest = ~tail
    values = rows[rest]
    pairs = rest[:, 1:]
    rises = (rows[:, 1:] >= rows[:, :-1])[pairs]
    is_data = (
        len(np.unique(values)) < _VALUES or same[rest].mean() > _ALIKE or rises.all()
    )
    return 0.0 if is_data else float(tail.mean())
