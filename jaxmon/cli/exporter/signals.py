"""Signal handling of the sidecar: stop and reload."""

from __future__ import annotations

import signal
from collections.abc import Callable
from queue import SimpleQueue


_STOP = "stop"
_RELOAD = "reload"


class Stopped(BaseException):
    """
    Raised out of whatever the main thread does: SIGTERM or SIGINT came before
    `Signals.wait`. Derives from `BaseException` so that startup error handling does not
    swallow it.
    """


class Signals:
    """
    Handles this process's signals, and stop requests from other threads. Create it,
    and wait on it, on the main thread.

    SIGTERM and SIGINT stop, a second one immediately; SIGHUP reloads.
    """

    def __init__(self) -> None:
        # Its put() may interrupt its get() on the same thread, as a handler does.
        self._events: SimpleQueue[str] = SimpleQueue()
        self._loading = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, lambda *_: self._events.put(_RELOAD))

    def give_up(self, reason: str) -> None:
        """End `wait` with *reason*; thread-safe."""
        self._events.put(reason)

    def loaded(self) -> None:
        """From now on, stop signals end `wait` instead of raising `Stopped`."""
        self._loading = False

    def wait(self, reload: Callable[[], None]) -> str:
        """
        Wait until stopped, and return the reason for a failure, ``""`` if there is
        none.

        Args:
            reload: called at each SIGHUP.
        """
        while (event := self._events.get()) == _RELOAD:
            reload()
        return "" if event == _STOP else event

    def _stop(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # Also where it is raised into something that swallows it.
        self._events.put(_STOP)
        if self._loading:
            raise Stopped
