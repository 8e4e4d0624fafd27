"""
When the processes of a run directory ended, to the millisecond.

An agent holds the file of its slot's record open (`jaxmon.life`). The kernel closes it
when the process is gone, however it ended, and reports that by inotify. Polls would
only say within seconds which of two processes died first.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from pathlib import Path

from jaxmon.threads import DaemonThread
from jaxmon_exporter.collecting import Clock


_CLOSE_WRITE, _IGNORED = 0x8, 0x8000
_CLOEXEC = 0o2000000
_HEAD = "iIII"
_SIZE = struct.calcsize(_HEAD)
_BUFFER = 64 << 10
_NAME = rb"agent-([0-9]{1,4})\.life"


class Closings:
    """
    Watches a run directory on a thread of its own, which sleeps until something is
    closed there.

    Args:
        directory: the run directory.
        clock: seconds.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._closed: dict[str, float] = {}
        # The descriptor and the number of the watch; empty if nothing is watched.
        self._watch: tuple[int, ...] = ()
        self._stopped = False

    def watch(self) -> None:
        """
        Watch, unless that is done, or impossible: there is no such directory yet, or
        there are too many watches.
        """
        if self._watch or self._stopped or not self._directory.is_dir():
            return
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            number = libc.inotify_init1(_CLOEXEC)
            if number < 0:
                return
            path = os.fsencode(self._directory)
            watch = libc.inotify_add_watch(number, path, _CLOSE_WRITE)
            if watch < 0:
                os.close(number)
                return
        except (OSError, AttributeError):  # another C library, another system
            return
        self._watch = number, watch
        try:
            DaemonThread("jaxmon-closings", lambda: self._follow(number)).start()
        except RuntimeError:  # no threads left
            self._watch = ()
            os.close(number)

    def close(self) -> None:
        """Stop watching."""
        self._stopped = True
        if watch := self._watch:
            # The thread reads that, and ends.
            ctypes.CDLL(None).inotify_rm_watch(*watch)

    def at(self, worker: str) -> float | None:
        """Return when the record of *worker* was closed last, by the clock."""
        return self._closed.get(worker)

    def _follow(self, number: int) -> None:
        try:
            while self._take(os.read(number, _BUFFER)):
                pass
        except OSError:  # interrupted, out of memory: the next poll starts another
            pass
        finally:
            self._watch = ()
            os.close(number)

    def _take(self, events: bytes) -> bool:
        """Note what was closed; return whether the directory is still watched."""
        now, at = self._clock(), 0
        while at + _SIZE <= len(events):
            _, mask, _, length = struct.unpack_from(_HEAD, events, at)
            name = events[at + _SIZE : at + _SIZE + length].rstrip(b"\0")
            at += _SIZE + length
            if mask & _IGNORED:  # it was removed
                return False
            if match := re.fullmatch(_NAME, name):
                self._closed[str(int(match[1]))] = now
        return True
