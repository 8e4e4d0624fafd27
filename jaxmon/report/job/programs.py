"""Ranks that run another program than the others, although all wait for the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from jaxmon.report.job.records import Rank


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
        (one, function) for one in _by_fingerprint(ranks, function)
    ]


def devices(ranks: Sequence[Rank]) -> int:
    """Return how many devices their job has, at least those of one of its programs."""
    known = [_whole(one.setup.get("devices", "")) for one in ranks]
    count = ranks[0].count or 0 if ranks else 0
    if ranks and all(known) and (len(ranks) == count or len(set(known)) == 1):
        return sum(known) * count // len(ranks)
    return max((of.devices for one in ranks for of in one.functions), default=0)


def _by_calls(ranks: Sequence[Rank]) -> list[tuple[Rank, str]]:
    everywhere = devices(ranks)
    calls = {id(one): _of_all(one, everywhere) for one in ranks if one.functions}
    if any(found is None for found in calls.values()):
        return []
    orders = Counter(found for found in calls.values() if found is not None)
    if not orders:
        return []
    usual = dict(orders.most_common(1)[0][0])
    # Hostile or broken ones aside, there are few.
    other = {
        one: extra
        for one, _ in orders.most_common(_MOST_ORDERS)
        if (extra := _extra(usual, one))
    }
    found = [
        (one, other[made])
        for one in ranks
        if (made := calls.get(id(one))) is not None and made in other
    ]
    if not found or 2 * len(found) < len(ranks):
        return found
    deviate = {id(one) for one, _ in found}
    rest = [(one, one.now.function) for one in ranks if id(one) not in deviate]
    return [*found, *rest]


def _of_all(rank: Rank, everywhere: int) -> Calls | None:
    """
    Return the calls of functions that run on all devices, *everywhere*, `None` if some
    are not counted. Parts of the processes may call others among themselves.
    """
    found = [
        (one.name, one.calls) for one in rank.functions if one.devices == everywhere
    ]
    known = [(name, calls) for name, calls in found if calls]
    unknown = any(calls is None for _, calls in found)
    return None if unknown else tuple(sorted(known))


def _extra(usual: dict[str, int], found: Calls) -> str:
    """
    Return of which function *found* has calls that *usual* does not have, if it is of
    another sequence, and not only ahead or behind in the same one; else nothing.
    """
    own = dict(found)
    names = usual.keys() | own.keys()
    more = [name for name in names if own.get(name, 0) > usual.get(name, 0)]
    less = any(own.get(name, 0) < usual.get(name, 0) for name in names)
    return min(more) if more and less else ""


def _by_fingerprint(ranks: Sequence[Rank], function: str) -> list[Rank]:
    known = Counter(found for one in ranks if (found := one.fingerprint(function)))
    if len(known) < 2:  # noqa: PLR2004 - one for all
        return []
    usual, times = known.most_common(1)[0]
    # On hosts that differ from each other, each may have its own.
    if 2 * times <= sum(known.values()):
        return [] if len(known) > 2 else list(ranks)  # noqa: PLR2004 - two halves
    return [one for one in ranks if (own := one.fingerprint(function)) and own != usual]


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0  # noqa: PLR2004 - digits
