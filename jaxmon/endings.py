"""
How the processes of a slot ended: the file ``agent-N.end``, which survives them.

It has a page for the record (`jaxmon.facts.ending`) of the latest process of the slot,
one for that of the process before it, by turns, and what they counted. The holder of
the slot writes its own record, as one line of JSON, in single system calls: when it
starts, when a loop starts or ends, every few seconds, and when it ends; into a page
that exists, so on a full disk as well. A process that was killed cannot write. So the
record is written as if it would be, and whether a process is alive is known from a lock
that the kernel releases. The next process in the slot counts a predecessor that did not
finish, the sidecar one without a successor, whose exit status it adds (`complete`).

Finished are a program that came to its end, `sys.exit`, Ctrl-C, and
`jaxmon.uninstrument`. Crashed are an uncaught exception, one that the program handles
by `sys.exit` with the code 1, a signal, a segmentation fault, the kernel's OOM killer
and `os._exit`, at which Python runs nothing either; that is also how a child forked by
`multiprocessing` ends if it has an agent of its own. So is SIGTERM in a program that
does not handle it: nothing of Python runs then, and a handler of ours would change the
program. Where that is how processes are stopped, the program should handle it; in
Kubernetes, the pod takes its record and sidecar along.

A process that ends between two polls of the sidecar would take its counts along. So,
when it stops, it writes its counters behind the pages, added to those of the processes
before it; the sidecar serves them for a while, and adds them to what the slot's next
process counts. A series of a slot thus only rises, whoever reads it and how often, and
every count is in it once. Such a chain ends where the next process cannot know what its
predecessor counted: it was killed, or crashed, ended too long ago, or could not write.
The next process then removes the counts, before it counts as a start of the slot.

Anyone who may write in the run directory may write anything here: what cannot be a
record counts as none. If a cleaner removes the file, its holder or the next one starts
another.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxmon import interrupts
from jaxmon.clocks import monotonic, wall_time
from jaxmon.facts import ending
from jaxmon.facts.ending import CRASHED, FINISHED, RUNNING, ProcessEnd, State
from jaxmon.files.descriptor import (
    FLAGS,
    Descriptor,
    DescriptorLostError,
    require_own,
)
from jaxmon.formats import json_text
from jaxmon.formats.schema import NewerSchemaError
from jaxmon.threads import RLock


KEPT = 300.0
"""
Seconds for which the counts of an ended process are served, and wait for a successor:
longer than a scrape and an evaluation of the slowest rules.
"""

MOST = 1 << 20
"""Maximum size of the text of counts: of some 10,000 series."""

_NAME = r"agent-([0-9]{1,4})\.end"
_PAGE = 4096
_COUNTS_AT = 2 * _PAGE
_MOST_STORED = 1 << 18
# What must stay free, of a small file system half: sockets need space there, too.
_RESERVE = 64 << 20
# Records have lists of causes.
_DEEPEST = 10
_LONGEST_LOOP = 400
# What is dropped first of a record that is too long for its page.
_LONG = (
    *("causes", "message", "program", "called", "function", "place", "activity"),
    *("awaited", "type", "loop", "where", "coordinator", "running"),
)
# A record is read again if it is written meanwhile.
_ATTEMPTS = 3
# struct flock of 64-bit Linux: type, whence, start, length (0: all), pid (0: none).
_FLOCK = "hhqqi4x"


class SlotEnds(NamedTuple):
    """
    What is known of the processes of a slot.

    Attributes:
        latest: the record of its latest process.
        before: that of the process before it, if it is known.
        held: whether a process holds the slot: `None` if the system does not say.
    """

    latest: ProcessEnd
    before: ProcessEnd | None
    held: bool | None

    @property
    def died(self) -> bool | None:
        """
        Whether its latest process ended without finishing, `None` if that depends on
        whether there is one.
        """
        if self.latest.state == RUNNING:
            return None if self.held is None else not self.held
        return self.latest.state == CRASHED

    @property
    def ended(self) -> ProcessEnd | None:
        """The record of its latest process if that has ended."""
        over = self.latest.state != RUNNING or self.held is False
        return self.latest if over else None

    @property
    def counted(self) -> ProcessEnd | None:
        """Whose counts the slot has: of its latest process, or of one it continues."""
        latest, before = self.latest, self.before
        if latest.counted_bytes:
            return latest
        if before is None or not before.counted_bytes:
            return None
        return before if latest.counted_since == before.counted_since else None

    def of(self, starts: int) -> ProcessEnd | None:
        """Return the record of the process *starts* of the slot, if it is known."""
        for one in (self.latest, self.before):
            if one is not None and one.starts == starts:
                return one
        return None


class EndWriter:
    """
    Writes the record of this process, in the file *path* of the slot that it holds,
    which gets the permissions *mode*. Without the file, as on a full disk, or after
    `abandon`, it does nothing.

    Attributes:
        record: what the file has, as far as this process wrote it; `None` without one.
        before: the record of the process before it, and
        continued: the counts that it adds to, if it does.
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
        Count this process, and its predecessor if that did not finish.

        Args:
            since: this process's last record, if it was counted in this slot before
                and only recreates the file.
        """
        with self._lock:
            try:
                self._open()
                self._hold()
                self._succeed(since)
            except OSError as error:  # a full disk, another user's file
                self.abandon()
                interrupts.pass_on(error)

    def refresh(self, known: Mapping[str, Any]) -> None:
        """
        Record what is *known* of this process, unless it has said how it ends; and all
        of it again if a cleaner has removed the file.
        """
        with self._lock:
            self._hold()
            if not self._file.is_at(self._path):
                self.abandon()
                self.begin(self._last)
            if self.record is not None and not self.record.kind:
                self.update(known)

    @property
    def is_lost(self) -> bool:
        """Whether the program has closed the file's descriptor, and its lock."""
        return self._file.opened and not self._file.is_ours

    def run(self, loop: str) -> None:
        """Record that *loop* runs, ``""`` for none. Costs 25 µs if another one did."""
        record = self.record
        if record is not None and record.running != loop and record.state == RUNNING:
            self.update({"running": loop})

    def update(self, known: Mapping[str, Any]) -> None:
        """Record what is *known* of this process, by field. Takes some 25 µs."""
        with self._lock:
            if self.record is not None:
                self._write(self.record.replace(**known))

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
                known = {"counted_since": since, "counted_until": monotonic()}
                self.update({**known, "counted_bytes": size})

    def abandon(self) -> None:
        """
        Close this process's descriptor and leave the file alone; also for a forked
        child, whose parent holds the lock.
        """
        self._file.close()
        self._locked, self.record = False, None

    def _open(self) -> None:
        path, flags = os.fspath(self._path), os.O_RDWR | os.O_CREAT | FLAGS
        self._file.open(path, flags, self._mode)
        descriptor = self._file.fileno()
        status = os.fstat(descriptor)
        require_own(status, self._path, self._mode)
        # As in `jaxmon.files.descriptor`: others in the group may have the slot next.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, self._mode)
        if status.st_size > _COUNTS_AT + _MOST_STORED:
            os.ftruncate(descriptor, _COUNTS_AT)

    def _hold(self) -> None:
        """
        Acquire the lock by which others see that this process lives, unless it is held:
        that of a predecessor may be released a moment after its slot.
        """
        if self._locked or not self._file.opened:
            return
        try:
            fcntl.fcntl(self._file.fileno(), fcntl.F_OFD_SETLK, _flock())
            self._locked = True
        except (OSError, AttributeError) as error:  # not on this system
            interrupts.pass_on(error)

    def _succeed(self, since: ProcessEnd | None) -> None:
        """Write the first record of this process, after those that are there."""
        descriptor = self._file.fileno()
        try:
            found = _records(_pages(descriptor))
        except NewerSchemaError:  # of a later release that had the slot
            found = None
        previous = found and found[0]
        if since is not None and (previous is None or _is_same(previous, since)):
            mine = since.replace(state=RUNNING)
            if previous is None and self.before is not None and self.continued:
                # What a cleaner removed of the process before this one.
                with contextlib.suppress(OSError):
                    self._store(self.before.starts, self.continued)
                    self._put(_line(self.before), _place(self.before))
        elif previous is None:
            os.ftruncate(descriptor, 0)
            mine = ProcessEnd(starts=1)
        else:
            self.before, self.continued = previous, None
            crashes = previous.crashes + (previous.state != FINISHED)
            mine = ProcessEnd(starts=previous.starts + 1, crashes=crashes)
            if since is None and previous.state == FINISHED and counted_age(previous):
                self.continued = _stored(descriptor, previous)
            if self.continued is not None:
                mine = mine.replace(counted_since=previous.counted_since)
            elif os.fstat(descriptor).st_size > _COUNTS_AT:
                os.ftruncate(descriptor, _COUNTS_AT)
        self._write(_dated(mine.replace(pid=os.getpid())))

    def _store(self, starts: int, compressed: bytes) -> int:
        """Write counts in place of those before; return their size."""
        raw = b"%d\n%b" % (starts, compressed)
        with self._file.through(self._path) as number:
            self._require_slot(number)
            # What was there is void from now on, whatever happens.
            if os.fstat(number).st_size > _COUNTS_AT:
                os.ftruncate(number, _COUNTS_AT)
        space = os.statvfs(self._path.parent)
        free, size = space.f_bavail - len(raw) / space.f_frsize, space.f_blocks
        if len(raw) > _MOST_STORED:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(self._path))
        if free < min(size / 2, _RESERVE / space.f_frsize):
            raise _full(self._path)
        self._put(raw, _COUNTS_AT)
        return len(raw)

    def _write(self, record: ProcessEnd) -> None:
        self._last = record
        try:
            self._put(_line(record), _place(record))
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
        """
        Check that this process has the slot: while it holds the file open, or, where
        the program has closed that, as long as no other process has begun there.
        """
        if not self._file.is_ours:
            found = _records(_pages(number))
            mine = self._last
            if found is None or mine is None or found[0].starts != mine.starts:
                raise DescriptorLostError


