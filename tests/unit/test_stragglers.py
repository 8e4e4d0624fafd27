"""Which ranks make a job slower, by what their time went into over the same calls."""

import json
import random
from typing import Any

import pytest

from jaxmon.facts.host import host
from jaxmon.facts.rank import COLUMNS
from jaxmon.job.model import SlowKind, Slowness, Straggler, Verdict
from jaxmon.job.text import document, lines
from jaxmon.job.verdict import judge
from tests.job.judged import slowness
from tests.job.rows import as_text, changed, rows, runner


def verdict(*ranks: dict[str, Any], **of_host: Any) -> Verdict:
    """Return the verdict on the job of *ranks*, on one host."""
    return judge([host("host-1:9467", {"ranks": list(ranks), **of_host})])


def only(found: Slowness) -> Straggler:
    """Return the only straggler."""
    [one] = found.stragglers
    return one


def text(found: Verdict) -> str:
    """Return what is printed, as one line."""
    return " ".join(" ".join(lines(found, 100)).split())


def others(number: int = 3, **fractions: float) -> list[dict[str, Any]]:
    """Return ranks that load for half of the time, or do what *fractions* say."""
    parts = fractions or {"data_wait": 0.5}
    return [runner(one, rows(**parts)) for one in range(number)]


def test_the_rank_that_waits_least_is_the_one_that_others_wait_for() -> None:
    """Its kind, its line, how long the others wait, and both scores are right."""
    slow = runner(3, rows(data_wait=0.95), line="data.py:9")
    found = slowness(*others(), slow)
    one = only(found)
    assert (one.rank.index, one.kind, one.place) == (3, SlowKind.DATA, "data.py:9")
    assert one.ratio == pytest.approx(0.45)
    assert one.spent == pytest.approx(0.19)
    assert one.median == pytest.approx(0.1)
    assert one.times_median == pytest.approx(1.9)
    assert one.always
    assert found.step == pytest.approx(0.2)
    assert found.lost == pytest.approx(0.09)
    said = text(verdict(*others(), slow))
    assert (
        "slower because of rank 3: a step takes 0.20 s, for 45 % of which the others "
        "wait rank 3"
    ) in said
    assert (
        "rank 3 (host-0, pid 1003) waits for data at data.py:9 for 0.19 s of each "
        "step, the median rank for 0.10 s"
    ) in said


def test_what_it_does_instead_is_told_apart() -> None:
    """Loading, Python, the GIL, a lock, compiles, transfers and a busy host differ."""
    kinds = {
        "data_wait": SlowKind.DATA,
        "python": SlowKind.PYTHON,
        "gil": SlowKind.GIL,
        "blocked": SlowKind.BLOCKED,
        "compile": SlowKind.COMPILE,
        "transfer": SlowKind.TRANSFER,
        "held": SlowKind.HOST,
    }
    for column, kind in kinds.items():
        spent = {column: 0.3, "data_wait": 0.65}
        if column == "data_wait":
            spent = {column: 0.95}
        assert only(slowness(*others(), runner(3, rows(**spent)))).kind is kind
    # Python that has no processor is Python that takes longer.
    starved = rows(data_wait=0.5, python=0.45, starved=0.4)
    assert only(slowness(*others(), runner(3, starved))).kind is SlowKind.HOST


def test_healthy_ranks_are_not_accused() -> None:
    """Of thousands, whose looks are samples, none seems to be slow."""
    chance = random.Random(7)  # noqa: S311 - samples, no secrets

    def noisy() -> Any:
        found = rows(30)
        for row in found:
            looks = 40
            load = sum(chance.random() < 0.5 for _ in range(looks)) / looks
            row[COLUMNS.index("data_wait")] = load * row[1]
            row[COLUMNS.index("waits")] = row[1] - load * row[1]
        return found

    ranks = [runner(one, noisy(), count=1000) for one in range(1000)]
    found = slowness(*ranks)
    assert (found.stragglers, found.former) == ((), ())


def test_one_long_pause_makes_no_straggler() -> None:
    """A checkpoint or an evaluation of one rank, however long, is a single call."""
    for seconds in (20.0, 200.0, 2000.0):
        ranks = [rows(40, data_wait=0.5) for _ in range(4)]
        for number, course in enumerate(ranks):
            pause = course[-8]
            pause[COLUMNS.index("seconds")] += seconds
            column = "python" if number == 0 else "waits"
            pause[COLUMNS.index(column)] += seconds
        found = slowness(*[runner(one, course) for one, course in enumerate(ranks)])
        assert (found.stragglers, found.former) == ((), ())


