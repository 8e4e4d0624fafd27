"""
Helpers of the program that have failed: threads that ended with an exception, and child
processes that nothing has waited for yet.

A loop that waits for data usually waits for such a helper, and does not notice that it
is gone. Failed helpers are evidence for why a program is stuck; alone, they are no
finding.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxmon.agent.errors.last_words import LONGEST, described, place
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.clocks import monotonic


if TYPE_CHECKING:
    from jaxmon.facts.walltime import FailedHelper


_MOST = 5
_MOST_THREADS = 500
_MOST_CHILDREN = 1000


class HelperFailures:
    """
    Args:
        lines: finds the line of the program that an exception came from.
    """

    def __init__(self, lines: SourceLineFinder) -> None:
        self._lines = lines
        self._threads: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_MOST)

    def on_uncaught(self, thread: threading.Thread | None, error: object) -> None:
        """Note that *error* ends *thread*; 20 µs."""
        if thread is None or not isinstance(error, Exception):
            return
        found = {**described(error), **place(self._lines.line_of(error))}
        found |= {"kind": "thread", "name": str(thread.name)[:LONGEST]}
        self._threads.append((monotonic(), found))

    def latest(self) -> tuple[FailedHelper, ...]:
        """Return the latest of them; 10 µs for each thread and child of the program."""
        from jaxmon.facts.walltime import FailedHelper  # noqa: PLC0415 - on request

        now = monotonic()
        threads = [
            FailedHelper(**found, age_seconds=now - at)
            for at, found in reversed(self._threads)
        ]
        return (*threads, *failed_children())[:_MOST]


def failed_children() -> list[FailedHelper]:
    """
    Return the children that failed: those of multiprocessing, and others that a signal
    ended. They stay children of this process: it has not waited for them yet.
    """
    from jaxmon.facts.walltime import FailedHelper  # noqa: PLC0415 - on request

    workers = _workers()
    found = []
    for pid in _children():
        with contextlib.suppress(OSError, ValueError):
            end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is None:
                continue
            signalled = end.si_code in {os.CLD_KILLED, os.CLD_DUMPED}
            if signalled or (end.si_status and pid in workers):
                name = workers.get(pid, "")
                code = -end.si_status if signalled else end.si_status
                child = FailedHelper(kind="process", name=name, pid=pid, code=code)
                found.append(child)
    return found[-_MOST:]


def _children() -> Iterator[int]:
    """Yield the children of this process, as far as the kernel lists them."""
    tasks = Path("/proc/self/task")
    for task in islice(tasks.iterdir() if tasks.is_dir() else (), _MOST_THREADS):
        with contextlib.suppress(OSError):
            yield from map(int, (task / "children").read_text().split())


def _workers() -> dict[int, str]:
    """Return the names of the processes of multiprocessing, by number."""
    found = {}
    # `active_children` would wait for those that are gone.
    module = sys.modules.get("multiprocessing.process")
    for child in list(getattr(module, "_children", ()))[:_MOST_CHILDREN]:
        with contextlib.suppress(Exception):  # of another release, or closed meanwhile
            found[int(child.pid)] = str(child.name)[:LONGEST]
    return found