def _is_same(one: ProcessEnd, other: ProcessEnd) -> bool:
    """Return whether both are records of one process in one slot."""
    same = one.starts == other.starts and one.crashes == other.crashes
    return same and one.pid == other.pid


def _full(path: Path) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))


def now() -> dict[str, float]:
    """Return the time, by field of a record."""
    boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
    return {"boottime": boottime, "time": wall_time()}


def age_of(end: ProcessEnd) -> float | None:
    """
    Return how long ago *end* was written, by the clock that all processes of a host
    share and that no one sets; by the wall clock if that is from before a restart.
    """
    for field, clock in now().items():
        written: float | None = getattr(end, field)
        if written is not None and (age := clock - written) >= 0:
            return age
    return None


def ends(directory: Path) -> dict[str, ProcessEnd]:
    """
    Return the records of the processes in *directory* that have ended and have no
    successor, by worker; none if it cannot be read.
    """
    try:
        found = slots(directory)
    except OSError:
        return {}
    return {worker: one.ended for worker, one in found.items() if one.ended}


def slots(
    directory: Path, refused: dict[str, str] | None = None
) -> dict[str, SlotEnds]:
    """
    Return the records in *directory* by worker (``"0"``, ``"1"``, …), some 50 µs each.

    Args:
        directory: the run directory.
        refused: gets what is wrong with files of a later release, by worker.

    Raises:
        OSError: the directory cannot be read.
    """
    found: dict[int, SlotEnds] = {}
    for name in os.listdir(directory):  # noqa: PTH208 - names only, no stat
        if (match := re.fullmatch(_NAME, name)) is None:
            continue
        try:
            one = slot(os.path.join(directory, name))  # noqa: PTH118 - likewise
        except NewerSchemaError as error:
            if refused is not None:
                refused[str(int(match[1]))] = str(error)
            continue
        if one is not None:
            found[int(match[1])] = one
    return {str(number): found[number] for number in sorted(found)}


