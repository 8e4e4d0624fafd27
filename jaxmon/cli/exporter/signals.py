"""Signal handling of the sidecar: stop and reload."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue


_STOP = "stop"
_RELOAD = "reload"
_MOST_BYTES = 4096


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

    It waits for a byte in a pipe, which the interpreter writes for each signal: one
    that comes just before the main thread blocks would not end any other wait, as
    Python's handlers run between bytecodes.
    """

    def __init__(self) -> None:
        # Its put() may interrupt its get() on the same thread, as a handler does.
        self._events: SimpleQueue[str] = SimpleQueue()
        self._loading = True
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, lambda *_: self._put(_RELOAD))

    def give_up(self, reason: str) -> None:
        """End `wait` with *reason*; thread-safe."""
        self._put(reason)

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
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                os.read(self._woken, _MOST_BYTES)
            else:
                if event != _RELOAD:
                    return "" if event == _STOP else event
                reload()

    def _stop(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # Also where it is raised into something that swallows it.
        self._put(_STOP)
        if self._loading:
            raise Stopped

    def _put(self, event: str) -> None:
        self._events.put(event)
        with suppress(BlockingIOError):  # full: it wakes up anyway
            os.write(self._wake, b"\0")
