"""In which call ranks wait, and on which line."""

from typing import Any

import pytest

from jaxmon.facts.host import host
from jaxmon.facts.rank import Rank
from jaxmon.job.waiting import elsewhere, is_local, waiting_of
from tests.job.ranks import STEP, report


EVAL = "__main__.evaluate"


def ranks(*documents: dict[str, Any]) -> list[Rank]:
    """Return what these say, as ranks."""
    return list(host("a", {"ranks": list(documents)}).ranks)


def calling(index: int, steps: int, evals: int, **options: Any) -> dict[str, Any]:
    """Return a rank that has called two functions so often."""
    found = report(index, calls=steps, **options)
    found["functions"][EVAL] = {"calls": evals, "devices": 8}
    return found


def test_they_wait_in_the_function_that_they_have_called() -> None:
    """It need not be the one that is called most, or of which calls differ."""
    some = [calling(n, 812 + n, 3, state="device", function=EVAL) for n in range(4)]
    found = waiting_of(ranks(*some))
    assert (found.function, found.call) == (EVAL, 3)


def test_a_function_that_is_not_known_to_be_shared_says_nothing() -> None:
    """Ranks that report no functions may wait in one of their own."""
    unknown = [
        report(n, calls=None, state="device", function="__main__.own") for n in range(3)
    ]
    found = waiting_of(ranks(*unknown, report(3, state="device", function=STEP)))
    assert (found.function, found.call) == (STEP, 812)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        # Some have made more calls of this one.
        ([(812, 3), (812, 4), (812, 4)], EVAL),
        ([(811, 4), (812, 4), (812, 4)], STEP),
        # They have made the same.
        ([(812, 4), (812, 4), (812, 4)], STEP),
        ([(4, 812), (4, 812), (4, 812)], EVAL),
    ],
)
def test_those_that_read_results_wait_for_what_differs(calls, expected):
    """Or for what they have called most: which one it is, no stack shows."""
    some = [calling(n, *made, state="fetch") for n, made in enumerate(calls)]
    assert waiting_of(ranks(*some)).function == expected


def test_most_decide_whether_they_read_results() -> None:
    """The others wait on the same line, in the call itself."""
    for fetching in range(5):
        some = [
            report(n, state="fetch" if n < fetching else "device", function=STEP)
            for n in range(4)
        ]
        assert waiting_of(ranks(*some)).fetches is (fetching > 2)


def test_of_two_lines_the_later_one_is_where_they_meet() -> None:
    """As many have come to each of them; the others have yet to come there."""
    early = [report(n, calls=810 + n, state="device", place="a.py:1") for n in (0, 1)]
    late = [
        report(n, calls=808 + 2 * n, state="device", place="b.py:2") for n in (2, 3)
    ]
    for some in ([*early, *late], [*late, *early]):
        found = waiting_of(ranks(*some))
        assert (found.place, found.numbers) == ("b.py:2", (0, 1, 2, 3))
        assert [one.index for one in elsewhere(ranks(*some), found)] == [
            one["index"] for one in some if one in early
        ]


def test_who_is_on_no_known_line_is_not_elsewhere() -> None:
    """Its stack may not have been read yet."""
    some = ranks(
        *[report(n, state="device") for n in range(3)],
        report(3, state="device", place=""),
    )
    found = waiting_of(some)
    assert found.numbers == (0, 1, 2, 3)
    assert elsewhere(some, found) == []


def test_a_function_is_local_if_it_is_none_of_those_that_are_shared() -> None:
    """Which ones are shared must be known."""
    shared, own, unknown = ranks(
        report(0, function=STEP),
        report(1, function="__main__.own"),
        report(2, calls=None, function="__main__.own"),
    )
    assert [is_local(one) for one in (shared, own, unknown)] == [False, True, False]
