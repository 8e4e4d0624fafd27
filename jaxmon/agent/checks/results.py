"""
Bitwise comparison of two results.

Results are pytrees of arrays or other objects, compared on the host, leaf by leaf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxmon.agent.checks.deviations import Deviation
from jaxmon.agent.checks.leaves import host_leaf
from jaxmon.agent.checks.reading import reading


class HostResult:
    """
    A result copied to the host, for comparison.

    Blocks until the devices are done and copies; keeps no reference to the arrays.
    """

    def __init__(self, jax: Any, tree: Any) -> None:
        self._jax = jax
        paths, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._paths = [jax.tree_util.keystr(path) for path, _ in paths]
        with reading(jax):
            self._leaves = [host_leaf(jax, leaf) for _, leaf in paths]

    def __len__(self) -> int:
        return len(self._leaves)

    def deviations(self, other: HostResult) -> list[Deviation]:
        """Return the deviations of *other*."""
        if self._structure != other._structure:
            reason = f"has a different tree structure, {_short(str(other._structure))}"
            structure = _short(str(self._structure))
            return [
                Deviation("", structure, max_relative=math.inf, reason=reason),
            ]
        return [
            one
            for path, leaf, counterpart in zip(
                self._paths, self._leaves, other._leaves, strict=True
            )
            for one in leaf.deviations(path, counterpart)
        ]


def compare_leaves(
    jax: Any, names: Sequence[str], first: list[Any], again: list[Any]
) -> list[Deviation]:
    """
    Return the deviations of the leaves *again* from *first*, both of which are emptied:
    no more than one leaf of each is on the host at a time, and what has been compared
    frees its device memory.
    """
    found: list[Deviation] = []
    first.reverse()
    again.reverse()
    with reading(jax):
        for name in names:
            leaf = host_leaf(jax, first.pop())
            found += leaf.deviations(name, host_leaf(jax, again.pop()))
    return found


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
