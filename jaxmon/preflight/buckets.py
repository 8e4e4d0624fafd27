"""
Padding buckets: sizes to which arguments could be padded, so that few programs serve
all recorded signatures.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxmon.facts.signatures import Document, RecordedFunction, RecordedSignature


COUNTS = (1, 2, 4, 8, 16)
"""Numbers of buckets per dimension that are proposed."""

_MOST_SIZES = 256


@dataclass(frozen=True, slots=True)
class Proposal:
    """
    Buckets for one function.

    Args:
        programs: number of programs with these buckets.
        waste: fraction of the elements passed that would be padding, of those
            arguments that are padded, weighted by calls.
        sizes: buckets by dimension.
    """

    programs: int
    waste: float
    sizes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Buckets:
    """
    What could be done for the signatures of a function that differ only in sizes.

    Args:
        function: its name.
        programs: number of programs without buckets.
        weighted: whether calls are known; otherwise each signature counts once.
        proposals: ever more programs, ever less waste.
    """

    function: str
    programs: int
    weighted: bool
    proposals: tuple[Proposal, ...]


def proposals(document: Document) -> list[Buckets]:
    """Return proposals for each function with signatures that differ in sizes."""
    return [found for one in document.functions for found in _of(one)]


def _of(function: RecordedFunction) -> Iterable[Buckets]:
    groups: dict[str, list[tuple[tuple[_Shape, ...], float | None]]] = defaultdict(list)
    for signature in function.signatures:
        found: list[_Shape] = []
        key = json.dumps(_without_sizes(_all(signature), "", found), sort_keys=True)
        groups[key].append((tuple(found), signature.calls))
    for group in groups.values():
        weighted = all(calls is not None for _, calls in group)
        # One that was compiled was called, whatever the samples say.
        calls = [max(one or 0.0, 1.0) if weighted else 1.0 for _, one in group]
        shapes = [one for one, _ in group]
        dimensions = _varying(shapes)
        if dimensions:
            made = _proposed(shapes, calls, dimensions)
            yield Buckets(function.name, len(group), weighted, made)


@dataclass(frozen=True, slots=True)
class _Shape:
    where: str
    sizes: tuple[int, ...]


_Place = tuple[int, int]
"""Number of the array, and of its dimension."""


def _all(signature: RecordedSignature) -> dict[str, Any]:
    numbered = {f"[{number}]": one for number, one in enumerate(signature.args)}
    return {**numbered, **signature.kwargs}


def _without_sizes(node: Any, where: str, into: list[_Shape]) -> Any:
    """Return *node* with the rank in place of each shape, which goes *into* a list."""
    if isinstance(node, dict):
        if "shape" in node:
            into.append(_Shape(where, tuple(node["shape"])))
            return {**node, "shape": len(node["shape"])}
        if "static" in node:
            return node
        if "dict" in node:
            pairs = node["dict"]
            return {
                "dict": [
                    [key, _without_sizes(one, f"{where}[{key!r}]", into)]
                    for key, one in pairs
                ]
            }
        nested = ("list", "tuple", "namedtuple", "class")
        return {
            key: _without_sizes(one, where if key in nested else f"{where}{key}", into)
            for key, one in node.items()
        }
    if isinstance(node, list):
        return [
            _without_sizes(one, f"{where}[{number}]", into)
            for number, one in enumerate(node)
        ]
    return node


def _varying(shapes: Sequence[tuple[_Shape, ...]]) -> list[list[_Place]]:
    """Return the dimensions that vary; those that vary together are one."""
    together: dict[tuple[int, ...], list[_Place]] = defaultdict(list)
    for number, one in enumerate(shapes[0]):
        for axis in range(len(one.sizes)):
            sizes = tuple(each[number].sizes[axis] for each in shapes)
            if len(set(sizes)) > 1:
                together[sizes].append((number, axis))
    return list(together.values())


def _proposed(
    shapes: Sequence[tuple[_Shape, ...]],
    calls: Sequence[float],
    dimensions: Sequence[list[_Place]],
) -> tuple[Proposal, ...]:
    found: list[Proposal] = []
    for count in COUNTS:
        chosen: dict[str, tuple[int, ...]] = {}
        padded = [[list(one.sizes) for one in each] for each in shapes]
        for places in dimensions:
            number, axis = places[0]
            sizes = [each[number].sizes[axis] for each in shapes]
            buckets = best(sizes, calls, count)
            chosen[f"{shapes[0][number].where}.shape[{axis}]"] = buckets
            for row, size in zip(padded, sizes, strict=True):
                bucket = next(one for one in buckets if one >= size)
                for at, dimension in places:
                    row[at][dimension] = bucket
        affected = sorted({number for places in dimensions for number, _ in places})
        before = after = 0.0
        for each, new, weight in zip(shapes, padded, calls, strict=True):
            for number in affected:
                before += weight * math.prod(each[number].sizes)
                after += weight * math.prod(new[number])
        programs = len({tuple(map(tuple, new)) for new in padded})
        waste = 1 - before / after if after else 0.0
        one = Proposal(programs, waste, chosen)
        if not found or programs > found[-1].programs:
            found.append(one)
    return tuple(found)


_Way = tuple[float, tuple[int, ...]]


def best(sizes: Sequence[int], weights: Sequence[float], count: int) -> tuple[int, ...]:
    """
    Return at most *count* buckets for *sizes* with the least padding; the largest size
    is one of them. Quadratic in the number of distinct sizes, of which at most 256 are
    considered.
    """
    total: dict[int, float] = defaultdict(float)
    for size, weight in zip(sizes, weights, strict=True):
        total[size] += weight
    known = sorted(total)
    if len(known) > _MOST_SIZES:
        step = len(known) / _MOST_SIZES
        known = [known[int((n + 1) * step) - 1] for n in range(_MOST_SIZES - 1)] + [
            known[-1]
        ]
    count = min(count, len(known))
    # What is passed without padding is the same for all choices.
    below = [0.0]
    for low, high in zip([-1, *known], known, strict=False):
        below.append(
            below[-1] + sum(w for size, w in total.items() if low < size <= high)
        )
    ways: list[list[_Way]] = [[(0.0, ())]]
    for end, size in enumerate(known, 1):
        row: list[_Way] = [(math.inf, ())]
        row += [
            min(
                (
                    ways[start][used - 1][0] + size * (below[end] - below[start]),
                    (*ways[start][used - 1][1], size),
                )
                for start in range(end)
                if used - 1 < len(ways[start])
            )
            for used in range(1, min(count, end) + 1)
        ]
        ways.append(row)
    return min(ways[-1][1:])[1]
