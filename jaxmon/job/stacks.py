"""
The stacks of the threads of many ranks, grouped by likeness, the rarest first.

In a hang most ranks are at the same place, and whoever is elsewhere is suspect: as
ByteRobust does it (Wan et al. 2025, arXiv 2509.16293).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from jaxmon.facts.host import JobHost
from jaxmon.host.formats.layout import INDENT, counted, shortened
from jaxmon.job.words import numbers


_MOST_GROUPS = 20
_MOST_LINES = 20

Stack: TypeAlias = tuple[str, ...]


class StackGroup(NamedTuple):
    """
    Threads that are in the same functions.

    Attributes:
        ranks: on which ranks, sorted.
        threads: their number.
        stack: the commonest of theirs, innermost line first.
        stacks: how many different ones there are; they differ in lines.
    """

    ranks: tuple[int, ...]
    threads: int
    stack: Stack
    stacks: int


def of_hosts(hosts: Iterable[JobHost]) -> Iterator[tuple[int, Stack]]:
    """Yield the stacks of all threads on *hosts*, each with the number of its rank."""
    for host in hosts:
        for rank in host.ranks:
            stacks: Mapping[str, Sequence[Stack]] = host.stacks
            for stack in stacks.get(rank.worker, ()):
                if rank.index is not None:
                    yield rank.index, stack


def groups(stacks: Iterable[tuple[int, Stack]]) -> list[StackGroup]:
    """Return *stacks* by the functions that they consist of, the rarest first."""
    ranks: defaultdict[Stack, set[int]] = defaultdict(set)
    found: defaultdict[Stack, Counter[Stack]] = defaultdict(Counter)
    for rank, stack in stacks:
        likeness = tuple([_function(line) for line in stack])
        ranks[likeness].add(rank)
        found[likeness][stack] += 1
    made = [
        StackGroup(
            tuple(sorted(ranks[likeness])),
            sum(of.values()),
            of.most_common(1)[0][0],
            len(of),
        )
        for likeness, of in found.items()
    ]
    return sorted(made, key=lambda group: (len(group.ranks), group.ranks, group.stack))


def lines(found: Sequence[StackGroup], width: int) -> list[str]:
    """Return *found* in lines of at most *width* columns."""
    text: list[str] = []
    for group in found[:_MOST_GROUPS]:
        several = (
            f", {group.threads:,} threads" if group.threads > len(group.ranks) else ""
        )
        differ = f", on {group.stacks} different lines" if group.stacks > 1 else ""
        text += ["", shortened(f"{numbers(group.ranks)}{several}{differ}:", width)]
        text += [
            shortened(f"{INDENT}{line}", width) for line in group.stack[:_MOST_LINES]
        ]
        if (left := len(group.stack) - _MOST_LINES) > 0:
            text.append(f"{INDENT}and {counted(left, 'further line')}")
    if (left := len(found) - _MOST_GROUPS) > 0:
        text += ["", f"and {counted(left, 'further group')} of threads"]
    return text[1:]


def _function(line: str) -> str:
    """Return file and function of a *line* ``file.py:12 in function``."""
    place, _, function = line.rpartition(" in ")
    return f"{place.rpartition(':')[0]} in {function}"
