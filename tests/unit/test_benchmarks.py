"""What the benchmarks take from the packages is still there."""

import pytest

from benchmarks import compiles, document, exposition, jobs
from jaxmon.job.model import Verdict
from jaxmon.job.text import lines
from jaxmon.job.verdict import judge


def test_every_observer_that_is_timed_exists() -> None:
    """The stopwatch takes its place and gives it back."""
    with compiles.stopwatch() as spent:
        pass

    assert spent == []


def test_families_have_as_many_samples_as_asked_for() -> None:
    """Or a few more, so that the last histogram is whole."""
    found = exposition.families(100)

    assert 100 <= sum(len(family.samples) for family in found) < 150


@pytest.mark.exhaustive
def test_the_stuck_one_of_4096_ranks_is_found() -> None:
    """One rank does something else; what is printed does not grow with the others."""
    hosts = jobs.read(jobs.responses(stacks=True))
    [job] = judge(hosts).jobs
    assert [one.numbers for one in job.suspects] == [(jobs.STUCK,)]
    assert len(job.waiting.numbers) == 4095
    printed = lines(judge(hosts), 100)
    assert "data.py:41" in " ".join(printed)
    assert len(printed) < 20

    grouped = jobs.grouped(hosts)
    assert grouped[:2] == [f"rank {jobs.STUCK}:", "  data.py:41 in load_batch"]
    assert len(grouped) < 20


def test_the_slow_one_of_many_ranks_is_found() -> None:
    """Its line and how much it costs are printed, and no other rank is accused."""
    hosts = jobs.read(jobs.responses(range(320, 360), slow=True))
    [job] = judge(hosts).jobs
    assert job.slowness is not None
    assert [one.rank.index for one in job.slowness.stragglers] == [jobs.STUCK]
    assert job.slowness.former == ()
    printed = " ".join(" ".join(lines(Verdict((job,)), 100)).split())
    assert f"slower because of rank {jobs.STUCK}: a step takes" in printed
    assert "waits for data at data.py:41" in printed


def test_the_document_has_what_was_measured() -> None:
    """Results are written by the command that measures them, not by hand."""
    results = document.load()
    text = document.DOCUMENT.read_text(encoding="utf-8")

    assert document.rendered(text, results) == text
    assert all({"commit", "date"} <= one["machine"].keys() for one in results.values())
