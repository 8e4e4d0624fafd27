"""
What happened, in words: the last events of each kind, kept in this process.

Events are for people who look into one process. They may hold what a label must not:
source lines, argument names and types, static values. They never leave the machine:
only the Unix socket, the exit report and the user's own code read them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, get_args


Kind = Literal[
    "compile",  # a program was built or loaded
    "recompile",  # a call compiled a function again: cause and every difference
    "miss",  # a call left the fast path although nothing had to be compiled
    "error",  # an exception left a jitted call or a wait for the device
    "oom",  # where the report of an out-of-memory error is
    "cache",  # the persistent cache failed, or cannot hit
    "leak",  # live bytes keep growing, and the lines that hold them
    "transfer",  # a source line that moves data between host and device
    "numerics",  # non-finite outputs, promotion to float64
    "determinism",  # outputs that deviated, keys used twice
]
KINDS: tuple[Kind, ...] = get_args(Kind)

LIMIT = 200
"""Events that are kept of each kind."""

_TEXT_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Event:
    """
    Args:
        number: counts all events of the process from 1.
        time: Unix timestamp.
        kind: one of `KINDS`.
        function: label of the function concerned, `None` if there is none.
        message: one sentence, or several lines.
        details: the same as data; JSON types only.
    """

    number: int
    time: float
    kind: Kind
    function: str | None
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


class EventLog:
    """
    The last `LIMIT` events of each kind, so that one kind cannot push out another.

    Any thread may add or read, without a lock: an addition is one append.
    """

    def __init__(self) -> None:
        self._numbers = count(1)
        self._rings = {kind: deque[Event](maxlen=LIMIT) for kind in KINDS}

    def add(
        self, kind: Kind, function: str | None, message: str, **details: Any
    ) -> None:
        """
        Add an event that happens now. Costs about 2 µs.

        Args:
            kind: one of `KINDS`.
            function: label of the function concerned, if one is.
            message: cut after 2,000 characters.
            details: JSON types only.
        """
        ring = self._rings[kind]
        number = next(self._numbers)
        message = message[:_TEXT_LIMIT]
        ring.append(Event(number, time.time(), kind, function, message, details))

    def last(self) -> int:
        """
        Return the number of the last event, 0 before the first.
        """
        rings = [ring for ring in self._rings.values() if ring]
        return max((ring[-1].number for ring in rings), default=0)

    def since(self, number: int = 0, kind: Kind | None = None) -> list[Event]:
        """
        Return the events after *number*, oldest first, of one *kind* if given.
        """
        rings = self._rings.values() if kind is None else (self._rings[kind],)
        found = [event for ring in rings for event in list(ring)]
        return sorted(
            (event for event in found if event.number > number),
            key=lambda event: event.number,
        )
