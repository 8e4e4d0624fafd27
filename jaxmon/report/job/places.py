"""
Where ranks wait for the device: on the line on which most do, or on another.

Ranks that run the same program meet on the same line. One that waits on another line
runs what the others do not run, skipped what they wait in, or only reads a result of
what all have dispatched, such as process 0, which alone logs the loss.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from jaxmon.report.job.model import Waiting
from jaxmon.report.job.programs import devices
from jaxmon.report.job.records import Rank


_FOR_THE_DEVICE = frozenset(("device", "fetch", "transfer"))
# As the agent calls them: to join, and to exchange which devices there are.
_STARTS = frozenset(("jax.distributed.initialize", "the initialisation of devices"))


def starts(rank: Rank) -> bool:
    """Return whether *rank* waits for others to join the job, or for their devices."""
    return rank.now.barrier in _STARTS


def waiting_of(alive: Sequence[Rank]) -> Waiting:
    """Return the ranks that wait for the device."""
    waiting = [one for one in alive if _waits(one)]
    if not waiting:
        return Waiting()
    shared = {of.name for one in alive for of in one.functions}
    functions = Counter(
        one.now.function for one in waiting if one.now.function in shared
    )
    function = _usual(functions) or _furthest_apart(alive)
    place, there = _meeting_point(waiting, function)
    calls = Counter(
        calls for one in there if (calls := one.calls(function)) is not None
    )
    fetching = sum(one.now.state != "device" for one in there)
    return Waiting(
        tuple(numbers_of(waiting)),
        function,
        calls.most_common(1)[0][0] if function and calls else None,
        place,
        2 * fetching > len(there),
        _usual(Counter(one.now.barrier for one in there)),
        _is_partial(alive, function),
    )


def apart_from(alive: Iterable[Rank], waiting: Waiting) -> list[Rank]:
    """Return those of *alive* that are not *waiting*."""
    numbers = set(waiting.numbers)
    return [one for one in alive if one.index not in numbers]


def elsewhere(alive: Sequence[Rank], waiting: Waiting) -> list[Rank]:
    """
    Return those of *alive* that wait on another line than most. If one of them is in a
    barrier before its time, a rank that has made more calls waits for it.
    """
    numbers = set(waiting.numbers)
    found = [
        one
        for one in alive
        if one.index in numbers and one.now.place and one.now.place != waiting.place
    ]
    early = [one for one in found if one.now.barrier]
    calls = [one.calls(waiting.function) for one in early]
    known = [number for number in calls if number is not None]
    if waiting.barrier or not early or len(known) < len(early):
        return found
    return [
        one
        for one in found
        if one.now.barrier or (one.calls(waiting.function) or 0) <= min(known)
    ]


def is_local(rank: Rank) -> bool:
    """Return whether *rank* is in a call of a function that it runs alone."""
    function = rank.now.function
    shared = {one.name for one in rank.functions}
    return bool(function and shared) and function not in shared


def numbers_of(ranks: Iterable[Rank]) -> list[int]:
    """Return the numbers of *ranks*, lowest first."""
    return sorted([one.index for one in ranks if one.index is not None])


def _waits(rank: Rank) -> bool:
    """Return whether *rank* waits for a device that may wait for other ranks."""
    # JAX initialises devices when it compiles the first function, if not before.
    known = rank.now.state in _FOR_THE_DEVICE or starts(rank)
    return known and not (is_local(rank) or rank.now.callback)


def _meeting_point(waiting: Sequence[Rank], function: str) -> tuple[str, list[Rank]]:
    """
    Return the line on which most of *waiting* do, of several the one after the most
    calls of *function*, and who waits there; all of them if no line is known.
    """
    there: defaultdict[str, list[Rank]] = defaultdict(list)
    for one in waiting:
        if one.now.place:
            there[one.now.place].append(one)
    if not there:
        return "", list(waiting)
    return max(
        there.items(),
        key=lambda item: (
            len(item[1]),
            max(one.calls(function) or 0 for one in item[1]),
        ),
    )


def _is_partial(ranks: Sequence[Rank], function: str) -> bool:
    """Return whether *function* runs on some of the devices of their job only."""
    on = [of.devices for one in ranks for of in one.functions if of.name == function]
    return 0 < max(on, default=0) < devices(ranks)


def _furthest_apart(ranks: Sequence[Rank]) -> str:
    """
    Return the function of whose calls some ranks have made more than others, else the
    one that is called most; empty if none is known.
    """
    most: dict[str, int] = {}
    spread: dict[str, set[int]] = defaultdict(set)
    for rank in ranks:
        for one in rank.functions:
            if one.calls is not None:
                most[one.name] = max(most.get(one.name, 0), one.calls)
                spread[one.name].add(one.calls)
    return max(most, key=lambda name: (len(spread[name]) > 1, most[name]), default="")


def _usual(found: Counter[str]) -> str:
    return found.most_common(1)[0][0] if found else ""
