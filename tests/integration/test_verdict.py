"""Programs with a mistake get the finding on it first, others none at all."""

from __future__ import annotations

import pytest

from tests.verdicts import HEALTHY, MISTAKES, Verdict, run


# The other topics have tests of their own; ``python -m tests.verdicts`` runs them all.
SOME = (
    *("forgotten_jit", "shared_lock", "numpy_arguments", "bookkeeping", "elements"),
    *(name for name, one in MISTAKES.items() if one.seconds <= 5),
)
SOME_HEALTHY = HEALTHY[::2]


@pytest.mark.parametrize("name", SOME)
def test_a_mistake_is_found_first(name: str) -> None:
    """The mistake is the first finding, with its line, and the first in the report."""
    found = run(name)

    assert found.rank(name) == 1, found.findings
    assert said(found)


@pytest.mark.parametrize("name", SOME_HEALTHY)
def test_nobody_is_accused(name: str) -> None:
    """A program without a mistake is told what its time goes into, if anything."""
    assert run(name).findings == []


def said(found: Verdict) -> bool:
    """Return whether the report at the exit begins its findings with the first."""
    report = " ".join(found.report.split())
    return " ".join(found.findings[0]["verdict"].split()) in report
