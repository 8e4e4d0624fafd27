"""
A long run in short: nothing grows while a program calls, recompiles and allocates.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers import processes
from tools import soak
from tools.soak import Round


@pytest.mark.exhaustive
def test_nothing_grows(run_dir: Path) -> None:
    """Calls, recompiles and arrays leave memory, threads, descriptors as they were."""
    result = processes.run_python(
        str(processes.ROOT / "tools" / "soak.py"),
        "--calls=40000",
        "--recompiles=240",
        "--arrays=8000",
        "--json",
        run_dir=run_dir,
        env=processes.QUICK_COMPILES,
        seconds=200,
    )
    told = result.json()

    assert told["problems"] == []
    assert len(told["rounds"]) == soak.ROUNDS
    assert told["rounds"][-1]["largest_ring"] == 200
    assert "jaxmon" not in result.err


def rounds(**growing: int) -> list[Round]:
    """
    Return rounds in which nothing grows but what *growing* names, by so much each.
    """
    still = {
        "calls": 1,
        "recompiles": 1,
        "arrays": 1,
        "resident": 1 << 28,
        "threads": 9,
        "descriptors": 12,
        "events": 200,
        "largest_ring": 200,
        "page": 20_000,
    }
    return [
        Round(
            **{
                name: value + growing.get(name, 0) * at for name, value in still.items()
            },
            seconds=1.0,
            cpu=1.0,
        )
        for at in range(soak.ROUNDS)
    ]


@pytest.mark.parametrize(
    ("growing", "problem"),
    [
        ({"resident": 1 << 19}, "grew by 0.19% a round"),
        ({"threads": 1}, "threads grew from 14 to 28"),
        ({"descriptors": 1}, "descriptors grew from 17 to 31"),
        ({"largest_ring": 1}, "219 events of one kind"),
    ],
)
def test_what_grows_is_a_problem(growing: dict[str, int], problem: str) -> None:
    """Growth of each kind is seen, and said."""
    assert soak.problems(rounds()) == []
    (found,) = soak.problems(rounds(**growing))

    assert problem in found


def test_a_step_is_no_slope() -> None:
    """Megabytes that an allocator takes at once are no problem; a tenth of all is."""
    before, after = rounds()[:10], rounds(resident=0)[10:]
    step = [replace(one, resident=one.resident + (8 << 20)) for one in after]
    cliff = [replace(one, resident=one.resident + (40 << 20)) for one in after]

    assert soak.problems([*before, *step]) == []
    (found,) = soak.problems([*before, *cliff])
    assert "resident memory grew by 15.6%" in found
