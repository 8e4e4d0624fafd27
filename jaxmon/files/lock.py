"""An exclusive lock on a file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from jaxmon import interrupts
from jaxmon.files.descriptor import FLAGS, Descriptor, require_own


_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
# Errors of opening if something else is there, or another user's file.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO)


class FileLock:
    """
    A lock on the file *path*, which has the permissions *mode*. The kernel releases it
    when the process exits, or closes its descriptor.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        self._mode = mode
        self._file = Descriptor()
        # The result of flock(): see `Descriptor` for why it is in a list.
        self._locks: list[None] = []

    @property
    def held(self) -> bool:
        """Whether this process holds it, on the file as it was opened."""
        return bool(self._locks)

    @property
    def is_lost(self) -> bool:
        """Whether it was held until the program closed its descriptor."""
        return self.held and not self._file.is_ours

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
            if self._file.opened and not self._locks:
                self._lock()
            self.release()
            raise
        self.abandon()
        return False

    def in_place(self) -> bool:
        """Return whether the lock is held on the file that others would open."""
        return self.held and self._file.is_at(self._path)

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
        self._file.close()
        self._locks = []

    def _open(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | FLAGS
        try:
            self._file.open(os.fspath(self._path), flags, self._mode)
        except OSError as error:
            interrupts.pass_on(error)
            if error.errno in _NOT_OURS and os.path.lexists(self._path):
                return False
            raise
        return True

    def _lock(self) -> bool:
        try:
            descriptor = self._file.fileno()
            require_own(os.fstat(descriptor), self._path, self._mode)
            # Overrides the umask, so that others in the group can take the lock over;
            # not permitted if the file belongs to another user.
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, self._mode)
            self._locks.extend(map(fcntl.flock, (descriptor,), (_EXCLUSIVE,)))
        except OSError as error:  # another process holds it, or it is no file of ours
            interrupts.pass_on(error)
            return False
        return True
