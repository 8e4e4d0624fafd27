"""Findings on processes of one host that compiled the same programs."""

from typing import Any

import pytest

from jaxmon.facts.process import Snapshot, read
from jaxmon.symptoms.cache import is_worth_comparing
from jaxmon.symptoms.findings import find
from jaxmon.symptoms.symptom import Finding
from tests.helpers.findings import HEALTHY


def process(seconds: float = 31.0, **figures: Any) -> Snapshot:
    """Return a process that compiled a program, of which some figures are different."""
    program = {"fingerprint": "abc", "finished": 1000.0, "devices": 1}
    function = {
        "compiles": {"compiled": 1},
        "phases": {"backend_compile": {"seconds": seconds, "count": 1}},
        "program": {**program, **figures.pop("program", {})},
        **figures,
    }
    return read({"functions": {"train.step": function}})


def found(mine: Snapshot, *others: Snapshot) -> list[Finding]:
    """Return the findings on processes that compiled together."""
    return [one for one in find(mine, others) if one.topic == "compiled_together"]


def test_processes_that_compile_together_are_told() -> None:
    """Each of them could load what one has compiled."""
    others = [process(program={"finished": 1000.0 + at}) for at in (-20, 3, 30)]
    (finding,) = found(process(), *others)

    assert finding.verdict == (
        "4 processes of this host compiled train.step, each for 31.0 s at the same "
        "time."
    )
    assert finding.seconds == 31.0
    assert "JAX_COMPILATION_CACHE_DIR" in finding.action


def test_with_a_cache_the_order_is_what_matters() -> None:
    """A shared directory is there already: it was empty when all of them started."""
    mine = read(
        {
            "cache": HEALTHY["cache"],
            "functions": {
                "train.step": {
                    "compiles": {"compiled": 1},
                    "phases": {"backend_compile": {"seconds": 31.0}},
                    "program": {"fingerprint": "abc", "finished": 1000.0},
                }
            },
        }
    )
    (finding,) = found(mine, process())

    assert finding.action == (
        "Start one process before the others: they load what it has compiled from the "
        "persistent cache."
    )


INNOCENT: dict[str, tuple[Snapshot, list[Snapshot]]] = {
    "alone": (process(), []),
    "another program": (process(), [process(program={"fingerprint": "def"})]),
    "one after the other": (process(), [process(program={"finished": 1100.0})]),
    "quickly": (process(1.0), [process(1.0)] * 3),
    "loaded by this one": (process(compiles={"cache_hit": 1}), [process()]),
    "loaded by the others": (process(), [process(compiles={"cache_hit": 1})]),
    "a program of all hosts": (
        process(program={"devices": 8}),
        [process(program={"devices": 8})],
    ),
    "unknown": (
        process(program={"fingerprint": None}),
        [process(program={"fingerprint": None})],
    ),
    "an agent that says nothing": (process(), [read({}), read(None)]),
}


def test_only_what_took_time_is_compared() -> None:
    """Other processes are not queried for a program that was compiled quickly."""
    assert is_worth_comparing(process())
    assert not is_worth_comparing(process(1.0))
    assert not is_worth_comparing(process(compiles={"cache_hit": 1}))


@pytest.mark.parametrize("name", INNOCENT)
def test_other_processes_are_left_alone(name: str) -> None:
    """
    Other programs, other times, programs that were loaded, and those of which each
    process of a distributed run needs its own.
    """
    mine, others = INNOCENT[name]

    assert found(mine, *others) == []
