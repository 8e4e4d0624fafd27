"""Reads what goes on, on a thread: a process that hangs must not hold up the keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from jaxmon.cli.host import HostReader, ProcessView
from jaxmon.errors import CommandError
from jaxmon.facts.status import Summary
from jaxmon.threads import DaemonThread


_FINDINGS_EVERY = 10.0
_MOST_OF_A_CORE = 0.1


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What was read last.

    Attributes:
        time: Unix time of the last reading that succeeded, 0 without one.
        trouble: why there is none since, empty if there is.
    """

    summary: Summary
    processes: Sequence[ProcessView]
    time: float = 0.0
    trouble: str = ""


class Reader:
    """
    Reads *host* every few seconds, and calls *changed* after each reading.

    Findings are read every ten seconds, or less often if that would take a tenth of a
    core.
    """

    def __init__(
        self, host: HostReader, changed: Callable[[], None], *, every: float
    ) -> None:
        self._host = host
        self._changed = changed
        self._every = every
        self._stopped = Event()
        self.seen = Seen(host.summary(), ())

    def start(self) -> None:
        """Start to read."""
        DaemonThread("jaxmon-top", self._run).start()

    def stop(self) -> None:
        """Read no more; a reading that hangs may last some seconds."""
        self._stopped.set()

    def _run(self) -> None:
        judged, pause = 0.0, 0.0
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._host.poll()
                self._show()
                if began - judged >= pause:
                    used = time.thread_time()
                    self._host.judge()
                    used = time.thread_time() - used
                    judged, pause = began, max(_FINDINGS_EVERY, used / _MOST_OF_A_CORE)
                    self._show()
            except CommandError as error:
                self._trouble(error.message)
            except Exception as error:  # noqa: BLE001 - shown, and tried again
                self._trouble(f"{type(error).__name__}: {error}")
            left = self._every - (time.monotonic() - began)
            self._stopped.wait(max(left, self._every / 2))

    def _show(self) -> None:
        found = self._host.processes()
        self.seen = Seen(self._host.summary(), found, time.time())
        self._changed()

    def _trouble(self, text: str) -> None:
        seen = self.seen
        self.seen = Seen(seen.summary, seen.processes, seen.time, text)
        self._changed()
