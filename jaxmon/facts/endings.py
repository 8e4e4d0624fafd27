"""
How the processes of a slot ended: the file ``agent-N.end``, which survives them.

It has a page for the record (`jaxmon.facts.ending`) of the latest process of the slot,
one for that of the process before it, by turns, and what they counted. The holder of
the slot writes its own record, as one line of JSON, in single system calls: when it
starts, when a loop starts or ends, every few seconds, and when it ends; into a page
that exists, so on a full disk as well. A process that was killed cannot write. So the
record is written as if it would be, and whether a process is alive is known from a lock
that the kernel releases. The next process in the slot counts a predecessor that
crashed, the sidecar one without a successor, whose exit status it adds (`complete`).

Which ends are a stop, and which a crash, is in decision 49; whose counts the file has,
and for how long they count, in decision 46.

`jaxmon.agent.end_writer` writes it, and `jaxmon.facts.endings` has its layout. Anyone
who may write in the run directory may write anything here: what cannot be a record
counts as none. If a cleaner removes the file, its holder or the next one starts
another.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

from jaxmon import interrupts
from jaxmon.clocks import monotonic, wall_time
from jaxmon.facts import ending
from jaxmon.facts.ending import AGAIN, CRASHED, IN_ORDER, RUNNING, ProcessEnd
from jaxmon.host.files.descriptor import FLAGS, require_own
from jaxmon.host.formats import json_text
from jaxmon.host.formats.json_text import NewerSchemaError
from jaxmon.tuples import NamedTuple


_PAGE = 4096
COUNTS_AT = 2 * _PAGE
MOST_STORED = 1 << 18
# Records have lists of causes.
_DEEPEST = 10
_LONGEST_LOOP = 400
# What is dropped first of a record that is too long for its page.
_LONG = (
    *("causes", "message", "program", "called", "function", "place", "activity"),
    *("awaited", "type", "loop", "where", "coordinator", "running"),
)
# Seconds in which what is kept running starts again, and failures that are several.
_AT_ONCE, _AGAIN = 30.0, 2
# A record is read again if it is written meanwhile.
_ATTEMPTS = 3
# struct flock of 64-bit Linux: type, whence, start, length (0: all), pid (0: none).
_FLOCK = "hhqqi4x"


@contextmanager
def opened(path: Path | str, flags: int) -> Iterator[int]:
    """Open the regular file *path*. Raises `OSError`: there is none."""
    descriptor = os.open(path, flags | FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(descriptor: int) -> bool | None:
    """Return whether a process holds the lock; does not acquire it."""
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, write_lock())
        kind: int = struct.unpack(_FLOCK, found)[0]
    except (OSError, AttributeError, struct.error):
        return None  # not on this system
    return kind != fcntl.F_UNLCK


def write_lock() -> bytes:
    """Return the lock of the whole file, for `fcntl`."""
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def read_pages(descriptor: int) -> bytes:
    """Return both pages, as they are between two writes."""
    raw = os.pread(descriptor, COUNTS_AT, 0)
    for _ in range(_ATTEMPTS):
        again = os.pread(descriptor, COUNTS_AT, 0)
        if again == raw:
            break
        raw = again
    return raw


def records(raw: bytes) -> tuple[ProcessEnd, ProcessEnd | None] | None:
    """
    Return the record of the latest process, and that of the one before it, `None` if
    there are none. Raises `NewerSchemaError`: they are of a later release.
    """
    written = [
        record
        for page in (0, 1)
        if (record := _record(raw[page * _PAGE : (page + 1) * _PAGE])) is not None
        and record.starts % 2 == page
    ]
    written.sort(key=lambda record: -record.starts)
    if not written:
        return None
    latest, *rest = written
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
    except ValueError as error:
        interrupts.pass_on(error)
        return None


def line_of(record: ProcessEnd) -> bytes:
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


def page_of(record: ProcessEnd) -> int:
    """Return where the page of *record* begins."""
    return record.starts % 2 * _PAGE


def stored_counts(descriptor: int, of: ProcessEnd) -> bytes | None:
    """Return the counts that the process *of* left, compressed; `None` if not whole."""
    if not 0 < of.counted_bytes <= MOST_STORED:
        return None
    raw = os.pread(descriptor, of.counted_bytes, COUNTS_AT)
    head = b"%d\n" % of.starts
    whole = len(raw) == of.counted_bytes and raw.startswith(head)
    return raw[len(head) :] if whole else None


KEPT = 300.0
"""
Seconds for which the counts of an ended process are served, and wait for a successor:
longer than a scrape and an evaluation of the slowest rules.
"""

MOST = 1 << 20
"""Maximum size of the text of counts: of some 10,000 series."""

_NAME = r"agent-([0-9]{1,4})\.end"


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
        Whether its latest process ended without finishing or being stopped, `None` if
        that depends on whether there is one.
        """
        if self.latest.stop:
            return False
        if self.latest.state == RUNNING:
            return None if self.held is None else not self.held
        return self.latest.state == CRASHED

    @property
    def repeated(self) -> ProcessEnd | None:
        """
        The process before the one that runs, if it was not the first in a row to fail,
        or was killed by a signal, ended in the last ten minutes, and was replaced at
        once.
        """
        before, latest = self.before, self.latest
        if before is None or not self.held:
            return None
        # Who restarts a program by hand may have interrupted it.
        killed = before.signal and not before.stop and before.ended not in IN_ORDER
        if latest.failures < _AGAIN and not killed:
            return None
        began = (latest.boottime or 0.0) - latest.observed_seconds
        at_once = began - (before.boottime or 0.0) < _AT_ONCE
        return before if at_once and (age_of(before) or inf) < AGAIN else None

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
        for record in (self.latest, self.before):
            if record is not None and record.starts == starts:
                return record
        return None


