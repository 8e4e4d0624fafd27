"""
What the sidecar's process is told from outside: to stop, and to read its files again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from queue import SimpleQueue


_STOP = "stop"
_RELOAD = "reload"


class Stopped(BaseException):
    """
    Raised out of whatever the main thread does: SIGTERM or SIGINT came before
    `Signals.wait`. No `Exception`, or a contained failure of the start would eat it.
    """


class Signals:
    """
    Signals of this process from now on, and reasons to end that other threads find.
    Made and waited for on the main thread.

    SIGTERM and SIGINT stop, the second of a kind at once; SIGHUP reloads.
    """

    def __init__(self) -> None:
        # Its put() may interrupt its get() on the same thread, as a handler does.
        self._told: SimpleQueue[str] = SimpleQueue()
        self._loading = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, lambda *_: self._told.put(_RELOAD))

    def give_up(self, reason: str) -> None:
        """End `wait` with *reason*; any thread."""
        self._told.put(reason)

    def loaded(self) -> None:
        """From now on stopping means the end of `wait`."""
        self._loading = False

    def wait(self, reload: Callable[[], None]) -> str:
        """
        Wait for the end, and return the reason to give up, ``""`` if there is none.

        Args:
            reload: called at each SIGHUP.
        """
        while (told := self._told.get()) == _RELOAD:
            reload()
        return "" if told == _STOP else told

    def _stop(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # Also where it is raised into something that swallows it.
        self._told.put(_STOP)
        if self._loading:
            raise Stopped
