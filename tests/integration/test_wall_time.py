"""The ledger of time against clocks inside the program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.preloaded import run_preloaded
from tests.support import ROOT


PROGRAM = ROOT / "tests" / "programs" / "wall_time.py"
# Of the wall time. Three standard deviations of 400 looks are as much.
NEAR = 0.08
# More if a machine with other work to do delays looks and programs.
ATTEMPTS = 3

# By kind of program: the states that are compared with its clocks.
CASES: dict[str, tuple[str, ...]] = {
    "slow_data": ("data_wait",),
    "python_data": ("data_wait",),
    "eager": ("eager",),
    "fetching": ("fetch", "python"),
    "compiling": ("compile",),
    "blocked": ("blocked", "fetch"),
    "serving": ("idle", "fetch"),
    "hanging": ("data_wait", "fetch"),
}


def measured(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run_preloaded(str(PROGRAM), kind, "4", optimised=True).ok().out
    )
    return found


@pytest.mark.ground_truth
@pytest.mark.parametrize("kind", CASES)
def test_shares_are_those_of_the_programs_own_clocks(kind):
    """Each share is right, and all of them are the wall time."""
    for attempt in range(ATTEMPTS):
        found = measured(kind)
        far = {
            state: (found["states"].get(state, 0.0), found["truth"][state])
            for state in CASES[kind]
            if abs(found["states"].get(state, 0.0) - found["truth"][state])
            > NEAR + found["delayed"]
        }
        if not far:
            break
        assert attempt < ATTEMPTS - 1, (far, found)
    assert found["closed"] == pytest.approx(1, abs=0.02)
    assert sum(found["states"].values()) == pytest.approx(1, abs=0.02)


def test_marked_activities_keep_their_names():
    """A checkpoint is a checkpoint, whatever it does."""
    for attempt in range(ATTEMPTS):
        found = measured("marked")
        far = abs(found["activities"]["checkpoint"] - found["truth"]["checkpoint"])
        if far <= NEAR + found["delayed"]:
            break
        assert attempt < ATTEMPTS - 1, found


def test_what_goes_on_now_counts_while_it_lasts():
    """A wait that has not ended is in the ledger, with its line and since when."""
    now = measured("hanging")["now"]

    assert now["state"] == "data_wait"
    # The wait may end between the last look and the reading.
    assert max(now["seconds"], now["longest_there"]) > 3
