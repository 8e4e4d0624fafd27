"""Our named tuples behave as those of `typing`."""

import copy
import pickle
import typing
from collections.abc import Callable
from typing import Any

import pytest

from jaxmon import tuples


class Ours(tuples.NamedTuple):
    """Two fields."""

    left: int
    right: str = "r"

    def whole(self) -> str:
        """Return both."""
        return f"{self.left}{self.right}"


class Theirs(typing.NamedTuple):
    """Two fields."""

    left: int
    right: str = "r"

    def whole(self) -> str:
        """Return both."""
        return f"{self.left}{self.right}"


def copied(kind: Any) -> object:
    """Return an instance that was pickled."""
    return pickle.loads(pickle.dumps(kind(1)))  # noqa: S301 - our own


def matched(kind: Any) -> object:
    """Return what a pattern finds in an instance."""
    match kind(1):
        case kind(left, right):
            return left, right
    return None


@pytest.mark.parametrize(
    "do",
    [
        lambda kind: repr(kind(1)).removeprefix(kind.__name__),
        lambda kind: (kind(1), kind(left=2, right="x"), kind(3, "y")),
        lambda kind: (kind(1) == (1, "r"), hash(kind(1)), len(kind(1)), [*kind(1)]),
        lambda kind: (kind(1).right, kind(1).whole(), kind(1)._asdict()),
        lambda kind: kind(1)._replace(right="z"),
        lambda kind: (kind._fields, kind.__doc__, [*kind.__annotations__]),
        lambda kind: (copied(kind) == copy.copy(kind(1)), type(copied(kind)) is kind),
        lambda kind: (matched(kind), vars(kind)["__slots__"]),
        lambda kind: (kind.__module__, kind.__qualname__ == kind.__name__),
        lambda kind: kind(),
        lambda kind: kind(1, "a", 2),
        lambda kind: kind(1, other=2),
        lambda kind: setattr(kind(1), "left", 2),
        lambda kind: setattr(kind(1), "other", 2),
    ],
)
def test_a_named_tuple_is_as_that_of_typing(do: Callable[[Any], object]) -> None:
    """Results are the same, and so are the kinds of errors."""

    def outcome(kind: type) -> object:
        try:
            return do(kind)
        except (AttributeError, TypeError) as error:
            return type(error)

    assert outcome(Ours) == outcome(Theirs)
