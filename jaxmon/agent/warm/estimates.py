"""How many calls each recorded signature had, estimated from sampled calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxmon.facts.signatures import ARRAYS


# As many leaves as samples are told apart by.
_LEAVES = 256


def calls(
    counts: Mapping[str, int],
    sampled: Mapping[tuple[str, str], int],
    name: str,
    signature: Any,
) -> float | None:
    """
    Return the estimated number of calls of a function with one signature: its fraction
    of the sampled calls; `None` if none was sampled.

    Args:
        counts: calls by function.
        sampled: sampled calls by function and arrays.
        name: of the function.
        signature: its arguments, as in a file.
    """
    total = sum(count for (one, _), count in sampled.items() if one == name)
    if not total:
        return None
    leaves: list[Any] = []
    _collect(signature, leaves)
    words = [f"{one['dtype']}{one['shape']}" for one in leaves[-_LEAVES:]]
    share = sampled.get((name, " ".join(words)), 0) / total
    return round(counts.get(name, 0) * share, 1)


def _collect(node: Any, into: list[Any]) -> None:
    """Append the arrays of *node*, in order, to *into*."""
    if isinstance(node, dict):
        if "shape" in node:
            if node["kind"] in ARRAYS:
                into.append(node)
            return
        for one in node.values():
            _collect(one, into)
    elif isinstance(node, (list, tuple)):
        for one in node:
            _collect(one, into)
