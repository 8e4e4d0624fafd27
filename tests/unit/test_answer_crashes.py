"""Answers on programs that crashed, or do not respond."""

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.facts.status import (
    HostVerdict,
    ProcessVerdict,
    Reason,
)
from tests.helpers.sidecars import Worker, status


CRASH = "pid 7 (train.py) raised OSError: full, at train.py:6 in save, 9 s ago."


def test_how_a_program_crashed_is_the_first_line() -> None:
    """Of one that marks nothing, for ten minutes; no alert is said to follow."""

    def found(loop: str, seconds: float | None, verdict: str = CRASH) -> list[Reason]:
        died = gauge(catalog.AGENT_DIED, 1, "3", loop)
        process = ProcessVerdict(verdict=verdict, crashed_seconds=seconds)
        whole = status(
            Worker(), extra=[died], verdict=HostVerdict({"3": process})
        ).answer
        assert not whole.reasons or whole.text.endswith(whole.reasons[0].text)
        return [*whole.reasons]

    (unmarked,) = found("", 9.0)
    (trained,) = found("train", 9.0)
    assert unmarked.text == trained.text == CRASH
    assert (unmarked.state, unmarked.kind) == ("degraded", "program_crashed")
    assert (trained.state, trained.kind) == ("failing", "crashed")
    assert found("", 601.0) == found("", None) == []
    assert [one.text for one in found("train", None, "")] == ["worker 3 crashed."]


def test_processes_that_crashed_or_hang_are_reasons() -> None:
    """A slot whose training crashed is one; a server's that is gone is not."""
    died = Family(
        catalog.AGENT_DIED,
        [
            (series(catalog.AGENT_DIED, "3", "train"), 1.0),
            (series(catalog.AGENT_DIED, "4", ""), 1.0),
        ],
    )
    up = Family(catalog.AGENT_UP, [(series(catalog.AGENT_UP, "7"), 0.0)])
    found = status(Worker(), extra=[died, up])
    assert [one.worker for one in found.agents] == ["0", "3", "7"]
    assert [one.text for one in found.answer.reasons] == [
        "worker 3 crashed.",
        "worker 7 does not respond.",
    ]
    assert found.answer.text == "No: worker 3 crashed. And 1 more reason."
