"""
Helpers of the program that have failed: threads that ended with an exception, tasks of
thread pools whose exception nothing has read, and child processes that nothing has
waited for yet.

A loop that waits for data usually waits for such a helper, and does not notice that it
is gone. Failed helpers are evidence for why a program is stuck. Alone, only a thread
whose exception nothing has handled is a finding.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice
from math import inf
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any
from weakref import ref

from jaxmon.agent.errors.last_words import LONGEST, described, place
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.clocks import monotonic


if TYPE_CHECKING:
    from jaxmon.facts.walltime import FailedHelper


_MOST = 5


class FailedTask:
    """A task of a pool that failed, by its *future*; keeps neither that nor *error*."""

    def __init__(
        self, future: Any, error: BaseException, found: dict[str, Any]
    ) -> None:
        thread = threading.current_thread()
        self.found = {**found, "kind": "task", "name": str(thread.name)[:LONGEST]}
        self.failed = monotonic()
        self._thread = thread.ident
        self._raised_in = _outermost(error)
        self._is_dropped = False
        self._future = ref(future, self._on_end)

    def _on_end(self, _: object) -> None:
        # The pool's thread has the last reference to what the program does not keep.
        self._is_dropped = threading.get_ident() == self._thread

    @property
    def is_unread(self) -> bool:
        """Whether nothing has raised the exception again to read the result."""
        future = self._future()
        if future is None:
            return self._is_dropped
        error = getattr(future, "_exception", None)
        return error is not None and _outermost(error) is self._raised_in


def _outermost(error: BaseException) -> CodeType | None:
    """Return the outermost function that *error* has left so far."""
    return None if error.__traceback__ is None else error.__traceback__.tb_frame.f_code


_MOST_THREADS = 500
_MOST_CHILDREN = 1000
# While one is there that has ended, for whatever reason, all are read so rarely.
_EVERY_SECONDS = 5.0


class HelperFailures:
    """Helpers that failed, with the line that an exception came from, by *lines*."""

    def __init__(self, lines: SourceLineFinder) -> None:
        self._lines = lines
        self._threads: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_MOST)
        self._tasks: deque[FailedTask] = deque(maxlen=_MOST)
        # When children were found to have failed; not of those that had before.
        self._ends: dict[int, float | None] = {}
        self._read: float | None = None

    def on_uncaught(
        self, thread: threading.Thread | None, error: object, *, handled: bool = False
    ) -> None:
        """Note that *error* ends *thread*, *handled* by the program or not; 20 µs."""
        if thread is None or not isinstance(error, Exception):
            return
        name = str(thread.name)[:LONGEST]
        found = {"kind": "thread", "name": name, "handled": handled}
        self._threads.append((monotonic(), self._described(error) | found))

    def on_task(self, future: object, error: BaseException) -> None:
        """Note that a task of this thread fails with *error*; 20 µs."""
        self._tasks.append(FailedTask(future, error, self._described(error)))

    def _described(self, error: BaseException) -> dict[str, Any]:
        return {**described(error), **place(self._lines.line_of(error))}

    def look(self) -> None:
        """Note when children fail; 4 µs while none waits for its parent to notice."""
        read, now = self._read, monotonic()
        if not _has_ended():
            self._read, self._ends = -inf, {}
        elif read is None or now - read >= _EVERY_SECONDS:
            at, before = None if read is None else now, self._ends
            self._read = now
            self._ends = {of.pid: before.get(of.pid, at) for of in failed_children()}

    def latest(self) -> tuple[FailedHelper, ...]:
        """Return the latest of them; 10 µs for each thread and child of the program."""
        from jaxmon.facts.walltime import FailedHelper  # noqa: PLC0415 - on request

        now = monotonic()
        threads = [
            FailedHelper(**found, age_seconds=now - at)
            for at, found in reversed(self._threads)
        ]
        tasks = [
            FailedHelper(**task.found, age_seconds=now - task.failed)
            for task in reversed(self._tasks)
            if task.is_unread
        ]
        ends = self._ends
        children = [
            of if (at := ends.get(of.pid)) is None else of.replace(age_seconds=now - at)
            for of in failed_children()
        ]
        return (*threads, *tasks, *children)[:_MOST]


def _has_ended() -> bool:
    """Return whether a child has ended, and this process has not waited for it yet."""
    # There is none, or this is macOS before Python 3.13.
    with contextlib.suppress(OSError, AttributeError):
        left = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_ALL, 0, left) is not None
    return False


def failed_children() -> list[FailedHelper]:
    """Return children that failed or were killed, and that nothing has waited for."""
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