def test_a_host_that_keeps_ahead_of_its_device_is_not_slow() -> None:
    """If devices work all the time, it does not matter what a rank does meanwhile."""
    busy = rows(python=0.6, together=1.0)
    assert not slowness(
        *others(3, python=0.1, together=1.0), runner(3, busy)
    ).stragglers
    # It waits for the device, and how long that works is unknown.
    unknown = rows(python=0.6)
    assert not slowness(*others(3, python=0.1), runner(3, unknown)).stragglers


def recorded(**columns: tuple[float, float, float, float]) -> Slowness:
    """Return who makes a job of four ranks slower, of which these figures are known."""
    ranks = [
        runner(number, rows(**{name: some[number] for name, some in columns.items()}))
        for number in range(4)
    ]
    return slowness(*ranks)


# As read from jobs on a machine with ten and eighteen threads for two processors, whose
# devices were busy all the time. Rank 2 loads for longer, and keeps ahead.
LOADS = {"data_wait": (0.09, 0.11, 0.25, 0.11), "python": (0.02, 0.05, 0.05, 0.06)}
SLOW_LOADS = {"data_wait": (0.13, 0.15, 0.31, 0.09), "python": (0.05, 0.06, 0.07, 0.05)}


def test_a_host_that_is_held_as_much_as_others_is_not_slow() -> None:
    """A machine without free processors holds all of them."""
    assert not recorded(**LOADS, held=(0.09, 0.08, 0.07, 0.11)).stragglers
    assert recorded(**LOADS, held=(0.01, 0.01, 0.21, 0.02)).stragglers


def test_a_device_works_no_longer_than_all_the_time() -> None:
    """Samples of a busy host add up to more; who exceeds it by less does not idle."""
    found = recorded(**SLOW_LOADS, together=(2.04, 0.91, 1.12, 1.35))
    assert not found.stragglers
    assert recorded(**SLOW_LOADS, together=(0.99, 0.91, 0.75, 0.98)).stragglers


def test_a_rank_that_is_certainly_ahead_is_not_slow() -> None:
    """Whatever samples say of its device, and even if it never waits for that."""
    idles = {"together": (0.99, 0.91, 0.75, 0.98)}
    held = {"held": (0.03, 0.04, 0.03, 0.02)}
    assert not recorded(**SLOW_LOADS, **idles, **held, ahead=(0.91,) * 4).stragglers
    assert recorded(**SLOW_LOADS, **idles, ahead=(0.9, 0.9, 0.7, 0.9)).stragglers
    python = (0.2, 0.2, 0.99, 0.2)
    assert not recorded(python=python, ahead=(0.9, 0.9, 0.9, 0.9)).stragglers
    assert recorded(python=python, ahead=(0.9, 0.9, 0.0, 0.9)).stragglers


def test_a_device_that_idles_gives_a_synchronous_rank_away() -> None:
    """It waits for its device as well, but that waited less for others."""
    slow = rows(python=0.6, together=0.4)
    found = slowness(*others(3, python=0.1, together=0.9), runner(3, slow))
    assert only(found).kind is SlowKind.PYTHON


def test_a_device_that_is_seen_without_work_gives_it_away_too() -> None:
    """Also if no execution can be timed; not if it is so for as long as others."""
    python = (0.1, 0.1, 0.6, 0.1)
    ahead = (0.3, 0.3, 0.1, 0.3)
    found = recorded(python=python, ahead=ahead, behind=(0.1, 0.1, 0.3, 0.1))
    assert only(found).kind is SlowKind.PYTHON
    same = recorded(python=python, ahead=ahead, behind=(0.1, 0.1, 0.03, 0.1))
    assert not same.stragglers
    seldom = recorded(python=python, ahead=(0.03,) * 4, behind=(0.0, 0.0, 0.06, 0.0))
    assert not seldom.stragglers


def test_a_device_that_works_alone_is_found_by_its_samples() -> None:
    """All hosts wait alike; its device waits less in what all run together."""
    slow = runner(3, rows(python=0.1, together=0.2, alone=0.7))
    ranks = [*others(3, python=0.1, together=0.6, alone=0.3), slow]
    slow["alone"] = "__main__.validate"
    found = slowness(*ranks)
    one = only(found)
    assert "on its devices, most of all validate, for 0.14 s" in text(verdict(*ranks))
    assert (one.rank.index, one.kind) == (3, SlowKind.COMPUTE)
    assert one.spent == pytest.approx(0.14)
    assert found.lost == pytest.approx(0.08)


