"""Advice on what happens when programs run, in exact words."""

from __future__ import annotations

import jax.errors
import pytest

from jaxmon import catalog
from jaxmon.symptoms.errors import ERROR_TYPES, ERRORS, WARNINGS
from tests.reports import GIB, findings, function
from tests.running_cases import CASES, requests


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_is_told_in_these_words(case):
    """One mistake makes one finding: verdict, evidence, what to do."""
    parts, events, finding, evidence, action = CASES[case]
    (found,) = findings(events, **parts)

    assert (found.verdict, found.evidence, found.action) == (finding, evidence, action)


@pytest.mark.parametrize(
    "parts",
    [
        {"memory": {"devices": [{"device": 0, "in_use": 79 * GIB}]}},
        {
            "transfers": {
                "lines": [{"direction": "device_to_host", "count": 99, "seconds": 99.0}]
            }
        },
        {
            "transfers": {
                "lines": [{"direction": "sync", "count": 9000, "seconds": 500.0}]
            }
        },
        {"warnings": [{"kind": "deprecated", "text": "Use that.", "count": 9}]},
        {"requests": requests(success=10_000, error=30)},
        {"requests": requests(success=3, error=4)},
        {"requests": requests(success=3, client_error=900)},
    ],
)
def test_what_is_below_the_limits_is_not_worth_a_word(parts):
    """A finding that everyone gets is ignored."""
    assert findings(**parts) == []


def test_advice_fits_the_commonest_error():
    """
    The last error of that kind is quoted, with its place; if its type determines the
    advice, that is given, and the type of another kind is not listened to.
    """

    def error(kind: str, exception: str, where: str | None) -> dict[str, object]:
        return {
            "kind": "error",
            "function": "train.step",
            "message": f"{exception}: something. And so on",
            "time": 1000.0,
            "details": {"error_kind": kind, "type": exception, "where": where},
        }

    events = [
        error("trace_error", "ValueError", "train.py:7"),
        error("trace_error", "TracerBoolConversionError", "train.py:8\x1b[2J"),
        error("nan", "FloatingPointError", "train.py:9"),
    ]
    failed = function(errors={"trace_error": 2, "nan": 1})
    (concrete,), (plain,) = (
        findings(events, functions=failed),
        findings(events[:1], functions=failed),
    )

    assert concrete.evidence == (
        "just now, at train.py:8\\x1b[2J: TracerBoolConversionError: something",
    )
    assert concrete.action == ERROR_TYPES["TracerBoolConversionError"]
    assert plain.evidence == ("just now, at train.py:7: ValueError: something",)
    assert plain.action == ERRORS["trace_error"]
    (single,) = findings(functions=function(errors={"nan": 3}))
    assert single.verdict == "train.step failed 3 times: nan."


def test_words_are_for_errors_that_exist():
    """Kinds of errors are spelled as in the catalogue, types as in JAX."""
    assert {*ERRORS} <= {*catalog.ERROR_KINDS}
    assert {*ERROR_TYPES} <= {*dir(jax.errors)}
    assert {*WARNINGS} <= {*catalog.WARNING_KINDS}
