"""Entries of the persistent cache that could not be read or written."""

from __future__ import annotations

import errno
import os

from jaxmon import disclosure
from jaxmon.agent.counters import Tally
from jaxmon.agent.events import EventLog
from jaxmon.agent.jaxlink.cache import SUFFIX, Failed


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CacheErrors:
    """
    Counts errors, records each as an event, and remembers the latest.

    Attributes:
        counts: errors by operation: ``read`` and ``write``.
        last: class and message of the latest.
        trouble: what keeps the file system from reading or writing entries; `None` once
            an entry has been read or written again.
    """

    def __init__(self, events: EventLog) -> None:
        self.counts = {"read": Tally(), "write": Tally()}
        self.last: str | None = None
        self.trouble: str | None = None
        self._events = events

    def add(self, failed: Failed, error: BaseException) -> None:
        """Record that an operation *failed* with *error*."""
        self.counts[failed.operation].add()
        message = self.last = disclosure.error(error)
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            message = os.strerror(error.errno) if error.errno else message
            full = "the file system is full, or a quota was reached: "
            self.trouble = (full if error.errno in _FULL else "") + message
        file, advice = f"{failed.key}{SUFFIX}", ""
        if failed.operation == "read" and not isinstance(error, OSError):
            advice = (
                f" JAX does not replace unreadable entries: delete the file {file}."
            )
        done = "read" if failed.operation == "read" else "written"
        self._events.add(
            "cache",
            None,
            f"An entry for {failed.module} could not be {done}: {message}.{advice}",
            operation=failed.operation,
            module=failed.module,
            file=file,
            error=type(error).__name__,
        )

    def over(self) -> None:
        """Note that an entry has been read or written: the trouble is over."""
        self.trouble = None
