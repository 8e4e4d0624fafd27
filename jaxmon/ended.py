"""
What the processes of a slot counted that have ended, in ``agent-N.ended``.

A process that ends between two polls of the sidecar would take its counts along. So the
holder of a slot, when it stops, writes its counters there, added to those of the
processes before it; the sidecar serves them for a while, and adds them to what the
slot's next process counts. A series of a slot thus only rises, whoever reads it and how
often, and every count is in it once.

Such a chain ends where the next process cannot know what its predecessor counted: it
was killed, or crashed, ended too long ago, or could not write. The next process then
removes the file, and its series begin anew. It decides that before it counts as a start
of the slot (`jaxmon.life`); whose counts a file has is known from the number of starts
in it.

The file is one line and compressed text, replaced as a whole. Anyone who may write in
the run directory may write anything here: what is no such file counts as none.
"""

from __future__ import annotations

import errno
import math
import os
import re
import stat
import zlib
from pathlib import Path
from typing import NamedTuple

from jaxmon import interrupts
from jaxmon.clocks import monotonic


KEPT = 300.0
"""
Seconds for which the counts of an ended process are served, and wait for a successor:
longer than a scrape and an evaluation of the slowest rules.
"""

MOST = 1 << 20
"""Maximum size of the text: of some 10,000 series."""

_NAME = r"agent-([0-9]{1,4})\.ended"
_HEAD = rb"jaxmon ([0-9]{1,15}) ([0-9]{1,12}\.[0-9]{3}) ([0-9]{1,12}\.[0-9]{3})\n"
_LONGEST_HEAD = 64
_MOST_STORED = 1 << 18
# What must stay free, of a small file system half: sockets need space there, too.
_RESERVE = 64 << 20
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class Ended(NamedTuple):
    """
    The counts of a slot's ended processes.

    Attributes:
        starts: agents that had started in the slot when the latest of them ended.
        since: when counting began, by `monotonic`: the host's clock, of all processes.
        ended: when the latest of them ended.
        stored: their counters as text, compressed.
    """

    starts: int
    since: float
    ended: float
    stored: bytes

    def age(self) -> float | None:
        """Return seconds since the end; `None` if that was too long ago to count."""
        age = monotonic() - self.ended
        # Not in the future, as after a restart of the host, whose clock begins at 0.
        return age if 0 <= age <= KEPT and self.since <= self.ended else None

    def text(self) -> str:
        """
        Return the counters.

        Raises:
            ValueError: that is not what is stored.
        """
        inflate = zlib.decompressobj()
        try:
            found = inflate.decompress(self.stored, MOST + 1)
        except zlib.error as error:
            msg = f"malformed: {error}"
            raise ValueError(msg) from None
        if len(found) > MOST or not inflate.eof:
            msg = f"truncated, or larger than {MOST} bytes"
            raise ValueError(msg)
        return found.decode()


def ended(starts: int, since: float, text: bytes) -> Ended:
    """Return counts of a process that ends now."""
    return Ended(starts, since, monotonic(), zlib.compress(text, 1))


def path_of(socket: Path) -> Path:
    """Return the path of the file of the slot with this *socket*."""
    return socket.with_suffix(".ended")


def files(directory: Path) -> dict[str, Path]:
    """
    Return the files in *directory* by worker.

    Raises:
        OSError: the directory cannot be read.
    """
    names = os.listdir(directory)  # noqa: PTH208 - names only, no stat
    found = {name: re.fullmatch(_NAME, name) for name in names}
    return {str(int(one[1])): directory / name for name, one in found.items() if one}


def read(path: Path) -> Ended | None:
    """Return what is in the file *path*, `None` if it is none of ours."""
    try:
        number = os.open(path, _READ)
    except OSError as error:
        interrupts.pass_on(error)
        return None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_STORED:
            return None
        raw = os.read(number, _MOST_STORED)
    except OSError as error:
        interrupts.pass_on(error)
        return None
    finally:
        os.close(number)
    match = re.match(_HEAD, raw[:_LONGEST_HEAD])
    if match is None:
        return None
    starts, since, end = match.groups()
    return Ended(int(starts), float(since), float(end), raw[match.end() :])


def write(path: Path, counts: Ended, mode: int) -> None:
    """
    Replace the file *path*, with the permissions *mode*. Only for the holder of the
    slot. Not synced: after a restart of the host, it would be void.

    Raises:
        OSError: it is too large, or there is too little space.
    """
    # Rounded down: the end is not in the future.
    since, end = (math.floor(one * 1000) / 1000 for one in (counts.since, counts.ended))
    raw = b"jaxmon %d %.3f %.3f\n" % (counts.starts, since, end) + counts.stored
    if len(raw) > _MOST_STORED:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(path))
    space = os.statvfs(path.parent)
    free, size = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    if free - len(raw) < min(size // 2, _RESERVE):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
    new = path.with_suffix(".ended-new")
    new.unlink(missing_ok=True)  # of a process that was killed just then
    number = os.open(new, _WRITE, mode)
    try:
        try:
            os.fchmod(number, mode)  # overrides the umask
            _write_all(number, raw)
        finally:
            os.close(number)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def remove(path: Path) -> None:
    """Remove the file *path*, as far as that is possible."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # a directory
        interrupts.pass_on(error)


def _write_all(number: int, raw: bytes) -> None:
    while raw:
        raw = raw[os.write(number, raw) :]
