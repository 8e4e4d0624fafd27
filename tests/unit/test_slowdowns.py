"""What is slower than before in one run, and what only looks like it."""

import random
from collections.abc import Iterable, Iterator
from itertools import chain, cycle, islice, repeat
from typing import Any

import pytest

from jaxmon.agent.history.times import ENOUGH, RecentTimes
from jaxmon.facts.functions import Spread, spread_of
from jaxmon.limits import Limits
from tests.helpers.findings import findings


LONG = 10 * ENOUGH
MARGIN = Limits().slower


def slow_at(seconds: Iterable[float]) -> tuple[RecentTimes, list[int]]:
    """Add *seconds*, one a second; return the times, and when they were slow."""
    times, found = RecentTimes(0.0), []
    for now, one in enumerate(seconds):
        times.add(float(now), one)
        if times.judge(MARGIN) is not None:
            found.append(now)
    return times, found


def noisy(middle: float, seed: int = 1) -> Iterator[float]:
    """Yield times of a program on a shared machine: some take much longer."""
    chance = random.Random(seed)  # noqa: S311 - noise, the same each time
    while True:
        yield middle * chance.lognormvariate(0, 0.15) * chance.choice([1] * 19 + [4])


QUIET = {
    "steady": repeat(0.01),
    "noisy": noisy(0.01),
    "bimodal": cycle([0.01, 0.03]),
    "bimodal_with_long_modes": cycle([0.01] * 8 + [0.03] * 8),
    "mode_seen_before": chain(islice(cycle([0.01, 0.03]), LONG), repeat(0.03)),
    "warming_up": chain([1.0, 0.5, 0.2], repeat(0.01)),
    "cooling_down": (0.02 - min(number, 50) * 2e-4 for number in range(LONG)),
    "a_few_slow_ones": chain(repeat(0.01, LONG), repeat(0.1, 5), repeat(0.01)),
    "a_fifth_slower": chain(repeat(0.01, LONG), repeat(0.012)),
    "microseconds": chain(repeat(1e-6, LONG), repeat(1e-5)),
    "faster": chain(repeat(0.03, LONG), repeat(0.01)),
}


@pytest.mark.parametrize("name", QUIET)
def test_programs_without_a_fault_are_not_accused(name: str) -> None:
    """Noise, modes, warm-up, a few slow calls and small changes are no slowdown."""
    assert slow_at(islice(QUIET[name], 3 * LONG))[1] == []


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_not_accused_whatever_it_is(seed: int) -> None:
    """However the noise falls, it is none."""
    assert slow_at(islice(noisy(0.01, seed), 5 * LONG))[1] == []


@pytest.mark.parametrize("factor", [1.5, 3, 20])
def test_slower_program_is_found_with_its_beginning(factor: float) -> None:
    """After the change, as soon as most recent times are slow; since the first one."""
    times, found = slow_at(
        chain(repeat(0.01, LONG), repeat(0.01 * factor, LONG)),
    )
    assert LONG < found[0] <= LONG + ENOUGH
    assert found == list(range(found[0], 2 * LONG))
    assert times.slowdown is not None
    assert times.slowdown.recent.over(times.slowdown.settled) == pytest.approx(factor)
    assert LONG <= times.slowdown.since <= found[0]


def test_slower_noise_is_found() -> None:
    """Twice as slow, with the same noise."""
    assert slow_at(chain(islice(noisy(0.01), LONG), islice(noisy(0.025), LONG)))[1]


def test_usual_is_what_was_fastest() -> None:
    """A program that starts slowly, becomes fast and slow again is slower than that."""
    times, found = slow_at(
        chain(repeat(0.05, LONG), repeat(0.01, LONG), repeat(0.05, LONG))
    )
    assert found
    assert found[0] >= 2 * LONG
    assert times.slowdown is not None
    assert times.slowdown.recent.over(times.slowdown.settled) == pytest.approx(5)


def test_slowdown_ends_with_its_cause() -> None:
    """Once it is as fast as before, it is not slower."""
    _, found = slow_at(
        chain(repeat(0.01, LONG), repeat(0.03, LONG), repeat(0.01, LONG))
    )
    assert 2 * LONG <= found[-1] <= 2 * LONG + ENOUGH


def test_creeping_slowdown_is_found() -> None:
    """One per cent a minute is found, though no two minutes differ."""
    assert slow_at(0.01 * (1 + number / 500) for number in range(LONG * 5))[1]


SLOW = {
    "what": "function",
    "name": "train.step",
    "shapes": "float32[8]",
    "against": "earlier",
    "settled_seconds": 0.01,
    "recent_seconds": 0.024,
    "since": 880.0,
    "calls": 1000,
    "beside": ["train.evaluate began to run"],
}
PAST: dict[str, Any] = {"against": "past_run", "beside": []}
SINCE = "2.4 times as long as before, since 2 min ago: 10 ms → 24 ms"
THAN_THEN = "2.4 times as long as in the run that ended 2 min ago: 10 ms → 24 ms"
NOTHING = "nothing that jaxmon records"


@pytest.mark.parametrize(
    ("changes", "verdict", "evidence", "action"),
    [
        (
            {},
            f"train.step takes {SINCE}.",
            ("train.evaluate began to run", "for the same arguments: float32[8]"),
            "Look at what changed when it began.",
        ),
        (
            {"what": "loop", "name": "main", "shapes": ""},
            f"A step of loop main takes {SINCE}.",
            ("train.evaluate began to run",),
            "Look at what changed when it began.",
        ),
        (
            {"crowded": True, "beside": ["threads here wait"]},
            f"train.step takes {SINCE}; other processes hold the processors.",
            ("threads here wait", "for the same arguments: float32[8]"),
            "Other processes took the processors",
        ),
        (
            {**PAST, "changed": ["jax: 1 → 2", "its HLO"]},
            f"train.step takes {THAN_THEN}.",
            ("changed: jax: 1 → 2; its HLO, for the same arguments (float32[8])",),
            "Undo one of the changes at a time",
        ),
        (
            PAST,
            f"train.step takes {THAN_THEN}.",
            (f"changed: {NOTHING}, for the same arguments (float32[8])",),
            "Undo one of the changes at a time",
        ),
    ],
    ids=["function", "loop", "crowded", "past_run", "nothing_changed"],
)
def test_findings_say_what_is_slower_and_what_changed(
    changes, verdict, evidence, action
):
    """What it took and takes, since when, beside what, and what it costs."""
    (found,) = findings(slower=[{**SLOW, **changes}])
    assert (found.verdict, found.evidence) == (verdict, evidence)
    assert found.action.startswith(action)
    assert found.seconds == pytest.approx(14.0)


def test_what_is_not_slower_is_no_finding() -> None:
    """A healthy program has none, and neither has nonsense from another process."""
    assert findings() == []
    assert findings(slower=[{**SLOW, "recent_seconds": 0.01}, {}]) == []


def test_quantiles_are_of_the_values() -> None:
    """They are values that occurred, in order."""
    assert spread_of([3.0]) == Spread(1, 3.0, 3.0, 3.0)
    assert spread_of(range(101)) == Spread(101, 25, 50, 90)
    assert spread_of([]) is None
