"""Courses of ranks, made up: what each second of theirs goes into."""

from __future__ import annotations

from typing import Any

from jaxmon.report.job.columns import COLUMNS
from tests.ranks import report


ROW_SECONDS = 4.0
STEP_SECONDS = 0.2
LOOKS = 10.0


def rows(number: int = 30, /, **fractions: float) -> Any:
    """
    Return so many rows of four seconds, of whose time *fractions* went into a column
    each, and the rest into waits for the device.
    """
    seconds = sum(part for column, part in fractions.items() if column in COLUMNS[4:11])
    values = {
        "waits": 1.0 - seconds,
        **fractions,
    }
    row = {name: part * ROW_SECONDS for name, part in values.items()}
    row |= {"calls": ROW_SECONDS / STEP_SECONDS, "seconds": ROW_SECONDS}
    row |= {"looks": LOOKS * ROW_SECONDS}
    if "together" in fractions:
        row["known"] = ROW_SECONDS
    return [[row.get(name, 0.0) for name in COLUMNS] for _ in range(number)]


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
