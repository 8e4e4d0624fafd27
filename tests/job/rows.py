"""Courses of ranks, made up: what each second of theirs goes into."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from jaxmon.agent.walltime.time_by_call import CallPauses, DeviceSeconds, TimeByCallRows
from jaxmon.facts.rank import COLUMNS
from tests.job.ranks import report


ROW_SECONDS = 4.0
STEP_SECONDS = 0.2
LOOKS = 10.0


def rows(number: int = 30, /, **fractions: float) -> Any:
    """
    Return so many rows of four seconds, of whose time *fractions* went into a column
    each, and the rest into waits for the device.
    """
    seconds = sum(part for column, part in fractions.items() if column in COLUMNS[4:11])
    values = {"waits": 1.0 - seconds, **fractions}
    row = {name: part * ROW_SECONDS for name, part in values.items()}
    row |= {"calls": ROW_SECONDS / STEP_SECONDS, "seconds": ROW_SECONDS}
    row |= {"looks": LOOKS * ROW_SECONDS}
    if "together" in fractions:
        row["known"] = ROW_SECONDS
    return [[row.get(name, 0.0) for name in COLUMNS] for _ in range(number)]


def changed(course: Any, **columns: float) -> Any:
    """Return *course* with some *columns* multiplied."""
    factors = [columns.get(name, 1.0) for name in COLUMNS]
    return [
        [one * factor for one, factor in zip(row, factors, strict=True)]
        for row in course
    ]


def as_text(course: list[list[float]]) -> list[str]:
    """Return *course* as an agent reports it."""
    return [" ".join(map(str, row)) for row in course]


def runner(
    index: int,
    course: Any = None,
    *,
    line: str = "",
    state: str = "data_wait",
    **options: Any,
) -> dict[str, Any]:
    """Return a rank that gets on, and has done so as *course* says."""
    own = report(index, age=0.4, **options)
    own["course"] = as_text(rows(data_wait=0.5) if course is None else course)
    own["places"] = [
        {"state": state, "place": "data.py:3", "ratio": 0.5},
        *([{"state": state, "place": line, "ratio": 0.2}] if line else []),
    ]
    return own


class Life:
    """
    A rank that loads and waits at each step, and its agent, which looks at it.

    Args:
        index: of the rank.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._chance = random.Random(index)  # noqa: S311 - samples, no secrets
        self._calls = 0
        self._pace = CallPauses(lambda: self._calls)
        self._course = TimeByCallRows(DeviceSeconds(list))
        self._due = 0.0

    def step(self, dispatched: float, end: float) -> None:
        """Load until *dispatched*, and wait for the device until *end*."""
        calls = self._calls
        while (now := self._due) < end:
            self._calls = calls + (now >= dispatched)
            self._course.look("fetch" if now >= dispatched else "data_wait", now, 0.0)
            if self._pace.check(now, compiles=False):
                self._course.mark(self._pace.calls, now, 0.0)
            self._due = now + 1 / LOOKS * self._chance.uniform(0.5, 1.5)
        self._calls = calls + 1

    def report(self, count: int) -> dict[str, Any]:
        """Return the rank of a job with *count* ranks."""
        own = report(self._index, age=0.4, count=count)
        return {**own, "course": list(self._course.describe()), "places": []}


def lives(
    loads: Callable[[int, float], float],
    device: float,
    seconds: float,
    *,
    count: int = 4,
    every: float = 5.0,
) -> Iterator[tuple[float, list[dict[str, Any]]]]:
    """
    Yield the ranks of a job now and then, and when that is.

    Args:
        loads: returns how long a rank loads for a step that begins then.
        device: how long all then compute together.
        seconds: for how long they train.
        count: of ranks.
        every: seconds between two readings, at least.
    """
    ranks = [Life(index) for index in range(count)]
    now = read = 0.0
    while now < seconds:
        loaded = [now + loads(index, now) for index in range(count)]
        end = max(loaded) + device
        for one, dispatched in zip(ranks, loaded, strict=True):
            one.step(dispatched, end)
        now = end
        if now >= read + every:
            read = now
            yield now, [one.report(count) for one in ranks]
