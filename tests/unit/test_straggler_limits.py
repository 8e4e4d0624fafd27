"""From which limits on a rank is slow: for what reason each of them is there."""

from typing import Any

import pytest

from jaxmon.facts.rank import COLUMNS
from jaxmon.job.comparison import time_by_call
from jaxmon.job.model import Slowness
from tests.job.judged import named, slowness
from tests.job.rows import changed, rows, runner


USUAL = 0.5
CALM, SLOW = (rows(40, data_wait=one) for one in (USUAL, 0.95))
LAST = 3


def among(course: Any) -> Slowness:
    """Return what is found of four ranks, of which the last one has this *course*."""
    ranks = [runner(one, CALM) for one in range(LAST)]
    return slowness(*ranks, runner(LAST, course))


def test_a_single_window_in_which_it_is_faster_does_not_begin_anew() -> None:
    """By chance it loads as fast for once; it has been slow for longer than since."""
    faster = rows(2, data_wait=USUAL + 0.1)
    found = among([*CALM[12:], *SLOW[:6], *faster, *SLOW[:4]])
    assert named(found) == [LAST]
    assert found.stragglers[0].seconds == pytest.approx(48.0)


@pytest.mark.parametrize("steps", [20.0, 1.0])
def test_few_looks_prove_little(steps: float) -> None:
    """Ten in forty seconds, which find it loading by chance; of few steps or many."""
    part = {"calls": steps / 20.0}
    ranks = [runner(one, changed(CALM, **part)) for one in range(LAST)]
    often = changed(SLOW, **part)
    assert named(slowness(*ranks, runner(LAST, often))) == [LAST]
    lately = [*changed(CALM[10:], **part), *often[:10]]
    assert named(slowness(*ranks, runner(LAST, lately))) == [LAST]
    seldom = changed(lately, looks=1 / 40)
    assert named(slowness(*ranks, runner(LAST, seldom))) == []


def test_few_steps_that_differ_prove_little() -> None:
    """Two steps in a window, long and short in turn; if all are long, it is slow."""
    part = {"calls": 1 / 20}
    ranks = [runner(one, changed(CALM, **part)) for one in range(LAST)]
    turns = [*rows(2, data_wait=0.95), *rows(2, data_wait=0.68)] * 2
    differ = changed([*CALM[8:], *turns], **part)
    assert named(slowness(*ranks, runner(LAST, differ))) == []
    alike = changed([*CALM[8:], *SLOW[:8]], **part)
    assert named(slowness(*ranks, runner(LAST, alike))) == [LAST]


def test_who_never_waits_is_behind_whatever_estimates_say() -> None:
    """Its device seems to work all the time, but the others wait for it."""
    ranks = [runner(one, rows(python=0.2, together=1.0)) for one in range(LAST)]
    never = runner(LAST, rows(python=0.99, together=1.0))
    assert named(slowness(*ranks, never)) == [LAST]


def test_while_it_is_held_it_cannot_be_behind() -> None:
    """As all are: it is ahead of its device for nearly all the time that it runs."""
    held = {"held": 0.3}
    ranks = [runner(n, rows(python=0.1, ahead=0.6, **held)) for n in range(LAST)]
    ahead = runner(LAST, rows(python=0.65, ahead=0.6, **held))
    assert named(slowness(*ranks, ahead)) == []
    seldom = runner(LAST, rows(python=0.65, ahead=0.1, **held))
    assert named(slowness(*ranks, seldom)) == [LAST]


def test_the_latest_window_alone_does_not_show_that_it_is_over() -> None:
    """It may be fast by chance, or read while the others are not yet."""
    found = among([*SLOW[2:], *CALM[:2]])
    assert (named(found), found.former) == ([LAST], ())
    found = among([*SLOW[4:], *CALM[:4]])
    assert (named(found), [one.rank.index for one in found.former]) == ([], [LAST])


def test_what_is_lost_is_measured_by_what_is_usual() -> None:
    """The second slowest of hundreds is so by an error of sampling."""
    ranks = [runner(one, CALM, count=202) for one in range(200)]
    chance = runner(200, rows(40, data_wait=USUAL + 0.04), count=202)
    found = slowness(*ranks, chance, runner(201, SLOW, count=202))
    assert found.lost == pytest.approx(0.45 * 0.2)


def test_who_is_not_in_step_is_not_compared() -> None:
    """It takes twice as long for as many calls: it waits for no other, and they not."""
    alone = changed(SLOW, **{name: 2.0 for name in COLUMNS if name != "calls"})
    assert named(among(alone)) == []


def test_who_is_far_behind_does_not_keep_others_from_being_compared() -> None:
    """A rank that has just begun: the others have been slow or not for long."""
    begun = runner(LAST + 1, CALM[:3], count=5)
    ranks = [runner(one, [*CALM, *CALM[:20]], count=5) for one in range(LAST)]
    lately = runner(LAST, [*CALM, *CALM[:8], *SLOW[:12]], count=5)
    assert named(slowness(*ranks, lately, begun)) == [LAST]


def test_who_was_read_a_moment_before_is_compared() -> None:
    """With steps of milliseconds it has made hundreds fewer by then."""
    ranks = [runner(one, changed(CALM, calls=20.0)) for one in range(LAST)]
    earlier = runner(LAST, changed(SLOW[1:], calls=20.0))
    assert named(slowness(*ranks, earlier)) == [LAST]


def test_calls_of_several_functions_make_a_step() -> None:
    """Seven steps must be slow: ten calls of two functions are too few."""
    slow = [*changed(CALM[10:], calls=1 / 20), *changed(SLOW[:10], calls=1 / 20)]
    ranks = [runner(one, changed(CALM, calls=1 / 20)) for one in range(LAST)]
    ranks.append(runner(LAST, slow))
    assert named(slowness(*ranks)) == [LAST]
    for other, expected in ((5, [LAST]), (None, [LAST]), (812, [])):
        for one in ranks:
            one["functions"]["__main__.update"] = {"calls": other, "devices": 8}
        assert named(slowness(*ranks)) == expected


ROW = " ".join(map(str, CALM[0]))


@pytest.mark.parametrize(
    "course",
    [
        [ROW, ROW.replace("4.0", "-4.0", 1)],
        [ROW, ROW.replace("4.0", "1e400", 1)],
        [ROW, ROW.replace("4.0", "nan", 1)],
        [" ".join("0" for _ in COLUMNS)],
        [" ".join("4" if name == "seconds" else "0" for name in COLUMNS)],
        [" ".join("4" if name == "calls" else "0" for name in COLUMNS)],
        [ROW, 7],
        [ROW, ROW + " 1"],
        [ROW, ROW.replace(" ", "  ", 1)],
        [ROW, ROW + "0" * 1000],
        [ROW] * 1000,
        ROW,
        {},
    ],
)
def test_a_course_that_cannot_be_is_none(course: Any) -> None:
    """The rank is judged without it, and so are the others."""
    assert time_by_call([ROW, ROW]) is not None
    assert time_by_call(course) is None
