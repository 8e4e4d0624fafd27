"""What devices and processors must show of a rank before it is called slow."""

from typing import Any

import pytest

from jaxmon.job.model import SlowKind, Slowness
from tests.job.judged import named, slowness
from tests.job.rows import changed, rows, runner


# The others wait for 0.55 of their time for it, and its host waits as well.
BUSY, SLOW = {"python": 0.2}, {"python": 0.75}
LAG, LAST = 0.55, 3
# A bit more and less than half of that, than which no less must be shown.
ENOUGH, TOO_LITTLE = 0.3, 0.25


def among(usual: dict[str, float], course: Any, ranks: int = LAST) -> Slowness:
    """Return what is found of a rank with this *course* among *usual* ones."""
    others = [runner(one, rows(**usual)) for one in range(ranks)]
    return slowness(*others, runner(LAST, course))


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    ("idle", "expected"), [(ENOUGH, [LAST]), (TOO_LITTLE, []), (0.0, [])]
)
def test_its_device_was_seen_without_work_for_half_of_what_others_waited(
    idle, expected, ranks
):
    """Of the time in which it is known; of two, the other one is what is usual."""
    seen = {"ahead": 0.5 * (1 - idle), "behind": 0.5 * idle}
    found = among({**BUSY, "ahead": 0.5}, rows(**SLOW, **seen), ranks)
    assert named(found) == expected


@pytest.mark.parametrize(("time", "expected"), [(0.12, [LAST]), (0.08, [])])
def test_what_is_seldom_seen_proves_nothing(time: float, expected: list[int]) -> None:
    """Its calls must be followed for a tenth of the time."""
    found = among({**BUSY, "ahead": 0.5}, rows(**SLOW, behind=time))
    assert named(found) == expected


@pytest.mark.parametrize(("known", "expected"), [(2, [LAST]), (1, [])])
def test_most_devices_must_be_seen(known: int, expected: list[int]) -> None:
    """Of four ranks three, of which one is slow: else it is not known what is usual."""
    others = [
        runner(one, rows(**BUSY, ahead=0.5 if one < known else 0.0))
        for one in range(LAST)
    ]
    found = slowness(*others, runner(LAST, rows(**SLOW, behind=0.5)))
    assert named(found) == expected


@pytest.mark.parametrize(("idle", "expected"), [(ENOUGH, [LAST]), (TOO_LITTLE, [])])
def test_its_device_idled_by_estimates_for_half_of_what_others_waited(idle, expected):
    """Execution times are sampled, and show that as well."""
    found = among({**BUSY, "together": 0.9}, rows(**SLOW, together=0.9 - idle))
    assert named(found) == expected


@pytest.mark.parametrize(("known", "expected"), [(0.55, [LAST]), (0.45, [])])
def test_estimates_count_if_they_are_of_most_calls(known, expected):
    """The others may have taken any time."""
    course = rows(**SLOW, together=(0.9 - ENOUGH) * known)
    found = among({**BUSY, "together": 0.9}, changed(course, known=known))
    assert named(found) == expected


def test_a_device_that_works_alone_does_not_idle() -> None:
    """It is slow because of that, not because of its host."""
    found = among({**BUSY, "together": 0.9}, rows(**SLOW, together=0.4, alone=0.4))
    assert named(found) == [LAST]
    assert found.stragglers[0].kind is SlowKind.COMPUTE


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    ("held", "python", "expected"), [(0.3, 0.25, [LAST]), (0.2, 0.45, [])]
)
def test_who_is_held_for_half_of_what_others_waited_cannot_run(
    held, python, expected, ranks
):
    """Whatever its device does; of two, the other one is what is usual."""
    found = among(BUSY, rows(held=held, python=python), ranks)
    assert named(found) == expected
    assert {one.kind for one in found.stragglers} <= {SlowKind.HOST}


def test_a_function_is_named_only_if_the_device_is_why() -> None:
    """What else it runs for itself does not hold up the others."""
    usual = [runner(one) for one in range(LAST)]
    loads = runner(LAST, rows(data_wait=0.95), alone="__main__.metrics")
    [found] = slowness(*usual, loads).stragglers
    assert (found.kind, found.function) == (SlowKind.DATA, "")
    works = rows(data_wait=0.5, together=0.1, alone=0.4)
    ranks = [runner(one, rows(data_wait=0.5, together=0.5)) for one in range(LAST)]
    now = runner(LAST, works, alone="__main__.metrics")
    [found] = slowness(*ranks, now).stragglers
    assert (found.kind, found.function) == (SlowKind.COMPUTE, "__main__.metrics")
    # What it runs now is not what it ran then.
    over = [*works[4:], *rows(4, data_wait=0.5, together=0.5)]
    before = runner(LAST, over, alone="__main__.metrics")
    [found] = slowness(*ranks, before).former
    assert (found.kind, found.function) == (SlowKind.COMPUTE, "")


@pytest.mark.parametrize(("known", "expected"), [(0.55, [LAST]), (0.45, [])])
def test_a_device_that_works_alone_is_known_by_most_calls(known, expected):
    """In windows in which few of its calls are of sampled functions it is as usual."""
    course = changed(rows(data_wait=0.5, together=0.1, alone=0.4), known=known)
    ranks = [runner(one, rows(data_wait=0.5, together=0.5)) for one in range(LAST)]
    assert named(slowness(*ranks, runner(LAST, course))) == expected


@pytest.mark.parametrize(("known", "expected"), [(2, [LAST]), (1, [])])
def test_most_ranks_must_be_sampled(known: int, expected: list[int]) -> None:
    """Of four ranks three: what is usual is not known by half of them."""
    course = rows(data_wait=0.5, together=0.1, alone=0.4)
    ranks = [
        runner(
            one,
            rows(data_wait=0.5, together=0.5) if one < known else rows(data_wait=0.5),
        )
        for one in range(LAST)
    ]
    assert named(slowness(*ranks, runner(LAST, course))) == expected
