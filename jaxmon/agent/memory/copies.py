"""
Arguments that a program copies in each call, because it may not write into them.

XLA updates a donated argument in place. Of one that is not donated, it makes a copy
first, which the program's text shows. Whether it could be donated depends on the
caller: sampled calls show whether it keeps the argument.
"""

from __future__ import annotations

import weakref
from typing import Any

from jaxmon.agent.context import Context, Sample
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink import executables
from jaxmon.agent.jaxlink.arrays import is_pollable, shard_bytes
from jaxmon.agent.jaxlink.executables import ArgumentCopy
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.facts.contents import Copied


LEAST_BYTES = 1 << 20
"""What is less is copied within microseconds."""

_MOST_HELD = 16


class _CopiesOfFunction:
    def __init__(self, fact: Copied, sizes: frozenset[int]) -> None:
        self.fact = fact
        self.sizes = sizes
        self.held: list[weakref.ref[Any]] = []


class ArgumentCopies:
    """Knows the latest programs that copy large arguments, and samples their calls."""

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._found: dict[Function, _CopiesOfFunction] = {}
        context.observers.sample.append(self.sampled)

    def note(
        self,
        function: Function,
        copies: tuple[ArgumentCopy, ...],
        executable: Any,
        accessed: float | None,
    ) -> None:
        """Note what *function* copies into outputs; *accessed* has loops once."""
        large = [copy for copy in copies if copy.bytes >= LEAST_BYTES]
        if not large:
            return
        if any(copy.beside_loops for copy in large):
            accessed = executables.accessed_bytes(self._jax, executable)
        total = sum(copy.bytes for copy in large)
        if accessed:
            names = dict.fromkeys(copy.argument for copy in large if copy.argument)
            # It is read and written.
            fraction = min(2 * total / accessed, 1.0)
            # Another program of the function, which donates, leaves this in place.
            before = self._found.get(function)
            fact = (Copied() if before is None else before.fact).replace(
                bytes=total, fraction=fraction, arguments=tuple(names)
            )
            sizes = frozenset(copy.bytes for copy in large)
            self._found[function] = _CopiesOfFunction(fact, sizes)

    def note_jaxpr(self, function: Function, jaxpr: Any) -> None:
        """Note where *jaxpr* of *function* donates inside, in vain."""
        found = self._found.get(function)
        if found is not None and jaxpr is not None:
            place = executables.donated_inside(jaxpr, SourceLineFinder(self._jax))
            found.fact = found.fact.replace(donated_inside=place)

    def sampled(self, sample: Sample) -> None:
        """Note whether the caller kept what the sampled call before this one copied."""
        found = self._found.get(sample.function)
        if found is None:
            return
        fact = found.fact
        if found.held:
            # A freed one is `None`.
            held = [array() for array in found.held]
            kept = any(array is not None and not array.is_deleted() for array in held)
            fact = fact.replace(
                kept=fact.kept + kept, dropped=fact.dropped + (not kept)
            )
        leaves = self._jax.tree_util.tree_leaves((sample.args, sample.kwargs))
        found.held = [
            weakref.ref(leaf)
            for leaf in leaves
            if isinstance(leaf, self._jax.Array)
            and is_pollable(leaf)
            and shard_bytes(leaf) in found.sizes
            and not leaf.is_deleted()
        ][:_MOST_HELD]
        copies = bool(found.held)
        found.fact = fact.replace(
            copying=fact.copying + copies, others=fact.others + (not copies)
        )

    def of(self, function: Function) -> dict[str, Copied]:
        """Return what programs of *function* copy, by its name among the facts."""
        found = self._found.get(function)
        return {} if found is None else {"copied": found.fact}