def test_ranks_that_were_not_sampled_are_not_compared() -> None:
    """What all run together is unknown of them then, and not nothing."""
    slow = runner(2, rows(python=0.1, together=0.2, alone=0.7))
    sampled = others(1, python=0.1, together=0.6, alone=0.3)
    unknown = runner(1, rows(python=0.1, alone=0.3))
    assert only(slowness(*sampled, unknown, slow)).rank.index == 2
    alone = runner(1, rows(python=0.1, alone=0.9))
    healthy = runner(2, rows(python=0.1, together=0.6, alone=0.3))
    assert slowness(*sampled, alone, healthy).stragglers == ()
    few = [runner(n, rows(python=0.1)) for n in range(2)]
    assert slowness(*few, slow).stragglers == ()


def test_since_when_and_what_was_before_are_known() -> None:
    """Slow for a minute differs from slow from the beginning, and from slow before."""
    fast, slow = rows(40, data_wait=0.5), rows(16, data_wait=0.95)
    one = only(
        slowness(
            *[runner(n, fast + rows(16, data_wait=0.5)) for n in range(3)],
            runner(3, fast + slow),
        )
    )
    assert 45.0 <= one.seconds <= 75.0
    assert not one.always
    assert one.times_past == pytest.approx(1.9, rel=0.1)

    slow, calm = rows(30, data_wait=0.95), rows(64, data_wait=0.5)
    recovered = runner(3, rows(18, data_wait=0.5) + slow + rows(16, data_wait=0.5))
    found = slowness(*[runner(n, calm) for n in range(3)], recovered)
    assert found.stragglers == ()
    [one] = found.former
    assert (one.rank.index, one.kind) == (3, SlowKind.DATA)
    assert 45.0 <= one.ended_seconds <= 75.0
    assert 75.0 <= one.seconds <= 135.0


def test_the_step_is_not_divided_by_what_is_left_of_it() -> None:
    """How long it takes without the wait is unknown; how long others wait is not."""
    found = verdict(*others(1, python=0.01), runner(1, rows(data_wait=0.98)))
    [headline] = [line for line in lines(found, 100) if "slower because" in line]
    assert headline.strip() == (
        "slower because of rank 1: a step takes 0.20 s, for 97 % of which the others "
        "wait"
    )
    assert document(found)["jobs"][0]["slowness"]["verdict"] == headline.strip()
    assert "slower" not in text(verdict(*others(2)))


def test_a_beginning_that_is_no_whole_window_is_known_too() -> None:
    """Slow since soon after the start differs from slow since the start."""
    calm, slow = rows(12, data_wait=0.5), rows(11, data_wait=0.95)
    fast = changed(rows(1, data_wait=0.5), seconds=0.2, data_wait=0.2, waits=0.2)
    for before, always in ((fast, False), (rows(1, data_wait=0.95), True)):
        ranks = [runner(n, fast + calm[1:]) for n in range(3)]
        found = verdict(*ranks, runner(3, before + slow))
        one = only(found.jobs[0].slowness)  # type: ignore[arg-type]
        assert (one.always, one.times_past) == (always, None)
        assert (" s, as long as is known" in text(found)) is always
        assert (" s at least" in text(found)) is not always


def test_of_two_ranks_the_slow_one_is_named() -> None:
    """The other one is not accused for what it waits for."""
    found = slowness(*others(1), runner(1, rows(data_wait=0.95)))
    assert only(found).rank.index == 1


def test_several_slow_ranks_are_all_named() -> None:
    """Half of the ranks may be slow; if all are, none is."""
    slow = [runner(n, rows(data_wait=0.95)) for n in (2, 3)]
    found = slowness(*others(2), *slow)
    assert sorted(one.rank.index or 0 for one in found.stragglers) == [2, 3]
    assert found.lost == pytest.approx(0.09)
    assert "ranks 2-3 (on host-0) wait for data at data.py:3 for up to 0.19 s" in text(
        verdict(*others(2), *slow)
    )
    assert not slowness(*others(4, data_wait=0.95)).stragglers


