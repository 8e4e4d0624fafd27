"""
Finds the ranks that come last to their collectives, by NCCL Inspector.

The kernel of a collective starts when its rank comes to it, and ends when all have come
and the data has. So the last one has the shortest kernels, those of the others wait for
it, and a low bus bandwidth says that a rank waits, not that it is slow (decision 56).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxmon.report.job.inspector import Timed, Window
from jaxmon.report.job.records import Host, Rank


# As for stragglers: of the time, in one window and in all; and standard deviations.
_LEAST_IN_ONE, _LEAST = 0.05, 0.1
_DEVIATIONS = 5.0
_WINDOWS, _LEAST_RECORDED = 3, 10
_OLDEST_SECONDS, _MOST_SECONDS = 120.0, 1e6
_MOST = 64


@dataclass(frozen=True, slots=True)
class Latecomer:
    """
    A rank for which the collectives of a communicator wait.

    Attributes:
        rank: ours.
        timed: NCCL's, by which it is known there.
        several: whether its process has other ranks of this communicator.
        mean: seconds of its kernels, *median* those of the median rank.
        ratio: how much of the time that one waits for it.
    """

    rank: Rank
    timed: Timed
    several: bool
    mean: float
    median: float
    ratio: float


@dataclass(frozen=True, slots=True)
class _Side:
    """A rank in a communicator, and how many seconds its windows have."""

    rank: Rank
    timed: Timed
    seconds: tuple[float, ...]


def find(ranks: Sequence[Rank], hosts: Sequence[Host]) -> tuple[Latecomer, ...]:
    """
    Return who comes last to collectives, the worst first, each rank once.

    Args:
        ranks: of one job.
        hosts: all that answered.
    """
    groups: defaultdict[tuple[str, int, str, str], list[_Side]] = defaultdict(list)
    for side in _sides(ranks, hosts):
        of = side.timed
        key = of.communicator, of.ranks, of.collective, of.size
        groups[key].append(side)
    worst: dict[int, Latecomer] = {}
    for sides in groups.values():
        for one in _late(sides):
            number = id(one.rank)
            if number not in worst or worst[number].ratio < one.ratio:
                worst[number] = one
    found = sorted(worst.values(), key=lambda one: -one.ratio)
    return tuple(found[:_MOST])


def _sides(ranks: Sequence[Rank], hosts: Sequence[Host]) -> Iterator[_Side]:
    known = {id(one) for one in ranks}
    for host in hosts:
        inspected = host.collectives
        if inspected is None or inspected.age_seconds > _OLDEST_SECONDS:
            continue
        seconds = inspected.seconds[:_WINDOWS]
        if len(seconds) < _WINDOWS or not all(map(_is_usual, seconds)):
            continue
        own = {(one.host, one.pid): one for one in host.ranks if id(one) in known}
        for timed in inspected.ranks:
            rank = own.get((timed.host, timed.pid))
            if rank is not None and _is_enough(timed):
                yield _Side(rank, timed, seconds)


def _is_enough(timed: Timed) -> bool:
    windows = timed.windows[:_WINDOWS]
    return len(windows) == _WINDOWS and all(
        one.recorded >= _LEAST_RECORDED and _is_usual(one.seconds) for one in windows
    )


def _is_usual(seconds: float) -> bool:
    return 0 < seconds < _MOST_SECONDS


def _late(sides: Sequence[_Side]) -> Iterator[Latecomer]:
    """Return the ranks that come later than the median one, in all windows."""
    if len(sides) < 2:  # noqa: PLR2004 - to compare
        return
    medians = [
        _median([side.timed.windows[place] for side in sides])
        for place in range(_WINDOWS)
    ]
    of_process = Counter(id(side.rank) for side in sides)
    for side in sides:
        waits = []
        for window, usual, seconds in zip(
            side.timed.windows, medians, side.seconds, strict=False
        ):
            less = usual.mean - window.mean
            if less <= _DEVIATIONS * math.sqrt(usual.variance + window.variance):
                break
            # As long as they take for the median rank, at the most.
            launched = min(window.launched, seconds / usual.mean)
            waits.append(less * launched)
            if waits[-1] < _LEAST_IN_ONE * seconds:
                break
        else:
            if sum(waits) >= _LEAST * sum(side.seconds):
                several = of_process[id(side.rank)] > 1
                yield _latecomer(side, medians, sum(waits), several=several)


def _median(windows: Sequence[Window]) -> Window:
    """Return the window with the median time; of two, the longer one."""
    return sorted(windows, key=lambda one: one.mean)[len(windows) // 2]


def _latecomer(
    side: _Side, medians: Sequence[Window], waited: float, *, several: bool
) -> Latecomer:
    own = side.timed.windows[:_WINDOWS]
    return Latecomer(
        side.rank,
        side.timed,
        several,
        sum(one.mean for one in own) / _WINDOWS,
        sum(one.mean for one in medians) / _WINDOWS,
        waited / sum(side.seconds),
    )
