"""
The record of a slot: how many processes had it, how many crashed, and what runs in it.

It is one line in ``agent-N.life``, which survives the processes. The holder of the slot
writes it, in single system calls: when it starts, when a loop starts or ends, and when
it finishes. A process that was killed cannot write; so the record is written as if it
would be, and whether a process is alive is known from a lock that the kernel releases.
The next process in the slot counts a predecessor that did not finish, the sidecar one
without a successor.

Finished are a program that came to its end, `sys.exit`, Ctrl-C, and
`jaxmon.uninstrument`. Crashed are an uncaught exception, one that the program handles
by `sys.exit` with the code 1, a signal, a segmentation fault, the kernel's OOM killer
and `os._exit`, at which Python runs nothing either; that is also how a child forked by
`multiprocessing` ends if it has an agent of its own. So is SIGTERM in a program that
does not handle it: nothing of Python runs then, and a handler of ours would change the
program. Where that is how processes are stopped, the program should handle it; in
Kubernetes, the pod takes its record and sidecar along.

Behind the line is room for the last words of a process, one line of JSON: how it ended,
where, and when. They stay until a process of the slot has words of its own. The file
has four kilobytes at most, and words are written in one call into a page that usually
exists, so on a full disk as well.

Anyone who may write in the run directory may write anything here: what cannot be a
record counts as none. If a cleaner removes the file, its holder or the next one starts
another.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from jaxmon import interrupts
from jaxmon.files.descriptor import FLAGS, Descriptor, require_own
from jaxmon.formats import json_text
from jaxmon.threads import RLock


State = Literal["running", "finished", "crashed"]

RUNNING: State = "running"
FINISHED: State = "finished"
CRASHED: State = "crashed"

_NAME = r"agent-([0-9]{1,4})\.life"
# A line is padded to this many bytes, so that a write replaces all of the previous one.
_SIZE = 512
_LONGEST_LOOP = 400
# Of the whole file. If words are too long for it, these are left.
_MOST = 4096
# Words have lists of causes.
_DEEPEST = 10
_NEEDED = (
    *("kind", "type", "code", "oom", "where", "time", "boottime"),
    *("index", "count", "coordinator", "pid", "observed_seconds"),
)
_LINE = (
    rb"jaxmon ([0-9]{1,15}) ([0-9]{1,15}) (running|finished|crashed) "
    rb'"([^\n]*)" *\n'
)
# struct flock of 64-bit Linux: type, whence, start, length (0: all), pid (0: none).
_FLOCK = "hhqqi4x"


class Record(NamedTuple):
    """
    What is known of a slot.

    Attributes:
        starts: agents that started in it.
        crashes: of these, those that did not finish, without the latest.
        state: of the latest; ``running`` unless it said otherwise.
        loop: the loop that runs in it, ``""`` if none does.
    """

    starts: int
    crashes: int
    state: State
    loop: str


class Slot(NamedTuple):
    """
    The record of a slot, and whether a process holds it: `None` if the system does not
    say.
    """

    record: Record
    held: bool | None

    @property
    def died(self) -> bool | None:
        """
        Whether its latest process ended without finishing, `None` if that depends on
        whether there is one.
        """
        if self.record.state == RUNNING:
            return None if self.held is None else not self.held
        return self.record.state == CRASHED


class Life:
    """
    The record of the slot that this process holds, in the file *path*, which gets the
    permissions *mode*. Without the file, as on a full disk, it does nothing.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        self._mode = mode
        self._file = Descriptor()
        self._locked = False
        # What the file has, as far as this process wrote it.
        self.record: Record | None = None
        self._lock = RLock()

    def begin(self, since: Record | None = None) -> None:
        """
        Count this process, and its predecessor if that did not finish.

        Args:
            since: this process's last record, if it was counted in this slot before
                and only recreates the file.
        """
        with self._lock:
            try:
                self._open()
                self.hold()
                self._write(_successor(_read(self._file.fileno()), since))
            except OSError as error:  # a full disk, another user's file
                self.abandon()
                interrupts.pass_on(error)

    def hold(self) -> None:
        """
        Acquire the lock by which others see that this process lives, unless it is held:
        that of a predecessor may be released a moment after its slot.
        """
        with self._lock:
            if self._locked or not self._file.opened:
                return
            try:
                fcntl.fcntl(self._file.fileno(), fcntl.F_OFD_SETLK, _flock())
                self._locked = True
            except (OSError, AttributeError) as error:  # not on this system
                interrupts.pass_on(error)

    @property
    def is_lost(self) -> bool:
        """Whether the program has closed the record's descriptor, and its lock."""
        return self._file.opened and not self._file.is_ours

    def in_place(self) -> bool:
        """Return whether the record is at its path; 4 µs."""
        return self._file.is_at(self._path)

    def run(self, loop: str) -> None:
        """Record that *loop* runs, ``""`` for none. Costs 15 µs if another one did."""
        record = self.record
        if record is None or record.loop == loop or record.state != RUNNING:
            return
        with self._lock:
            if self.record is not None:
                self._write(self.record._replace(loop=loop))

    def end(self, state: State) -> None:
        """Record how this process ends; only the first call counts."""
        with self._lock:
            if self.record is not None and self.record.state == RUNNING:
                self._write(self.record._replace(state=state))

    def say(self, words: Mapping[str, Any]) -> None:
        """
        Leave *words*, JSON types, in place of those before, with the number of this
        process in the slot as ``starts``. Takes some 30 µs.
        """
        with self._lock:
            try:
                starts = 0 if self.record is None else self.record.starts
                raw = json.dumps({"starts": starts, **words}).encode()
                if len(raw) >= _MOST - _SIZE:
                    few = {key: of for key, of in words.items() if key in _NEEDED}
                    raw = json.dumps({"starts": starts, **few}).encode()
                raw = raw.ljust(_MOST - _SIZE - 1) + b"\n"
                self._file.write(self._path, raw, _SIZE)
            except OSError as error:  # a full disk; no file
                interrupts.pass_on(error)

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
        # As in `jaxmon.files.lock`: others in the group may have the slot next.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, self._mode)
        if status.st_size > _MOST:
            os.ftruncate(descriptor, _MOST)

    def _write(self, record: Record) -> None:
        try:
            self._file.write(self._path, _line(record), 0)
        except OSError as error:
            interrupts.pass_on(error)
            return
        self.record = record


