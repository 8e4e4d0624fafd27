"""
Seconds by what the program was doing, and where: since the start, and lately.

Every look at the program is worth the time since the look before. So the entries add up
to the wall time, and what is going on counts while it lasts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from enum import Enum
from typing import NamedTuple

from jaxmon.agent.jaxlink.activity import DATA_WAIT, PYTHON, STARTUP
from jaxmon.agent.jaxlink.call_sites import EAGER
from jaxmon.threads import RLock


BLOCKED = "blocked"
"""Waits for something that is not JAX's: a lock, a file, a socket, a timer."""
MARKED = "marked"
"""Does so in an activity that the program marks, so that it is expected."""

_LATELY = 5
_RECENT = 2
_MINUTE = 60.0
_MOST_PLACES = 200
_IN_PYTHON = frozenset((PYTHON, STARTUP, DATA_WAIT))
# Of a normal distribution: the middle 95 %.
_TWO_SIDED = 1.96


class LookEntry(NamedTuple):
    """
    What a look found.

    Attributes:
        activity: the activity that the program has marked, empty if none.
        place: ``file:line`` of the user's code.
        function: the jitted function that was being called or traced, if known.
        event_loop: whether an event loop waited meanwhile that serves requests.
        caller: the line of the loop that had called that, empty if it is that itself;
            in a function that was being traced, of the outermost loop of Python there;
            of an operation outside of jit, in a function that a loop calls, that call.
        divided: whether it waited for work that is divided: other threads waited there,
            too, for no lock, or other processes worked for it.
        loop: the line of the outermost loop of the program that this was in, if any.
        sleeps: whether it called `time.sleep` there.
        once: whether the program came there only once.
    """

    activity: str
    state: str
    place: str
    function: str
    event_loop: bool = False
    caller: str = ""
    divided: bool = False
    loop: str = ""
    sleeps: bool = False
    once: bool = False


class ThreadState(Enum):
    """How a look found the thread."""

    RUNNING = "running"
    WAITING = "waiting"
    STOPPED = "stopped"
    """It ran Python when the look was due, and waited when it could be looked at."""


class LedgerPeriod:
    """The looks of a period, and its wall time by what was found, and how."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.looks = 0
        self.entries: dict[ThreadState, dict[LookEntry, float]] = {
            how: defaultdict(float) for how in ThreadState
        }

    def add(
        self, entry: LookEntry, how: ThreadState, seconds: float, looks: int = 1
    ) -> None:
        """Add a look that found *entry*, or 0 *looks* for what was measured."""
        entries = self.entries[how]
        if entry not in entries and len(entries) >= _MOST_PLACES:
            entry = entry._replace(place="", function="")
        self.seconds += seconds
        self.looks += looks
        entries[entry] += seconds

    def merge(self, other: LedgerPeriod) -> None:
        """Add the looks of *other*."""
        self.seconds += other.seconds
        self.looks += other.looks
        for how, entries in other.entries.items():
            mine = self.entries[how]
            for entry, seconds in entries.items():
                mine[entry] += seconds

    def corrected(self) -> dict[LookEntry, float]:
        """
        Return seconds by entry.

        A thread that runs Python gives up the interpreter every 5 ms, or where it
        begins to wait. So looks find the ends of long stretches of Python, and all of
        short ones, where they stop. Of these, up to half as much as was found running
        Python belongs to that; the rest is Python whose line is not known exactly.

        Python between two operations outside of jit on one line is a part of these.
        """
        # Of some, all was taken by collections of garbage.
        running, stopped = (
            {entry: seconds for entry, seconds in self.entries[of].items() if seconds}
            for of in (ThreadState.RUNNING, ThreadState.STOPPED)
        )
        found = defaultdict(float, running)
        ran = {entry: s for entry, s in running.items() if entry.state in _IN_PYTHON}
        long, short = sum(ran.values()), sum(stopped.values())
        ends = min(short, long / 2)
        for entry, seconds in ran.items():
            found[entry] += ends * seconds / long
        for entry, seconds in stopped.items():
            ran_before = entry._replace(state=PYTHON, function="")
            found[ran_before] += seconds * (1 - ends / short)
        for entry, seconds in self.entries[ThreadState.WAITING].items():
            found[entry] += seconds
        for entry in [entry for entry in found if entry.state == PYTHON]:
            operations = entry._replace(state=EAGER)
            if found.get(operations, 0.0) > found[entry]:
                found[operations] += found.pop(entry)
        return {entry: seconds for entry, seconds in found.items() if seconds > 0}

    def error(self, share: float) -> float:
        """
        Return the uncertainty of a *share* of the time: half the width of its 95 %
        confidence interval, if the looks were independent (normal approximation of the
        binomial distribution).
        """
        if not self.looks:
            return 1.0
        spread = math.sqrt(max(share * (1 - share), 0.0) / self.looks)
        return min(_TWO_SIDED * spread + 1 / self.looks, 1.0)


class TimeLedger:
    """Keeps the looks since the start, and by minute those of the last minutes."""

    def __init__(self) -> None:
        self._since_start = LedgerPeriod()
        self._minutes: list[LedgerPeriod] = [LedgerPeriod()]
        self._floor: dict[str, float] = {}
        self._lock = RLock()

    def add(
        self, entry: LookEntry, how: ThreadState, seconds: float, looks: int = 1
    ) -> None:
        """Add *looks* that found *entry*, together worth *seconds*."""
        with self._lock:
            self._since_start.add(entry, how, seconds, looks)
            if self._minutes[-1].seconds >= _MINUTE:
                self._minutes = [*self._minutes[-_LATELY:], LedgerPeriod()]
            self._minutes[-1].add(entry, how, seconds, looks)

    def since_start(self) -> LedgerPeriod:
        """Return all looks."""
        return self._copy([self._since_start])

    def lately(self) -> LedgerPeriod:
        """Return the looks of the last five to six minutes."""
        return self._copy(self._minutes)

    def recent(self) -> LedgerPeriod:
        """Return the looks of the last one to two minutes."""
        return self._copy(self._minutes[-_RECENT:])

    def by_state(self) -> dict[str, float]:
        """Return seconds by state since the start; none of them ever decreases."""
        found: defaultdict[str, float] = defaultdict(float)
        for entry, seconds in self.since_start().corrected().items():
            expected = entry.activity and entry.state == BLOCKED
            found[MARKED if expected else entry.state] += seconds
        with self._lock:
            for state, seconds in found.items():
                self._floor[state] = max(seconds, self._floor.get(state, 0.0))
            return dict(self._floor)

    def _copy(self, periods: list[LedgerPeriod]) -> LedgerPeriod:
        whole = LedgerPeriod()
        with self._lock:
            for period in periods:
                whole.merge(period)
        return whole
