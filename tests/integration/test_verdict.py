"""Programs with a mistake get the finding on it first, others none at all."""

from __future__ import annotations

import re

import pytest

from tests.helpers.processes import some
from tests.verdicts import HEALTHY, MISTAKES, RUNS, Verdict, run


# The other topics have tests of their own; ``python -m tests.verdicts`` runs them all.
SOME = (
    *("forgotten_jit", "shared_lock", "slow_files"),
    *(name for name, one in MISTAKES.items() if one.seconds <= 5),
)
# What they are told is checked without a program, too, or is told as of a lock.
ALIKE = {
    *("leaked_value", "diverges", "frozen_noise", "logs_nan", "frozen_time"),
    *("donated_in_vain", "dropped_update", "forgotten_jit", "slow_files"),
    *("becomes_nan", "printed_value"),
}
SOME_HEALTHY = (
    "training",
    pytest.param("several_models", marks=pytest.mark.exhaustive),
    "idle_server",
)


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=[pytest.mark.exhaustive] if name in ALIKE else [])
            for name in SOME
        ),
        *some([name for name in RUNS if name in MISTAKES], 9),
    ],
)
def test_a_mistake_is_found_first(name: str) -> None:
    """
    The mistake is the first finding, with its line, and the first in the report; the
    last attempt of a run is judged by what all of them did.
    """
    found = run(name)

    assert found.rank(name) == 1, found.findings
    assert said(found)


@pytest.mark.parametrize("name", SOME_HEALTHY)
def test_nobody_is_accused(name: str) -> None:
    """A program without a mistake is told what its time goes into, if anything."""
    assert run(name).findings == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in RUNS if name in HEALTHY])
def test_a_run_that_restarts_well_is_not_accused(name: str) -> None:
    """Nor is one that numbers the steps of each epoch."""
    assert run(name).findings == []


def said(found: Verdict) -> bool:
    """Return whether the report at the exit has it; figures change until then."""
    report = " ".join(found.report.split())
    verdict = re.split(r"\d", found.findings[0]["verdict"])[0]
    return verdict in report
