"""The rows, how one is run, and the table of all."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.stage import Outcome, Stage


Play = Callable[[Stage], None]


@dataclass(frozen=True)
class Row:
    """
    One thing that breaks.

    Args:
        area: what it belongs to.
        broken: what breaks.
        play: breaks it, and compares the page with what it should say.
        quick: it belongs to the selection that every test run makes.
    """

    area: str
    broken: str
    play: Play
    quick: bool = False

    @property
    def name(self) -> str:
        return f"{self.area}: {self.broken}"


class Area:
    """Collects the rows of one area."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Row] = []

    def row(self, broken: str, *, quick: bool = False) -> Callable[[Play], Play]:
        """Register the decorated function as a row."""

        def register(play: Play) -> Play:
            self.add(broken, play, quick=quick)
            return play

        return register

    def add(self, broken: str, play: Play, *, quick: bool = False) -> None:
        self.rows.append(Row(self.name, broken, play, quick))


def run(row: Row, library: Path | None = None) -> Outcome:
    """Play one row. What goes wrong in it is its outcome."""
    failed = skipped = ""
    stage = Stage(library)
    try:
        with stage:
            row.play(stage)
    except pytest.skip.Exception as error:
        skipped = str(error.msg)
    except Exception as error:  # noqa: BLE001 - the table goes on
        failed = f"{type(error).__name__}: {error}"
    return Outcome(
        "; ".join(stage.said), stage.recovery, stage.slowest(), failed, skipped
    )


def run_all(
    rows: Sequence[Row],
    library: Path,
    *,
    jobs: int,
    done: Callable[[Row, Outcome], None],
) -> list[Outcome]:
    """Play *rows*, several at a time, and return their outcomes in order."""

    def play(row: Row) -> Outcome:
        outcome = run(row, library)
        done(row, outcome)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(play, rows))


def table(rows: Iterable[Row], outcomes: Iterable[Outcome]) -> str:
    """Return the matrix as Markdown."""
    lines = [
        "| fault | expected output | recovery | slowest scrape |",
        "|---|---|---:|---:|",
    ]
    for row, one in zip(rows, outcomes, strict=True):
        said = one.said
        if one.failed:
            said = f"**FAILED** {one.failed} (after: {one.said or 'nothing'})"
        elif one.skipped:
            said = f"not tried: {one.skipped}"
        again = "" if one.recovery is None else f"{one.recovery:.1f} s"
        slowest = f"{one.slowest * 1e3:.0f} ms" if one.slowest else ""
        cells = (row.name, said, again, slowest)
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)
