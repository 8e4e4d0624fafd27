"""
Event log: the latest events of each kind, kept in this process.

Events are for people who inspect one process. They may contain what labels must not:
source lines, argument names and types, static values. They never leave the machine:
only the Unix socket, the exit report and the user's own code read them, unless the
setting ``log_events`` gives them to `logging`.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Literal, get_args

from jaxmon import interrupts
from jaxmon.clocks import wall_time
from jaxmon.tuples import NamedTuple


Kind = Literal[
    "compile",  # a compile that was slow, or that a request waited for
    "recompile",  # a function was recompiled: cause and every difference
    "miss",  # a call left the fast path without a compile
    "error",  # an exception left a jitted call or a wait for the device
    "warning",  # JAX warned: the first of each kind, function and line
    "oom",  # the path of an out-of-memory report
    "cache",  # the persistent cache failed, or is kept from hitting
    "leak",  # live bytes grow steadily, with the lines that hold them
    "slower",  # a program or loop takes longer than before
    "transfer",  # a source line that transfers data between host and device
    "numerics",  # non-finite outputs, promotion to float64
    "determinism",  # outputs that deviated, PRNG key reuse
]
KINDS: tuple[Kind, ...] = get_args(Kind)

logger = logging.getLogger("jaxmon.events")
"""Gets the records of them; the program gives it handlers and a level."""

LIMIT = 200
"""Maximum number of events kept of each kind."""

_TEXT_LIMIT = 2000


class LoggedEvent(NamedTuple):
    """
    An event, the *number*-th of the process, at a Unix *time*, of one of `KINDS`. Its
    *function* is a label, `None` if there is none; *details* are the message as data,
    JSON types only; ids of the span that was current are empty if none was.
    """

    number: int
    time: float
    kind: Kind
    function: str | None
    message: str
    details: Mapping[str, Any] = MappingProxyType({})
    trace_id: str = ""
    span_id: str = ""


class EventLog:
    """
    The latest events, `LIMIT` of each kind, so that no kind displaces another. Within a
    kind, no function displaces another: one with more than an equal share loses its own
    oldest events.

    Thread-safe without a lock: deques are. The `listener`, called with each event where
    it happens, must not block or raise.
    """

    def __init__(self) -> None:
        self.listener: Callable[[LoggedEvent], None] | None = None
        self._numbers = count(1)
        self._kept: dict[Kind, dict[str | None, deque[LoggedEvent]]] = {
            kind: {} for kind in KINDS
        }

    def add(
        self, kind: Kind, function: str | None, message: str, **details: Any
    ) -> None:
        """
        Add an event with the current time; *message* is cut after 2,000 characters,
        *details* are JSON types. Costs about 3 µs, 10 with 200 functions.
        """
        kept = self._kept[kind]
        number = next(self._numbers)
        text = message[:_TEXT_LIMIT]
        event = LoggedEvent(
            number, wall_time(), kind, function, text, details, *_span_ids()
        )
        found = kept.get(function) or kept.setdefault(function, deque())
        found.append(event)
        _make_room(kept, found)
        if (listener := self.listener) is not None:
            listener(event)

    def last(self) -> int:
        """Return the number of the last event, 0 before the first."""
        return max((event.number for event in self.since()), default=0)

    def since(self, number: int = 0, kind: Kind | None = None) -> list[LoggedEvent]:
        """Return the events after *number*, oldest first, of one *kind* if given."""
        kinds = self._kept.values() if kind is None else (self._kept[kind],)
        found = [
            event
            for kept in kinds
            for events in list(kept.values())
            for event in list(events)
        ]
        return sorted(
            (event for event in found if event.number > number),
            key=lambda event: event.number,
        )


def _make_room(
    kept: Mapping[str | None, deque[LoggedEvent]], grown: deque[LoggedEvent]
) -> None:
    """Drop events beyond `LIMIT`: *grown* ones if these exceed their share."""
    every = list(kept.values())
    for _ in range(sum(map(len, every)) - LIMIT):
        most = grown if len(grown) > LIMIT // len(every) else max(every, key=len)
        try:
            most.popleft()
        except IndexError as error:  # another thread was faster
            interrupts.pass_on(error)
            return


def _span_ids() -> tuple[str, str]:
    """Return ids of trace and span, empty if there are none. At most a microsecond."""
    trace = sys.modules.get("opentelemetry.trace")
    # Another thread may be importing it.
    read = getattr(trace, "get_current_span", None)
    context = read and read().get_span_context()
    if not context or not context.is_valid:
        return "", ""
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"
