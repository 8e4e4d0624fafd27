"""What requests failed with, and where."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest

import jaxmon
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from tests.helpers.indicators import Recorded


HERE = "tests/unit/test_request_failures.py"


@pytest.fixture
def recorded(recorded: Recorded) -> Recorded:
    """Give the recorder what an agent gives it."""
    recorded.place_of = SourceLineFinder(jax).raised_at
    return recorded


def known(recorded: Recorded) -> list[tuple[str, str, int]]:
    (route,) = recorded.explain_requests()
    return [(one.error, one.where, one.count) for one in route.failures]


def fail(text: str) -> object:
    return json.loads(text)  # this line


def line(of: str) -> int:
    source = Path(__file__).read_text().splitlines()
    return next(n for n, text in enumerate(source, 1) if text.endswith(of))


def test_an_exception_has_its_class_and_the_line_of_the_program(recorded):
    """The line is the program's, not that of the library which raised."""
    for _ in range(3):
        with pytest.raises(ValueError), jaxmon.request("predict"):  # noqa: PT011 - a subclass
            fail("{")

    (one,) = known(recorded)
    assert one == ("JSONDecodeError", f"{HERE}:{line('  # this line')}", 3)
    (route,) = recorded.explain_requests()
    assert route.failures[0].latest > 0


def test_only_the_outcome_error_is_a_failure(recorded):
    """It may be set without an exception, and then nothing more is known."""
    for outcome in ("success", "client_error"):
        with jaxmon.request("predict") as request:
            request.outcome = outcome
    assert known(recorded) == []

    with jaxmon.request("predict") as request:
        request.outcome = "error"
    assert known(recorded) == [("", "", 1)]


def test_an_exception_that_is_handled_is_what_a_request_fails_by(recorded):
    """As a server does that responds with a 500; one handled around it is another's."""
    recorded.message_of = str
    with jaxmon.request("predict") as request:
        try:
            fail("{")
        except ValueError:
            request.outcome = "error"
    (route,) = recorded.explain_requests()
    (failure,) = route.failures
    assert failure.error == "JSONDecodeError"
    assert failure.where == f"{HERE}:{line('  # this line')}"
    assert failure.message.startswith("Expecting property name")
    assert request.error is None

    try:
        fail("[")
    except ValueError:
        with jaxmon.request("other") as request:
            request.outcome = "error"
    _, other = recorded.explain_requests()
    assert [(of.error, of.where) for of in other.failures] == [("", "")]


def test_kinds_are_bounded(recorded):
    """The first twenty kinds are kept, and go on counting; others are not."""
    kinds = [type(f"Error{number}", (Exception,), {}) for number in range(30)]
    for kind in [*kinds, kinds[0]]:
        with pytest.raises(kind), jaxmon.request("predict"):
            raise kind

    found = {error: count for error, _, count in known(recorded)}
    assert len(found) == 20
    assert found["Error0"] == 2
    assert "Error25" not in found


def test_threads_lose_no_failure(recorded):
    """Requests that fail at the same time are all counted."""

    def request(_: int) -> None:
        with pytest.raises(ValueError), jaxmon.request("predict"):  # noqa: PT011 - a subclass
            fail("{")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(request, range(400)))
    assert sum(count for *_, count in known(recorded)) == 400
