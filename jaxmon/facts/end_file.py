"""
The bytes of ``agent-N.end``: two pages of records by turns, counts behind them, a lock.

Each record is one line of JSON in a page of its own, so that none replaces that of the
process before it. See `jaxmon.facts.endings` for what they mean.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import struct
from pathlib import Path

from jaxmon import interrupts
from jaxmon.facts import ending
from jaxmon.facts.ending import ProcessEnd
from jaxmon.host.files.descriptor import FLAGS
from jaxmon.host.formats import json_text
from jaxmon.host.formats.schema import NewerSchemaError


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
# A record is read again if it is written meanwhile.
_ATTEMPTS = 3
# struct flock of 64-bit Linux: type, whence, start, length (0: all), pid (0: none).
_FLOCK = "hhqqi4x"


def open_slot(path: Path | str, flags: int) -> int | None:
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
