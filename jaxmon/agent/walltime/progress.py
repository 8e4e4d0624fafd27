"""Whether a program gets on: how long it has been doing the same thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxmon.agent.walltime.ledger import Entry
from jaxmon.facts.walltime import Now


# A thread that has used less has not woken up: even a timer costs more.
_ASLEEP = 2e-5
_CHECKED_SECONDS = 1.0
_MOST_PLACES = 1_000


class Current(NamedTuple):
    """
    What the program is doing.

    Attributes:
        entry: what and where.
        thread: the thread that does it.
        since: when it began to do so, by the performance counter.
    """

    entry: Entry
    thread: int
    since: float


class Progress:
    """
    Follows how long the program does the same thing without a pause.

    The same line may be found at every look although the program gets on, so it counts
    as the same only if the thread has not woken up, or no jitted function was called.

    Args:
        calls: returns the number of calls of jitted functions so far; called at most
            once a second.

    Attributes:
        current: what the program is doing.
        changes: how often it began to do something else.
    """

    def __init__(self, calls: Callable[[], int]) -> None:
        self._calls = calls
        self._called = 0
        self._checked = 0.0
        self._longest: dict[str, float] = {}
        self.current: Current | None = None
        self.changes = 0

    def seen(self, entry: Entry, thread: int, now: float, *, cpu: float) -> None:
        """
        Record that a look at *now* found *entry*, the thread having used *cpu* seconds
        since the look before.
        """
        current = self.current
        if current is None:
            self.current = Current(entry, thread, now)
            return
        same = (current.entry, current.thread) == (entry, thread)
        if same and (cpu < _ASLEEP or not self._gets_on(now)):
            return
        took = max(now - current.since, 0.0)
        for key in (current.entry.state, current.entry.place):
            if took > self._longest.get(key, 0.0):
                if len(self._longest) >= _MOST_PLACES:
                    self._longest.clear()
                self._longest[key] = took
        self.changes += 1
        self.current = Current(entry, thread, now)

    def describe(self, now: float) -> Now:
        """
        Return what the program is doing at *now*, since how many seconds, and the
        longest time that it has been doing such a thing, and on that line, before.
        """
        current = self.current
        if current is None:
            return Now()
        return Now(
            **current.entry._asdict(),
            seconds=max(now - current.since, 0.0),
            longest_before=self._longest.get(current.entry.state, 0.0),
            longest_there=self._longest.get(current.entry.place, 0.0),
            changes=self.changes,
        )

    def _gets_on(self, now: float) -> bool:
        if now - self._checked < _CHECKED_SECONDS:
            return False
        self._checked = now
        before, self._called = self._called, self._calls()
        # Without calls there is nothing to tell it by, but that it runs.
        return self._called != before or not self._called
