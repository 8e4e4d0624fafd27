"""
Arguments that never advance: the arrays that a training step updates, if it is called
with the same ones again, batches with the values of the batch before, and arrays from
which alone follows much of what a function computes.

Sampled calls, and the calls that follow the first of these, are compared until it is
clear that the arguments advance, mostly after two. Of states and batches of functions
that compute no gradient, nothing is concluded: their caller may want the same again.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxmon.agent.context import Context, Sample
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import is_pollable
from jaxmon.agent.jaxlink.contents import argument_name
from jaxmon.agent.jaxlink.inefficiencies import recomputed
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import is_key
from jaxmon.agent.jaxlink.updates import counts, updated
from jaxmon.facts import functions as facts
from jaxmon.facts.contents import Inefficient


MOST_FUNCTIONS, MOST_LEAVES = 1000, 1000
# Samples after which the next call is compared, too.
_FOLLOWED = 8
# Samples, calls, and pairs of calls, in which nothing may change before that is said.
_SAMES, _SAME_CALLS, _PAIRS, _FIXED_CALLS = 4, 100, 2, 20
# Elements of an array of NumPy that are compared, 10 µs at most, and how many values
# some of them have at least: a mask, or a batch of padding, may well come again.
_COMPARED, _SEEN, _VALUES = 4096, 256, 16


class _Arguments:
    """What the arguments of a function have been in all samples, by their numbers."""

    def __init__(self, leaves: Sequence[Any], call: int, array: Any) -> None:
        self._array, self._number = array, len(leaves)
        self._first = self._last = call
        self.samples, self._pairs, self._moved = 1, 0, False
        # Of which jaxpr, and how many of its arguments, the work is judged.
        self._judged = 0, 0
        self._work: tuple[Inefficient, list[int]] | None = None
        # Arrays of JAX that were the same in all; digests and places of those of NumPy.
        self._held = {
            at: weakref.ref(leaf)
            for at, leaf in enumerate(leaves)
            if isinstance(leaf, array) and is_pollable(leaf)
        }
        self._given = _contents(leaves)
        self._digests = {at: digest for at, (digest, _) in self._given.items()}
        # Those that were made anew for each call.
        self._fresh = {
            at
            for at in self._given
            if len({*_few(leaves[at])[:_SEEN].tolist()}) >= _VALUES
        }

    @property
    def is_open(self) -> bool:
        """Whether some have not advanced so far."""
        return bool(self._held or self._fresh)

    @property
    def asks(self) -> bool:
        """Whether the next call would show more of a state or a batch."""
        return len(self._held) > 1 or bool(self._fresh)

    def add(
        self, leaves: Sequence[Any], call: int, results: Sequence[Any] | None
    ) -> None:
        """Compare *leaves* of a *call* with *results* of the one before, if known."""
        self._last, self.samples = call, self.samples + 1
        if len(leaves) != self._number:
            self._held, self._fresh = {}, set()
        held, before = self._held.items(), len(self._held)
        self._held = {at: of for at, of in held if of() is leaves[at]}
        self._moved |= len(self._held) < before
        if not self._fresh:
            return
        given = _contents(leaves)
        is_same = {n: of[0] for n, of in given.items()} == self._digests
        self._moved |= not is_same
        if is_same and results is not None:
            is_same, self._pairs = self._is_all(leaves, results), self._pairs + 1
            self._fresh = {at for at in self._fresh if given[at] != self._given[at]}
        self._given = given
        self._fresh = self._fresh if is_same else set()

    def _is_all(self, leaves: Sequence[Any], results: Sequence[Any]) -> bool:
        """Return whether nothing else changed but *results* of the call before."""
        returned = {id(of()) for of in results}
        numbered = enumerate(leaves)
        arrays = [(at, of) for at, of in numbered if isinstance(of, self._array)]
        return all(
            at in self._held or id(leaf) in returned or is_key(leaf) or leaf.size == 1
            for at, leaf in arrays
        )

    def explain(self, jaxpr: Any, lines: SourceLineFinder) -> facts.Repeated:
        """Return what does not advance, of a function that has this *jaxpr*."""
        calls = self._last - self._first
        # A benchmark may pass the same of everything.
        is_judged = self.samples >= _SAMES and self._moved and self.is_open
        is_long = is_judged and calls >= _SAME_CALLS
        state = updated(jaxpr, self._number) if is_long else []
        held = [at for at in state if at in self._held]
        kind, found = "state", held
        if state and not held and self._pairs >= _PAIRS:
            kind, found = "batch", sorted(self._fresh)
        if found and not (held and held != state):
            names = tuple([argument_name(jaxpr, at) for at in found])
            return facts.Repeated(kind, names, self.samples, calls + 1, counts(jaxpr))
        if is_judged and calls >= _FIXED_CALLS:
            return self._recomputed(jaxpr, calls + 1, lines)
        return facts.Repeated()

    def _recomputed(
        self, jaxpr: Any, calls: int, lines: SourceLineFinder
    ) -> facts.Repeated:
        judged = id(jaxpr), len(self._held)
        if self._judged != judged:
            found = recomputed(jaxpr, self._number, self._held.copy(), lines)
            self._judged, self._work = judged, found
        if (found := self._work) is None:
            return facts.Repeated()
        work, used = found
        return facts.Repeated(
            "work",
            tuple([argument_name(jaxpr, at) for at in used]),
            self.samples,
            calls,
            operation=work.array,
            ratio=work.ratio,
            where=work.where,
        )


def _few(array: Any) -> Any:
    return array.flat[:: array.size // _COMPARED | 1]


def _contents(leaves: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """Return of each array of NumPy a hash of some of it, and where it is."""
    return {
        at: (hash(_few(leaf).tobytes()), leaf.__array_interface__["data"][0])
        for at, leaf in enumerate(leaves)
        if isinstance(leaf, np.ndarray) and leaf.size > 1
    }


class Repeats:
    """Compares the arguments of sampled calls."""

    def __init__(self, context: Context, lines: SourceLineFinder) -> None:
        self._jax, self._sites = context.jax, context.sites
        self._lines = lines
        self._found: dict[Function, _Arguments] = {}

    def sampled(self, sample: Sample, results: Sequence[Any] | None = None) -> None:
        """Compare the arguments of *sample*; *results* are of the call before it."""
        tree, function = self._jax.tree_util, sample.function
        found = self._found.get(function)
        if function.internal or (found is not None and not found.is_open):
            return
        leaves = tree.tree_leaves((sample.args, sample.kwargs))
        call = function.objects.calls
        if len(leaves) > MOST_LEAVES:
            return
        if found is not None:
            found.add(leaves, call, results)
        elif len(self._found) < MOST_FUNCTIONS:
            found = self._found[function] = _Arguments(leaves, call, self._jax.Array)
        is_asked = found is not None and found.asks and found.samples < _FOLLOWED
        if is_asked and results is None and sample.follow is not None:
            returned = [
                weakref.ref(of)
                for of in tree.tree_leaves(sample.outputs)
                if isinstance(of, self._jax.Array)
            ]
            sample.follow(partial(self.sampled, results=returned), 0)

    def all(self) -> dict[Function, facts.Repeated]:
        """Return what does not advance, by function, with a line that calls it."""
        found = {}
        for function, arguments in self._found.copy().items():
            if (jaxpr := function.whole()) is None:
                continue
            repeated = arguments.explain(jaxpr, self._lines)
            if repeated.kind in ("state", "batch"):
                places = self._sites.places()
                where = self._lines.place_that_calls(function.name, places)
                repeated = repeated.replace(where=where)
            if repeated.kind:
                found[function] = repeated
        return found