def slot(path: Path | str) -> SlotEnds | None:
    """
    Return the records in the file *path*, `None` if there are none.

    Raises:
        NewerSchemaError: they are of a later release.
    """
    if (descriptor := _opened(path, os.O_RDONLY)) is None:
        return None
    try:
        # The lock is acquired before the record is written, and released after: if
        # nothing held it between two equal records, nothing wrote the first one.
        before, held = _pages(descriptor), _is_held(descriptor)
        pages = _pages(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    found = _records(pages)
    return found and SlotEnds(*found, held if pages == before else True)


def counts(path: Path, of: ProcessEnd) -> str | None:
    """
    Return the counters that the process *of* left in the file *path*, `None` if they
    are void: too old, removed, or replaced by its successor's.

    Raises:
        ValueError: they are no text.
    """
    descriptor = _opened(path, os.O_RDONLY)
    if descriptor is None:
        return None
    try:
        stored = _stored(descriptor, of)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if stored is None else unpacked(stored)


def unpacked(stored: bytes) -> str:
    """
    Return the text of counters that are *stored* compressed.

    Raises:
        ValueError: that is not what is stored.
    """
    inflate = zlib.decompressobj()
    try:
        found = inflate.decompress(stored, MOST + 1)
    except zlib.error as error:
        msg = f"malformed: {error}"
        raise ValueError(msg) from None
    if len(found) > MOST or not inflate.eof:
        msg = f"truncated, or larger than {MOST} bytes"
        raise ValueError(msg)
    return found.decode()


def counted_age(of: ProcessEnd) -> float | None:
    """
    Return how many seconds ago a process left its counts; `None` if it left none, or
    too long ago to count.
    """
    age = monotonic() - of.counted_until
    # Not in the future, as after a restart of the host, whose clock begins at 0.
    is_valid = 0 <= age <= KEPT and of.counted_since <= of.counted_until
    return age if of.counted_bytes and is_valid else None


def complete(path: Path, starts: int, known: Mapping[str, Any]) -> None:
    """
    Add what is *known* from outside to the record of the process *starts* of a slot,
    which is gone: its exit status. For the sidecar, if it may write there.
    """
    try:
        found = slot(path)
        end = found and found.of(starts)
        if found is None or end is None or end.exited:
            return
        if end is found.latest and found.held is not False:
            return
        descriptor = _opened(path, os.O_RDWR)
        if descriptor is None:
            return
        try:
            status = os.fstat(descriptor)
            require_own(status, path, status.st_mode)
            os.pwrite(descriptor, _line(end.replace(**known)), _place(end))
        finally:
            os.close(descriptor)
    except (OSError, NewerSchemaError):  # another user's; replaced meanwhile
        pass


def _opened(path: Path | str, flags: int) -> int | None:
    """Return a descriptor of the regular file *path*, `None` if there is none."""
    try:
        descriptor = os.open(path, flags | FLAGS)
    except OSError:
        return None
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _is_held(descriptor: int) -> bool | None:
    """Return whether a process holds the lock; does not acquire it."""
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock())
        kind: int = struct.unpack(_FLOCK, found)[0]
    except (OSError, AttributeError, struct.error):
        return None  # not on this system
    return kind != fcntl.F_UNLCK


