"""What is wrong in a jitted function although it runs without an error."""

from __future__ import annotations

from typing import NamedTuple


FROZEN = "frozen"
"""A value of the host, such as the time, became a constant of the program."""

ADVANCED = "advanced"
"""A counter of the program changed while tracing, and became a constant."""

LEAKED = "leaked"
"""A traced value was stored outside of the function."""

PRINTED = "printed"
"""A traced value was printed or logged while tracing, and on no later call."""

DROPPED = "dropped"
"""The result of ``x.at[i].set(v)`` is not used, so nothing is set."""


class Mistake(NamedTuple):
    """
    One mistake.

    Attributes:
        kind: one of the constants of this module.
        file: as the interpreter knows it.
        line: of the call or the assignment.
        text: its source, abridged: ``np.random.normal``, ``losses.append``.
        function: name of the Python function that contains it.
    """

    kind: str
    file: str
    line: int
    text: str
    function: str
