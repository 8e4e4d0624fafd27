"""Writes how this process ends, into the file of the slot that it holds."""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmon import interrupts
from jaxmon.clocks import monotonic
from jaxmon.facts import endings
from jaxmon.facts.ending import FINISHED, RUNNING, ProcessEnd, State
from jaxmon.host import disclosure
from jaxmon.host.files.descriptor import (
    FLAGS,
    Descriptor,
    DescriptorLostError,
    require_own,
)
from jaxmon.host.formats.json_text import NewerSchemaError
from jaxmon.threads import RLock


# What must stay free, of a small file system half: sockets need space there, too.
_RESERVE = 64 << 20


class EndWriter:
    """
    Writes the record of this process, in the file *path* of the slot that it holds,
    which gets the permissions *mode*. Without the file, as on a full disk, or after
    `abandon`, it does nothing. `record` is what the file has, as far as this process
    wrote it; `before` is that of the process before it, and `continued` the counts that
    it adds to.
    """

    def __init__(self, path: Path = Path(), mode: int = 0o600) -> None:
        self._path = path
        self._mode = mode
        self._file = Descriptor()
        self._locked = False
        self.record: ProcessEnd | None = None
        # The latest record, also while there is no file.
        self._last: ProcessEnd | None = None
        self.before: ProcessEnd | None = None
        self.continued: bytes | None = None
        self._lock = RLock()

    def take(self, path: Path, mode: int) -> None:
        """Begin in the slot of the file *path*, or begin again, as in `refresh`."""
        if path != self._path:
            self.before = self.continued = None
        self._path, self._mode = path, mode
        self.begin(self._last)

    def begin(self, since: ProcessEnd | None = None) -> None:
        """
        Count this process, and its predecessor if that did not finish; if it only
        recreates the file, where it was counted already, *since* its last record.
        """
        with self._lock:
            try:
                self._open()
                self._hold()
                self._succeed(since)
            except OSError as error:  # a full disk, another user's file
                self.abandon()
                interrupts.pass_on(error)

    def refresh(self, fields: Mapping[str, Any]) -> None:
        """Record *fields* unless it has ended, in a new file if that was removed."""
        with self._lock:
            self._hold()
            if not self._file.is_at(self._path):
                self.abandon()
                self.begin(self._last)
            if self.record is not None and not self.record.kind:
                self.update(fields)

    @property
    def is_lost(self) -> bool:
        """Whether the program has closed the file's descriptor, and its lock."""
        return self._file.opened and not self._file.is_ours

    def run(self, loop: str) -> None:
        """Record that *loop* runs, ``""`` for none. Costs 25 µs if another one did."""
        record = self.record
        if record is not None and record.running != loop and record.state == RUNNING:
            self.update({"running": loop})

    def update(self, fields: Mapping[str, Any]) -> None:
        """Record the *fields* of this process, by field. Takes some 25 µs."""
        with self._lock:
            if self.record is not None:
                self._write(self.record.replace(**fields))

    def end(self, state: State) -> None:
        """Record how this process ends; only the first call counts."""
        with self._lock:
            if self.record is not None and self.record.state == RUNNING:
                self._write(_dated(self.record.replace(state=state)))

    def keep(self, since: float, text: bytes) -> None:
        """
        Write what was counted in the slot since *since*, for the sidecar and the next
        process. Not synced: after a restart of the host, it would be void.

        Raises:
            OSError: it is too large, or there is too little space.
        """
        with self._lock:
            if (record := self.record) is not None:
                size = self._store(record.starts, zlib.compress(text, 1))
                fields = {"counted_since": since, "counted_until": monotonic()}
                self.update({**fields, "counted_bytes": size})

    def abandon(self) -> None:
        """Close the descriptor and leave the file alone; also in a forked child."""
        self._file.close()
        self._locked, self.record = False, None

    def _open(self) -> None:
        path, flags = os.fspath(self._path), os.O_RDWR | os.O_CREAT | FLAGS
        self._file.open(path, flags, self._mode)
        descriptor = self._file.fileno()
        status = os.fstat(descriptor)
        require_own(status, self._path, self._mode)
        # As in `jaxmon.host.files.descriptor`: others in the group may be next.
        with interrupts.expected(PermissionError):
            os.fchmod(descriptor, self._mode)
        if status.st_size > endings.COUNTS_AT + endings.MOST_STORED:
            os.ftruncate(descriptor, endings.COUNTS_AT)

    def _hold(self) -> None:
        """
        Acquire the lock by which others see that this process lives, unless it is held:
        that of a predecessor may be released a moment after its slot.
        """
        if self._locked or not self._file.opened:
            return
        with interrupts.expected(OSError, AttributeError):  # not on this system
            fcntl.fcntl(self._file.fileno(), fcntl.F_OFD_SETLK, endings.write_lock())
            self._locked = True

    def _succeed(self, since: ProcessEnd | None) -> None:
        """Write the first record of this process, after those that are there."""
        descriptor = self._file.fileno()
        try:
            found = endings.records(endings.read_pages(descriptor))
        except NewerSchemaError:  # of a later release that had the slot
            found = None
        previous = found[0] if found else None
        if since is not None and (previous is None or _is_same(previous, since)):
            mine = since.replace(state=RUNNING)
            if previous is None and self.before is not None and self.continued:
                # What a cleaner removed of the process before this one.
                with interrupts.expected(OSError):
                    self._store(self.before.starts, self.continued)
                    self._put(
                        endings.line_of(self.before), endings.page_of(self.before)
                    )
        elif found is None or previous is None:
            os.ftruncate(descriptor, 0)
            mine = ProcessEnd(starts=1)
        else:
            self.before, self.continued = previous, None
            crashes = previous.crashes_with(found[1]) + previous.crashed(found[1])
            mine = ProcessEnd(starts=previous.starts + 1, crashes=crashes)
            if same := previous.script == _script():
                mine = mine.replace(failures=previous.failures_with(found[1]))
            again = previous.state == FINISHED and same
            if since is None and again and endings.counted_age(previous):
                self.continued = endings.stored_counts(descriptor, previous)
            if self.continued is not None:
                mine = mine.replace(counted_since=previous.counted_since)
            elif os.fstat(descriptor).st_size > endings.COUNTS_AT:
                os.ftruncate(descriptor, endings.COUNTS_AT)
        self._write(_dated(mine.replace(pid=os.getpid(), script=_script())))

    def _store(self, starts: int, compressed: bytes) -> int:
        """Write counts in place of those before; return their size."""
        raw = b"%d\n%b" % (starts, compressed)
        with self._file.through(self._path) as number:
            self._require_slot(number)
            # What was there is void from now on, whatever happens.
            if os.fstat(number).st_size > endings.COUNTS_AT:
                os.ftruncate(number, endings.COUNTS_AT)
        space = os.statvfs(self._path.parent)
        free, size = space.f_bavail - len(raw) / space.f_frsize, space.f_blocks
        if len(raw) > endings.MOST_STORED:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(self._path))
        if free < min(size / 2, _RESERVE / space.f_frsize):
            raise _full(self._path)
        self._put(raw, endings.COUNTS_AT)
        return len(raw)

    def _write(self, record: ProcessEnd) -> None:
        self._last = record
        try:
            self._put(endings.line_of(record), endings.page_of(record))
        except OSError as error:
            interrupts.pass_on(error)
            return
        self.record = record

    def _put(self, data: bytes, offset: int) -> None:
        with self._file.through(self._path) as number:
            self._require_slot(number)
            if os.pwrite(number, data, offset) < len(data):
                raise _full(self._path)

    def _require_slot(self, number: int) -> None:
        """Check that no other process has begun in the slot, if its file was closed."""
        if not self._file.is_ours:
            found = endings.records(endings.read_pages(number))
            mine = self._last
            if found is None or mine is None or found[0].starts != mine.starts:
                raise DescriptorLostError


def _script() -> int:
    return zlib.crc32(os.fsencode(disclosure.own_script()))


def _is_same(first: ProcessEnd, other: ProcessEnd) -> bool:
    """Return whether both are records of one process in one slot."""
    same = first.starts == other.starts and first.crashes == other.crashes
    return same and first.pid == other.pid


def _full(path: Path) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))


def _dated(record: ProcessEnd) -> ProcessEnd:
    """Return *record* as of now, unless it says when its process ended."""
    boottime, wall = endings.now().values()
    return record if record.kind else record.replace(boottime=boottime, time=wall)