def _flock() -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _pages(descriptor: int) -> bytes:
    """Return both pages, as they are between two writes."""
    raw = os.pread(descriptor, _COUNTS_AT, 0)
    for _ in range(_ATTEMPTS):
        again = os.pread(descriptor, _COUNTS_AT, 0)
        if again == raw:
            break
        raw = again
    return raw


def _records(raw: bytes) -> tuple[ProcessEnd, ProcessEnd | None] | None:
    """
    Return the record of the latest process, and that of the one before it, `None` if
    there are none.

    Raises:
        NewerSchemaError: they are of a later release.
    """
    known = [
        one
        for page in (0, 1)
        if (one := _record(raw[page * _PAGE : (page + 1) * _PAGE])) is not None
        and one.starts % 2 == page
    ]
    known.sort(key=lambda one: -one.starts)
    if not known:
        return None
    latest, *rest = known
    follows = bool(rest) and rest[0].starts + 1 == latest.starts
    return latest, rest[0] if follows else None


def _record(page: bytes) -> ProcessEnd | None:
    line, end, _ = page.partition(b"\n")
    if not end or not line:
        return None
    try:
        text = line.decode()
        return ending.read(json_text.parse(text, odd_numbers=True, depth=_DEEPEST))
    except NewerSchemaError:
        raise
    except ValueError:
        return None


def _line(record: ProcessEnd) -> bytes:
    """Return *record* as a line that fits into a page, without what is too long."""
    if len(json.dumps(record.running)) > _LONGEST_LOOP:  # a character takes 12 at most
        record = record.replace(running=record.running[: _LONGEST_LOOP // 12])
    raw = _encoded(record)
    for name in _LONG:
        if len(raw) <= _PAGE:
            break
        record = record.replace(**{name: getattr(ProcessEnd, name)})
        raw = _encoded(record)
    return raw


def _encoded(record: ProcessEnd) -> bytes:
    return json.dumps(record.as_json(), separators=(",", ":")).encode() + b"\n"


def _dated(record: ProcessEnd) -> ProcessEnd:
    """Return *record* as of now, unless it says when its process ended."""
    boottime, wall = now().values()
    return record if record.kind else record.replace(boottime=boottime, time=wall)


def _place(record: ProcessEnd) -> int:
    """Return where the page of *record* begins."""
    return record.starts % 2 * _PAGE


def _stored(descriptor: int, of: ProcessEnd) -> bytes | None:
    if not 0 < of.counted_bytes <= _MOST_STORED:
        return None
    raw = os.pread(descriptor, of.counted_bytes, _COUNTS_AT)
    head = b"%d\n" % of.starts
    whole = len(raw) == of.counted_bytes and raw.startswith(head)
    return raw[len(head) :] if whole else None