def now() -> dict[str, float]:
    """Return the time, by field of a record."""
    return {"boottime": time.clock_gettime(time.CLOCK_BOOTTIME), "time": wall_time()}


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
    return {worker: ends.ended for worker, ends in found.items() if ends.ended}


def replaced(directory: Path) -> dict[str, ProcessEnd]:
    """
    Return by worker the records of processes that were killed, or ended in a row,
    before those that run; none if *directory* cannot be read.
    """
    found = {}
    with interrupts.expected(OSError):
        found = {worker: of.repeated for worker, of in slots(directory).items()}
    return {worker: end for worker, end in found.items() if end}


def repeated(directory: Path) -> dict[str, str]:
    """Return how these ended, as predicates by worker."""
    found = {}
    for worker, end in replaced(directory).items():
        times, lead = end.failures + 1, "replaces a killed process: "
        if times >= _AGAIN:
            lead = f"ended {times} times in a row; the last time, "
        found[worker] = lead + end.line(age_of(end))
    return found


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
            ends = slot(os.path.join(directory, name))  # noqa: PTH118 - likewise
        except NewerSchemaError as error:
            if refused is not None:
                refused[str(int(match[1]))] = str(error)
            continue
        if ends is not None:
            found[int(match[1])] = ends
    return {str(number): found[number] for number in sorted(found)}


def slot(path: Path | str) -> SlotEnds | None:
    """
    Return the records in the file *path*, `None` if there are none. Raises
    `NewerSchemaError`: they are of a later release.
    """
    try:
        with opened(path, os.O_RDONLY) as descriptor:
            # The lock is acquired before the record is written, and released after: if
            # nothing held it between two equal records, nothing wrote the first one.
            before, held = read_pages(descriptor), is_held(descriptor)
            pages = read_pages(descriptor)
    except OSError:
        return None
    found = records(pages)
    return found and SlotEnds(*found, held if pages == before else True)


def counts(path: Path, of: ProcessEnd) -> str | None:
    """
    Return the counters that the process *of* left in the file *path*, `None` if they
    are void: too old, removed, or replaced by its successor's. Raises `ValueError`:
    they are no text.
    """
    stored = None
    with suppress(OSError), opened(path, os.O_RDONLY) as descriptor:
        stored = stored_counts(descriptor, of)
    return None if stored is None else unpacked(stored)


def unpacked(stored: bytes) -> str:
    """
    Return the text of counters that are *stored* compressed. Raises `ValueError`: that
    is not what is stored.
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


def complete(path: Path, starts: int, facts: Mapping[str, Any]) -> None:
    """
    Add the *facts* known from outside to the record of the process *starts* of a slot,
    which is gone: its exit status. For the sidecar, if it may write there.
    """
    try:
        found = slot(path)
        end = found and found.of(starts)
        if found is None or end is None or end.exited:
            return
        if end is found.latest and found.held is not False:
            return
        with opened(path, os.O_RDWR) as descriptor:
            status = os.fstat(descriptor)
            require_own(status, path, status.st_mode)
            os.pwrite(descriptor, line_of(end.replace(**facts)), page_of(end))
    except (OSError, NewerSchemaError):  # another user's; replaced meanwhile
        pass
