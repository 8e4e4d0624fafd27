"""
What ranks wait for, and whether all of them run the same program: on which line most
wait for the device, who is on another, and who runs another program.

Ranks that run the same program meet on the same line. One that waits on another line
runs what the others do not run, skipped what they wait in, or only reads a result of
what all have dispatched, such as process 0, which alone logs the loss.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from jaxmon.facts.rank import Rank
from jaxmon.job.model import DeviceWait


_Item = TypeVar("_Item")
_Key = TypeVar("_Key")

_FOR_THE_DEVICE = frozenset(("device", "fetch", "transfer"))
# As the agent calls them: to join, and to exchange which devices there are.
_STARTS = frozenset(("jax.distributed.initialize", "the initialisation of devices"))


def grouped(
    items: Iterable[_Item], key: Callable[[_Item], _Key]
) -> dict[_Key, list[_Item]]:
    """Return *items* by *key*, in their order."""
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def starts(rank: Rank) -> bool:
    """Return whether *rank* waits for others to join the job, or for their devices."""
    return rank.now.barrier in _STARTS


def waiting_of(alive: Sequence[Rank]) -> DeviceWait:
    """Return the ranks that wait for the device."""
    waiting = [rank for rank in alive if _waits(rank)]
    if not waiting:
        return DeviceWait()
    shared = {of.name for rank in alive for of in rank.functions}
    functions = Counter(
        rank.now.function for rank in waiting if rank.now.function in shared
    )
    function = _usual(functions) or _furthest_apart(alive)
    place, there = _meeting_point(waiting, function)
    calls = Counter(
        calls for rank in there if (calls := rank.calls(function)) is not None
    )
    fetching = sum(rank.now.state != "device" for rank in there)
    return DeviceWait(
        tuple(numbers_of(waiting)),
        function,
        calls.most_common(1)[0][0] if function and calls else None,
        place,
        2 * fetching > len(there),
        _usual(Counter(rank.now.barrier for rank in there)),
        _is_partial(alive, function),
    )


def apart_from(alive: Iterable[Rank], waiting: DeviceWait) -> list[Rank]:
    """Return those of *alive* that are not *waiting*."""
    numbers = set(waiting.numbers)
    return [rank for rank in alive if rank.index not in numbers]


def elsewhere(alive: Sequence[Rank], waiting: DeviceWait) -> list[Rank]:
    """
    Return those of *alive* that wait on another line than most. If one of them is in a
    barrier before its time, a rank that has made more calls waits for it.
    """
    numbers = set(waiting.numbers)
    found = [
        rank
        for rank in alive
        if rank.index in numbers and rank.now.place and rank.now.place != waiting.place
    ]
    early = [rank for rank in found if rank.now.barrier]
    calls = [rank.calls(waiting.function) for rank in early]
    counts = [number for number in calls if number is not None]
    if waiting.barrier or not early or len(counts) < len(early):
        return found
    return [
        rank
        for rank in found
        if rank.now.barrier or (rank.calls(waiting.function) or 0) <= min(counts)
    ]


def is_local(rank: Rank) -> bool:
    """Return whether *rank* is in a call of a function that it runs alone."""
    function = rank.now.function
    shared = {function.name for function in rank.functions}
    return bool(function and shared) and function not in shared


def numbers_of(ranks: Iterable[Rank]) -> list[int]:
    """Return the numbers of *ranks*, lowest first."""
    return sorted([rank.index for rank in ranks if rank.index is not None])


def _waits(rank: Rank) -> bool:
    """Return whether *rank* waits for a device that may wait for other ranks."""
    # JAX initialises devices when it compiles the first function, if not before.
    waits = rank.now.state in _FOR_THE_DEVICE or starts(rank)
    return waits and not (is_local(rank) or rank.now.callback)


def _meeting_point(waiting: Sequence[Rank], function: str) -> tuple[str, list[Rank]]:
    """
    Return the line on which most of *waiting* do, of several the one after the most
    calls of *function*, and who waits there; all of them if no line is known.
    """
    there = grouped(waiting, lambda rank: rank.now.place)
    there.pop("", None)
    return max(
        there.items(),
        key=lambda item: (len(item[1]), max(of.calls(function) or 0 for of in item[1])),
        default=("", list(waiting)),
    )


def _is_partial(ranks: Sequence[Rank], function: str) -> bool:
    on = [of.devices for rank in ranks for of in rank.functions if of.name == function]
    return 0 < max(on, default=0) < devices(ranks)


def _furthest_apart(ranks: Sequence[Rank]) -> str:
    most: dict[str, int] = {}
    spread: dict[str, set[int]] = defaultdict(set)
    for rank in ranks:
        for function in rank.functions:
            if function.calls is not None:
                most[function.name] = max(most.get(function.name, 0), function.calls)
                spread[function.name].add(function.calls)
    return max(most, key=lambda name: (len(spread[name]) > 1, most[name]), default="")


def _usual(found: Counter[str]) -> str:
    return found.most_common(1)[0][0] if found else ""


_MOST_ORDERS = 100

Calls: TypeAlias = tuple[tuple[str, int], ...]


def deviating(ranks: Sequence[Rank], function: str) -> list[tuple[Rank, str]]:
    """
    Return the ranks that run another program than most, and which function that is:
    those that have called one function more often, and another one less often than
    most, as after another branch; or whose program of *function* is another one. All
    ranks, if it is not clear which is the right one.
    """
    return _by_calls(ranks) or [
        (rank, function) for rank in _by_fingerprint(ranks, function)
    ]


def devices(ranks: Sequence[Rank]) -> int:
    """Return how many devices their job has, at least those of one of its programs."""
    counts = [_whole(rank.setup.get("devices", "")) for rank in ranks]
    count = ranks[0].count or 0 if ranks else 0
    if ranks and all(counts) and (len(ranks) == count or len(set(counts)) == 1):
        return sum(counts) * count // len(ranks)
    return max((of.devices for rank in ranks for of in rank.functions), default=0)


def _by_calls(ranks: Sequence[Rank]) -> list[tuple[Rank, str]]:
    everywhere = devices(ranks)
    calls = {id(rank): _of_all(rank, everywhere) for rank in ranks if rank.functions}
    if any(found is None for found in calls.values()):
        return []
    orders = Counter(found for found in calls.values() if found is not None)
    if not orders:
        return []
    usual = dict(orders.most_common(1)[0][0])
    # Hostile or broken ones aside, there are few.
    other = {
        calls_made: extra
        for calls_made, _ in orders.most_common(_MOST_ORDERS)
        if (extra := _extra(usual, calls_made))
    }
    found = [
        (rank, other[made])
        for rank in ranks
        if (made := calls.get(id(rank))) is not None and made in other
    ]
    if not found or 2 * len(found) < len(ranks):
        return found
    deviate = {id(rank) for rank, _ in found}
    rest = [(rank, rank.now.function) for rank in ranks if id(rank) not in deviate]
    return [*found, *rest]


def _of_all(rank: Rank, everywhere: int) -> Calls | None:
    found = [
        (function.name, function.calls)
        for function in rank.functions
        if function.devices == everywhere
    ]
    counted = [(name, calls) for name, calls in found if calls]
    unknown = any(calls is None for _, calls in found)
    return None if unknown else tuple(sorted(counted))


def _extra(usual: dict[str, int], found: Calls) -> str:
    """
    Return what *found* calls more often than *usual*, if not only ahead or behind.
    """
    calls = dict(found)
    names = usual.keys() | calls.keys()
    more = [name for name in names if calls.get(name, 0) > usual.get(name, 0)]
    less = any(calls.get(name, 0) < usual.get(name, 0) for name in names)
    return min(more) if more and less else ""


def _by_fingerprint(ranks: Sequence[Rank], function: str) -> list[Rank]:
    fingerprints = Counter(
        found for rank in ranks if (found := rank.fingerprint(function))
    )
    if len(fingerprints) < 2:  # noqa: PLR2004 - one for all
        return []
    usual, times = fingerprints.most_common(1)[0]
    # On hosts that differ from each other, each may have its own.
    if 2 * times <= sum(fingerprints.values()):
        return [] if len(fingerprints) > 2 else list(ranks)  # noqa: PLR2004 - two halves
    return [
        rank
        for rank in ranks
        if (fingerprint := rank.fingerprint(function)) and fingerprint != usual
    ]


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0  # noqa: PLR2004 - digits
