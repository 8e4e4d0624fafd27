"""Findings on the source of jitted functions."""

from typing import Any

import pytest

from jaxmon.symptoms.symptom import Finding
from tests.helpers.findings import findings, function


def mistake(kind: str, text: str, line: int = 7) -> dict[str, Any]:
    """Return a mistake of *kind* in the step of a healthy program."""
    place = {"file": "train.py", "line": line, "within": "loss"}
    return {"kind": kind, "text": text, **place, "functions": ["train.step"]}


def found(*mistakes: dict[str, Any], **figures: Any) -> list[Finding]:
    """Return the findings on *mistakes* in a function with these figures."""
    return findings(
        None, tracing={"mistakes": list(mistakes)}, functions=function(**figures)
    )


@pytest.mark.parametrize(
    ("kind", "text", "topic", "verdict", "action"),
    [
        (
            "frozen",
            "numpy.random.normal",
            "frozen_value",
            (
                "numpy.random.normal at train.py:7 runs only while train.step is "
                "traced. Its value is a constant of the program: it was reused "
                "8,998 times."
            ),
            "jax.random",
        ),
        (
            "frozen",
            "time.time",
            "frozen_value",
            (
                "time.time at train.py:7 runs only while train.step is traced. "
                "Its value is a constant of the program: it was reused 8,998 times."
            ),
            "Measure outside",
        ),
        (
            "dropped",
            "x.at[...].set",
            "dropped_update",
            (
                "The result of x.at[...].set at train.py:7 is not used, so nothing is "
                "updated: it returns a new value."
            ),
            "Assign the result",
        ),
        (
            "leaked",
            "losses.append",
            "leaked_tracer",
            (
                "train.py:7 stores a traced value (losses.append), and only while "
                "train.step is traced. It has no value there."
            ),
            "Return it",
        ),
        (
            "printed",
            "print",
            "printed_tracer",
            (
                "print at train.py:7 runs only while train.step is traced, and shows a "
                "tracer, not its value. It did not run on 8,998 later calls."
            ),
            "jax.debug.print",
        ),
    ],
)
def test_each_kind_has_its_words(kind, text, topic, verdict, action):
    """The verdict names line, function and how often it matters."""
    (finding,) = found(mistake(kind, text))

    assert (finding.topic, finding.subject) == (topic, "train.step")
    assert finding.verdict == verdict
    assert action in finding.action
    assert finding.where == "train.py:7"


@pytest.mark.parametrize(
    ("kind", "topics"),
    [
        ("frozen", []),
        ("printed", []),
        ("dropped", ["dropped_update"]),
        ("leaked", ["leaked_tracer"]),
    ],
)
def test_a_function_that_never_ran_again_lost_nothing(kind, topics):
    """
    What runs only while tracing matters once a program is reused; an update without
    effect and a tracer that is kept are wrong at once.
    """
    assert [one.topic for one in found(mistake(kind, "f"), hits=0)] == topics


def test_calls_that_are_not_counted_are_not_quoted() -> None:
    """Without the call layer it is unknown how often a program was reused."""
    (finding,) = found(mistake("frozen", "time.time"), calls=None, hits=None)

    assert finding.verdict.endswith("a constant of the program.")


def test_mistakes_in_one_function_are_one_finding() -> None:
    """The first is the verdict, the others are evidence."""
    lines = [mistake("leaked", "losses.append", line) for line in (7, 8, 9)]
    (finding,) = found(*lines)

    assert finding.evidence == (
        "also losses.append at train.py:8",
        "also losses.append at train.py:9",
    )