def _successor(previous: Record | None, since: Record | None) -> Record:
    """Return the record of a process that follows *previous*; see `Life.begin`."""
    if since is not None and (previous is None or previous[:2] == since[:2]):
        return since._replace(state=RUNNING)
    if previous is None:
        return Record(1, 0, RUNNING, "")
    crashes = previous.crashes + (previous.state != FINISHED)
    return Record(previous.starts + 1, crashes, RUNNING, "")


def slots(directory: Path) -> dict[str, Slot]:
    """
    Return the records in *directory* by worker (``"0"``, ``"1"``, …), some 10 µs each.

    Raises:
        OSError: the directory cannot be read.
    """
    found: dict[int, Slot] = {}
    for name in os.listdir(directory):  # noqa: PTH208 - names only, no stat
        match = re.fullmatch(_NAME, name)
        if match and (slot := _slot(os.path.join(directory, name))) is not None:  # noqa: PTH118 - likewise
            found[int(match[1])] = slot
    return {str(number): found[number] for number in sorted(found)}


def record(path: Path) -> Record | None:
    """Return the record in the file *path*, `None` if there is none."""
    found = _slot(os.fspath(path))
    return None if found is None else found.record


def last_words(path: Path) -> dict[str, Any]:
    """Return the words in the file *path*; empty if there are none, or too odd ones."""
    try:
        descriptor = os.open(path, os.O_RDONLY | FLAGS)
    except OSError:
        return {}
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return {}
        text = os.pread(descriptor, _MOST - _SIZE, _SIZE) or b"null"
        found = json_text.parse(text, odd_numbers=True, depth=_DEEPEST)
    except (OSError, ValueError):
        return {}
    finally:
        os.close(descriptor)
    return found if isinstance(found, dict) else {}


def _slot(path: str) -> Slot | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | FLAGS)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        # The lock is acquired before the record is written, and released after: if
        # nothing held it between two equal records, nothing wrote the first one.
        record, held = _read(descriptor), _is_held(descriptor)
        again = _read(descriptor)
        if again is None:
            return None
        return Slot(again, held if again == record else True)
    except OSError:
        return None
    finally:
        os.close(descriptor)


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


def _read(descriptor: int) -> Record | None:
    match = re.match(_LINE, os.pread(descriptor, _SIZE, 0))
    if match is None:
        return None
    starts, crashes, state, loop = match.groups()
    try:
        name = loop.decode("unicode_escape")
        name.encode()
    except UnicodeError:
        return None
    return Record(int(starts), int(crashes), cast("State", state.decode()), name)


def _line(record: Record) -> bytes:
    loop = record.loop.encode("unicode_escape")
    if len(loop) > _LONGEST_LOOP:  # a character takes ten bytes at most
        loop = record.loop[: _LONGEST_LOOP // 10].encode("unicode_escape")
    line = b'jaxmon %d %d %b "%b"' % (
        record.starts,
        record.crashes,
        record.state.encode(),
        loop,
    )
    return line.ljust(_SIZE - 1) + b"\n"
