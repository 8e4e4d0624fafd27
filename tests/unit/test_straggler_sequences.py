"""Who is named, and how soon, whatever the sequence of steps: as real agents see it."""

import random
from collections.abc import Callable

import pytest

from jaxmon.facts.host import host
from jaxmon.job.model import Slowness
from jaxmon.job.verdict import judge
from jaxmon.limits import Limits
from tests.job.rows import lives


NEVER = Limits(rank_stuck_after="12d")


Loads = Callable[[int, float], float]

COUNT = 4
SLOW = 2
# Seconds of a step, nearly all of it loading.
STEPS = (0.02, 0.2, 1.0, 30.0)
MOSTLY = 0.97
BEGAN = 60.0
MINUTE = 60.0
# Slow steps until it is certain.
MOST_STEPS = 9


def readings(
    loads: Loads, step: float, seconds: float, count: int = COUNT
) -> list[tuple[float, Slowness]]:
    """Return what is found when a job is read every few seconds, and when."""
    found = []
    device = step * (1 - MOSTLY)
    for now, ranks in lives(loads, device, seconds, count=count):
        [job] = judge([host("host-1:9467", {"ranks": ranks})], NEVER).jobs
        found.append((now, job.slowness or Slowness()))
    return found


def named(found: Slowness) -> list[int]:
    """Return the ranks that are said to be slow, now or before."""
    return sorted(one.rank.index or 0 for one in (*found.stragglers, *found.former))


def slow_for_good(step: float, times: float, began: float) -> Loads:
    """Return the loads of ranks of which one takes so many *times* as long."""

    def loads(rank: int, now: float) -> float:
        slow = rank == SLOW and now >= began
        return step * (MOSTLY - 1 + times if slow else MOSTLY)

    return loads


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("times", [1.25, 2.0])
def test_a_slow_rank_is_named_within_a_minute(step: float, times: float) -> None:
    """It stays named, and no other is."""
    began = max(BEGAN, 8 * step)
    limit = max(MINUTE, MOST_STEPS * step * times)
    loads = slow_for_good(step, times, began)
    found = readings(loads, step, began + 2 * limit)
    after = [(now - began, named(one)) for now, one in found]
    assert {tuple(some) for _, some in after} == {(), (SLOW,)}
    first = next(seconds for seconds, some in after if some)
    assert 0 < first <= limit
    assert all(some for seconds, some in after if seconds >= first)


@pytest.mark.parametrize("count", [2, 8])
def test_so_it_is_in_small_and_large_jobs(count: int) -> None:
    """Of two ranks as well, and of eight with two slow ones, both."""
    slow = {1} if count == 2 else {3, 5}

    def loads(rank: int, now: float) -> float:
        return 0.4 if rank in slow and now >= BEGAN else 0.2

    found = readings(loads, 0.2, BEGAN + MINUTE, count)
    assert not any(named(one) for now, one in found if now <= BEGAN)
    assert named(found[-1][1]) == sorted(slow)


def passing(rank: int, now: float, seconds: float, every: float) -> bool:
    """Return whether one rank is in a pause, of so many *seconds* from time to time."""
    return rank == SLOW and now % every < seconds


def by_chance(rank: int, now: float) -> float:
    """Return a time for a long step, which differs at random."""
    return random.Random(f"{rank} {now}").uniform(7.0, 13.0)  # noqa: S311 - no secret


PASSES: dict[str, Loads] = {
    "pauses of 5 s": lambda rank, now: 5.0 if passing(rank, now, 0.3, 30.0) else 0.2,
    "pauses of 20 s": lambda rank, now: 20.0 if passing(rank, now, 0.3, 90.0) else 0.2,
    "slow for 15 s": lambda rank, now: 0.4 if passing(rank, now, 15.0, 90.0) else 0.2,
    "one after another": lambda rank, now: 0.4 if rank == now // 15 % COUNT else 0.2,
    "all": lambda _, now: 0.4 if now >= BEGAN else 0.2,
    "long steps by chance": by_chance,
    "every other step": lambda rank, now: 0.4 if rank == now // 0.4 % COUNT else 0.2,
}


@pytest.mark.parametrize("what", PASSES)
def test_what_passes_or_befalls_all_is_no_straggler(what: str) -> None:
    """Neither pauses now and then, nor a rank after the other, nor all of them."""
    found = readings(PASSES[what], 0.2, 300.0)
    assert len(found) > 10
    assert not any(named(one) for _, one in found)


def test_a_rank_that_has_recovered_is_said_to_have_been_slow() -> None:
    """For two minutes: not longer than pauses can be distinguished from that."""
    ends = BEGAN + 50.0

    def loads(rank: int, now: float) -> float:
        return 0.4 if rank == SLOW and BEGAN <= now < ends else 0.2

    found = readings(loads, 0.2, ends + 60.0)
    latest = found[-1][1]
    assert not latest.stragglers
    [one] = latest.former
    assert one.rank.index == SLOW
    assert 40.0 <= one.ended_seconds <= 70.0
    assert 40.0 <= one.seconds <= 70.0
