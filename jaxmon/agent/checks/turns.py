"""When the next call is re-run, and why a function's calls are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxmon import interrupts
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.failures import kind_of
from jaxmon.clocks import monotonic


# A re-run and its comparison take at most this fraction of the time.
SHARE = 0.01

# Seconds after which what was not possible is tried again.
_PATIENCE = 60.0


class Turns:
    """
    One re-run at a time, at most once per *interval* seconds, and no more often than
    keeps the time that they take below 1 %.

    Attributes:
        due: `time.monotonic` before which none is made.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._refused: dict[Function, str] = {}
        self._postponed: dict[Function, str] = {}
        # Popped by the thread that makes a re-run: atomic, and idempotent to restore.
        self._token = [True]
        self.due = 0.0

    def has(self, function: Function) -> bool:
        """Return whether a call of *function* may be re-run now."""
        free = not self.busy and monotonic() >= self.due
        return free and function not in self._refused

    @property
    def busy(self) -> bool:
        """Whether a re-run is being made."""
        return not self._token

    def begin(self) -> bool:
        """Start a re-run; return whether no other thread has started one."""
        try:
            return self._token.pop()
        except IndexError as error:
            interrupts.pass_on(error)
            return False

    def cancel(self) -> None:
        """Finish a turn without a re-run."""
        self._token[:] = [True]

    def over(self, taken: float = 0.0) -> None:
        """Finish a re-run that has *taken* so many seconds."""
        pause = max(self._interval, taken / SHARE)
        self.due = max(self.due, monotonic() + pause)
        self.cancel()

    def stop(self) -> None:
        """Allow no more."""
        self.due = float("inf")

    def refuse(self, function: Function, reason: str) -> None:
        """Never re-run *function*."""
        self._refused[function] = reason

    def postpone(self, function: Function, reason: str) -> None:
        """Re-run *function* later, if that is possible then."""
        self._postponed[function] = reason
        self.due = max(self.due, monotonic() + max(self._interval, _PATIENCE))

    def succeeded(self, function: Function) -> None:
        """Forget why *function* was postponed."""
        self._postponed.pop(function, None)

    def reasons(self) -> dict[Function, str]:
        """Return why functions are not re-run."""
        return self._postponed.copy() | self._refused.copy()

    @contextmanager
    def attempt(self, function: Function) -> Iterator[Callable[[], None]]:
        """
        Finish the turn after the block unless that calls what this yields. Without
        memory the function is postponed; after any other error it is refused.
        """
        pending = [function]
        try:
            yield pending.clear
        except Exception as error:
            interrupts.pass_on(error)
            pending.append(function)
            if kind_of(error) != "oom":
                self.refuse(function, "failed")
                raise
            self.postpone(function, "little_memory")
        finally:
            if pending:
                self.over()
