"""Looking at each call of a function without standing in it."""

import sys
import traceback
from typing import Any

import pytest

from jaxmon.agent.guard import LIMIT, Guard
from jaxmon.agent.jaxlink.listeners import Probe


def original(a: int, b: int = 2) -> list[str]:
    """Return the names on the stack."""
    del a, b
    return [frame.name for frame in traceback.extract_stack()][-2:]


def refuse() -> None:
    raise ValueError


def probe(target: Any, observe: Any, guard: Guard | None = None) -> Probe:
    return Probe(target, observe, guard=guard or Guard(), site="probe")


def test_the_observer_sees_the_caller_and_the_original_its_arguments() -> None:
    """The stack inside the original shows the caller, and nothing between."""
    seen: list[Any] = []
    probed = probe(original, lambda frame, function: seen.append((frame, function)))

    name = "test_the_observer_sees_the_caller_and_the_original_its_arguments"
    assert probed(1, b=3) == [name, "original"]
    assert seen == [(sys._getframe(), original)]
    seen.clear()


def test_the_observer_may_put_something_in_the_place_of_the_original() -> None:
    """What it returns is called instead."""
    assert probe(original, lambda *_: len)("four") == 4


def test_an_error_of_the_original_has_no_frame_of_ours() -> None:
    """The traceback goes from the caller straight into the original."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - no message
        probe(refuse, lambda *_: None)()

    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == [
        "test_an_error_of_the_original_has_no_frame_of_ours",
        "refuse",
    ]


@pytest.mark.contained
def test_a_failing_observer_is_contained_and_then_left_alone() -> None:
    """
    The original is called whatever happens; after `LIMIT` failures it is no longer
    observed.
    """
    guard, calls = Guard(), []

    def observe(*_: object) -> None:
        calls.append(1)
        raise KeyError

    probed = probe(len, observe, guard)
    assert [probed("abc") for _ in range(LIMIT + 5)] == [3] * (LIMIT + 5)
    assert len(calls) == LIMIT


def test_an_inactive_probe_passes_through() -> None:
    """Switched off, it does not look."""
    probed = probe(len, refuse)
    probed.deactivate()

    assert probed("abc") == 3
