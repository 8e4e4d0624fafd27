"""Drills on a terminal that has room for them, and on one that has not."""

import os
import time
from pathlib import Path

from jaxmon.cli.gameday.command import drawn
from jaxmon.cli.gameday.scene import plain
from jaxmon_alerts.gameday.children import Children
from jaxmon_alerts.gameday.drill import Drill, DrillPhase, DrillResult, Patience
from jaxmon_alerts.gameday.scenarios import SCENARIOS
from jaxmon_alerts.gameday.workload import Workload


def drills(directory: Path) -> list[Drill]:
    """Return a drill of each scenario, of which nothing runs."""
    children = Children(os.environ, directory)
    return [
        Drill(
            one, Workload(one, children, directory / one.name, scale=60), Patience(60)
        )
        for one in SCENARIOS
    ]


def lines_of(every: list[Drill], *, height: int) -> list[str]:
    """Return the lines that a screen of that *height* shows."""
    return plain(drawn(every, (80, height), began=time.monotonic()))


def test_each_drill_has_a_line(tmp_path: Path) -> None:
    """A mark says how it went; the last line, how many are done."""
    every = drills(tmp_path)
    every[0].phase, every[0].result = (
        DrillPhase.DONE,
        DrillResult(outcome="passed", severity="page", detected=4.0, resolved=6.0),
    )
    every[1].phase, every[1].result = (
        DrillPhase.DONE,
        DrillResult(outcome="missed", reason="it did not fire"),
    )
    lines = lines_of(every, height=len(every) + 2)

    assert len(lines) == len(every) + 1
    assert lines[0].startswith(f"  ✓ {every[0].scenario.name} ")
    assert lines[0].endswith("after 4 s, resolved after 6 s")
    assert lines[1].startswith(f"  ✗ {every[1].scenario.name} ")
    assert lines[1].endswith("MISSED: it did not fire")
    assert lines[2].endswith("waits for its turn")
    assert f"2 of {len(every)} done" in lines[-1]


def test_a_small_terminal_shows_what_runs(tmp_path: Path) -> None:
    """What has left a terminal cannot be redrawn, so there is never more than fits."""
    every = drills(tmp_path)
    every[0].phase = DrillPhase.DONE
    for one in every[1:4]:
        one.phase = DrillPhase.BROKEN
    lines = lines_of(every, height=10)

    assert [line.split()[0] for line in lines[:-1]] == [
        one.scenario.name for one in every[1:4]
    ]
    assert len(lines_of(every, height=4)) == 3
