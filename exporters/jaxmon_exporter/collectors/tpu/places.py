"""
Maps runtime core numbers to chips and cores.

Numbers count the cores of this host, or of all hosts, or of one process; they are the
same for all metrics of one kind. Ambiguous values are omitted: a value on the wrong
chip is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar


T = TypeVar("T")

Key: TypeAlias = "tuple[str, int]"
"""Name of a runtime, and a number that it uses."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """
    Args:
        chip: index of the chip among those of the host.
        core: which core of the chip.
    """

    chip: int
    core: int


def numbered(keys: Iterable[Key], total: int) -> dict[Key, int]:
    """
    Return which of *total* cores or chips of this host each of *keys* means; empty if
    ambiguous.

    Args:
        keys: in the order of the runtimes.
        total: number of cores, or of chips.
    """
    known = list(dict.fromkeys(keys))
    numbers = [number for _, number in known]
    if not known or total < 1 or min(numbers) < 0:
        return {}
    if len(set(numbers)) == len(known):
        # One numbering for all processes, which continues from host to host.
        local = {key: key[1] % total for key in known}
        return local if len(set(local.values())) == len(known) else {}
    if len(known) != total:
        return {}
    # Each process counts for itself: they follow each other as their ports do.
    order = {runtime: index for index, (runtime, _) in enumerate(reversed(known))}
    ranked = sorted(known, key=lambda key: (-order[key[0]], key[1]))
    return {key: index for index, key in enumerate(ranked)}


def cores(keys: Iterable[Key], chips: int, per_chip: int) -> dict[Key, Place]:
    """Return the place of each core that *keys* number."""
    return {
        key: Place(*divmod(number, per_chip))
        for key, number in numbered(keys, chips * per_chip).items()
    }


def spread(
    values: Mapping[int, T], places: Sequence[Place], per_chip: int
) -> list[tuple[Place, T]]:
    """
    Return the value at each of *places*, which one process uses.

    Some metrics have a value for each core, others, or on other chips, for each
    chip, and number them in their own way; their order is the same.

    Args:
        values: by the numbers of their metric.
        places: of all cores of the process.
        per_chip: cores of a chip.
    """
    ordered = [values[number] for number in sorted(values)]
    at = sorted(places)
    if len(ordered) * per_chip == len(at):
        ordered = [value for value in ordered for _ in range(per_chip)]
    if len(ordered) != len(at):
        return []
    return list(zip(at, ordered, strict=True))
