"""What the benchmarks take from the packages is still there."""

from __future__ import annotations

from benchmarks import compiles, exposition


def test_every_observer_that_is_timed_exists() -> None:
    """The stopwatch takes its place and gives it back."""
    with compiles.stopwatch() as spent:
        pass

    assert spent == []


def test_families_have_as_many_samples_as_asked_for() -> None:
    """Or a few more, so that the last histogram is whole."""
    found = exposition.families(100)

    assert 100 <= sum(len(family.samples) for family in found) < 150