def test_ranks_are_compared_over_the_same_calls() -> None:
    """One that was read later has made more calls, and is not compared by those."""
    course = rows(34, data_wait=0.5)
    late = course[:30] + rows(4, data_wait=1.0)
    found = slowness(*[runner(n, course[:30]) for n in range(3)], runner(3, late))
    assert found.stragglers == ()


def test_a_wait_in_a_copy_may_be_for_others() -> None:
    """Ranks that wait for another one in `device_put` do not hide it."""
    victims = [runner(n, rows(python=0.1, transfer=0.9)) for n in range(3)]
    found = slowness(*victims, runner(3, rows(python=0.95)))
    one = only(found)
    assert (one.rank.index, one.kind) == (3, SlowKind.PYTHON)


def test_throttled_gpus_are_named_beside_it() -> None:
    """If most are, it is how they are set up."""
    gpus = [{"uuid": f"GPU-{n}", "throttled": ["sw_power_cap"]} for n in range(4)]
    gpus[3]["throttled"] = ["hw_thermal", "sw_power_cap"]
    xids = [{"uuid": "GPU-3", "xid": "63", "age_seconds": 100.0}]
    ranks = [{**one, "gpus": [f"GPU-{n}"]} for n, one in enumerate(others(4))]
    found = slowness(*ranks, gpus=gpus, xids=xids)
    assert not found.stragglers
    [(rank, why)] = found.throttled
    assert (rank.index, why) == (3, ("hw_thermal",))
    said = text(verdict(*ranks, gpus=gpus))
    assert "rank 3: GPUs throttled (hw_thermal), unlike those of most" in said

    ranks[3]["course"] = as_text(rows(data_wait=0.95))
    said = text(verdict(*ranks, gpus=gpus, xids=xids))
    assert "GPUs throttled: hw_thermal; Xid errors within an hour: 63" in said
    assert "unlike those of most" not in said


def test_nothing_is_said_of_ranks_that_are_not_in_step() -> None:
    """Without courses, with one, or with steps of different lengths."""
    [job] = verdict(*[runner(n, []) for n in range(4)]).jobs
    assert job.slowness is None
    [job] = verdict(runner(0), *[runner(n, []) for n in range(1, 4)]).jobs
    assert job.slowness is None
    apart = [rows(data_wait=0.2 * n) for n in range(4)]
    for number, course in enumerate(apart):
        for row in course:
            row[COLUMNS.index("calls")] /= number + 1
    [job] = verdict(*[runner(n, course) for n, course in enumerate(apart)]).jobs
    assert job.slowness is None or not job.slowness.stragglers


def test_hostile_courses_are_ignored() -> None:
    """Whatever an agent reports, there is a verdict on the others."""
    good = rows(data_wait=0.5)
    width = len(COLUMNS)
    bad: list[Any] = [
        None,
        7,
        ["1.0"],
        [[1.0] * width],
        [" ".join(["x"] * width)],
        [" ".join(["nan"] * width)],
        [" ".join(["1e308"] * width)] * 60,
        [" ".join(["-1"] * width)],
        [" ".join(["0"] * width)],
        [" ".join(["9" * 400] * width)],
        as_text(good) * 10,
    ]
    ranks = [runner(n, count=20) for n in range(len(bad))]
    for one, course in zip(ranks, bad, strict=True):
        one["course"] = course
    slow = runner(15, rows(data_wait=0.95), count=20)
    calm = [runner(n, good, count=20) for n in (16, 17, 18)]
    found = verdict(*ranks, slow, *calm)
    assert [one.rank.index for one in found.jobs[0].slowness.stragglers] == [15]  # type: ignore[union-attr]
    json.dumps(document(found), allow_nan=False)


def test_calls_that_no_function_can_have_are_ignored() -> None:
    """Nor does a step have none of them."""
    ranks = [*others(), runner(3, rows(data_wait=0.95))]
    for one in ranks:
        one["functions"] |= {"up": {"calls": 9}, "down": {"calls": -821}}
    assert only(slowness(*ranks)).rank.index == 3


def test_the_document_has_what_the_text_says() -> None:
    """For programs: numbers, not sentences only."""
    found = verdict(*others(), runner(3, rows(data_wait=0.95)))
    [job] = document(found)["jobs"]
    [one] = job["slowness"]["stragglers"]
    assert (one["rank"], one["kind"], one["since_the_start"]) == (3, "data", True)
    assert one["times_its_past"] is None
    assert job["slowness"]["lost_seconds"] == pytest.approx(0.09)
    json.dumps(document(found), allow_nan=False)
