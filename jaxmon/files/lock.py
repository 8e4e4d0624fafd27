"""An exclusive lock on a file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from jaxmon import interrupts


# Opening must not wait for a FIFO, nor follow a link.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
# Errors of opening if something else is there, or another user's file.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO)


class FileLock:
    """
    A lock on the file *path*, which has the permissions *mode*. The kernel releases it
    when the process exits.

    An exception of the program that is raised in here, as by a signal handler, leaks no
    descriptor: C code puts what a system call returns into a list.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        self._mode = mode
        # One descriptor or none, and the result of flock() for it.
        self._descriptors: list[int] = []
        self._locks: list[None] = []

    @property
    def held(self) -> bool:
        """Whether this process holds it, on the file as it was opened."""
        return bool(self._locks)

    def take(self) -> bool:
        """
        Acquire it, creating the file if it is missing; return `False` if another
        process holds it, or if the existing file is not ours.

        Raises:
            OSError: the file cannot be created.
        """
        try:
            while self._open() and self._lock():
                # The process that released it may have unlinked the file between open
                # and flock; a lock on an unlinked file would hold nothing.
                if self.in_place():
                    return True
                self.abandon()
        except BaseException:
            # So that nothing is unlinked that another process holds.
            if self._descriptors and not self._locks:
                self._lock()
            self.release()
            raise
        self.abandon()
        return False

    def in_place(self) -> bool:
        """Return whether the lock is held on the file that others would open."""
        if not self._locks:
            return False
        held = os.fstat(self._descriptors[0])
        return identity(self._path) == (held.st_dev, held.st_ino)

    def release(self) -> None:
        """
        Unlink the file if the lock is held, and release the lock. Idempotent: after an
        interruption, call it again.
        """
        try:
            if self.in_place():
                self._path.unlink()
        except OSError as error:
            interrupts.pass_on(error)
        self.abandon()

    def abandon(self) -> None:
        """
        Close this process's descriptor and leave the file alone.

        For a forked child: the lock belongs to the open file, which the parent
        still holds.
        """
        try:
            # An interrupt arrives before the check, or after both.
            if self._descriptors:
                os.close(self._descriptors[0])
        except OSError as error:
            interrupts.pass_on(error)
        finally:
            self._descriptors, self._locks = [], []

    def _open(self) -> bool:
        try:
            self._descriptors.extend(
                map(os.open, (os.fspath(self._path),), (_FLAGS,), (self._mode,))
            )
        except OSError as error:
            interrupts.pass_on(error)
            if error.errno in _NOT_OURS and os.path.lexists(self._path):
                return False
            raise
        return True

    def _lock(self) -> bool:
        descriptor = self._descriptors[0]
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return False
            # Overrides the umask, so that others in the group can take the lock over;
            # not permitted if the file belongs to another user.
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, self._mode)
            self._locks.extend(map(fcntl.flock, (descriptor,), (_EXCLUSIVE,)))
        except OSError as error:  # another process holds it
            interrupts.pass_on(error)
            return False
        return True


def identity(path: Path) -> tuple[int, int] | None:
    """
    Return device and inode of *path*, without following a link; `None` if it does not
    exist.
    """
    try:
        status = path.lstat()
    except OSError as error:
        interrupts.pass_on(error)
        return None
    return status.st_dev, status.st_ino
