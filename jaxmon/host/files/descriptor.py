"""
A descriptor that stays open in the user's program.

A program may close any number, also of files that it did not open: one that becomes a
daemon closes them all, and what it opens next gets the same numbers. So the file behind
a number is compared with the one that was opened, before each use and before the number
is closed.
Only a thread that closes it just in between goes unnoticed; what is written rarely is
therefore written through its path.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmon import interrupts


if TYPE_CHECKING:
    import socket


# A file that is there is opened without waiting for a FIFO, and no link is followed.
FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Linux, asm-generic/socket.h; `socket` has only the first.
_SOL_SOCKET, _SO_COOKIE = 1, 57
NONE_LEFT = (errno.EMFILE, errno.ENFILE)


class DescriptorLostError(OSError):
    """The program has closed *name*."""

    def __init__(self, name: str = "a descriptor of jaxmon's") -> None:
        super().__init__(errno.EBADF, f"the program has closed {name}")


class Descriptor:
    """
    At most one open file. An exception of the program that is raised in here, as by a
    signal handler, leaks none: C code puts a system call's result into a list.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._files: list[tuple[int, int]] = []

    def open(self, path: str, flags: int, mode: int = 0o600) -> None:
        """Open *path*, once. Raises `OSError`: as `os.open`."""
        self._numbers.extend(map(os.open, (path,), (flags,), (mode,)))
        self._files.extend(map(_file_of, self._numbers))

    @property
    def opened(self) -> bool:
        """Whether it was opened, and not closed by us."""
        return bool(self._numbers)

    @property
    def is_ours(self) -> bool:
        """Whether it is open, and still the file that was opened; 2 µs."""
        try:
            return bool(self._files) and _file_of(self._numbers[0]) == self._files[0]
        except OSError as error:
            interrupts.pass_on(error)
            return False

    def fileno(self) -> int:
        """Return the number, for use at once, or raise a `DescriptorLostError`."""
        if not self.is_ours:
            raise DescriptorLostError
        return self._numbers[0]

    def is_at(self, path: Path) -> bool:
        """Return whether it is ours, and the file at *path*; 4 µs."""
        return self.is_ours and identity(path) == self._files[0]

    @contextmanager
    def through(self, path: Path) -> Iterator[int]:
        """
        Yield a descriptor of the file that was opened at *path*, to write to: as far as
        possible a fresh one, also if the program has closed this one. 10 µs. Raises
        `DescriptorLostError`: it is no longer ours, or no longer at *path*.
        """
        fresh = Descriptor()
        try:
            try:
                fresh.open(os.fspath(path), os.O_RDWR | FLAGS)
            except OSError as error:
                # No descriptor is left, or the program runs as another user now.
                interrupts.pass_on(error)
            file = fresh if fresh.opened else self
            if file._files != self._files:  # noqa: SLF001 - its own
                raise DescriptorLostError
            yield file.fileno()
        finally:
            try:
                fresh.close()
            finally:
                fresh.close()  # an exception of a signal may have ended the first

    def close(self) -> None:
        """Close it if it is ours. Idempotent: after an interruption, call it again."""
        try:
            # Without its status, it was opened by a call that has been interrupted.
            if self._numbers and (self.is_ours or not self._files):
                os.close(self._numbers[0])
        except OSError as error:
            interrupts.pass_on(error)
        self._numbers, self._files = [], []


class OwnedSocket:
    """The socket *sock*, which only this closes, with a *name* for messages."""

    def __init__(self, sock: socket.socket, name: str = "a socket of jaxmon's") -> None:
        self._sock = sock
        self._name = name
        self._identity = _socket_of(sock)

    @property
    def is_ours(self) -> bool:
        """Whether it is open, and still the socket that was opened; 1 µs."""
        try:
            return _socket_of(self._sock) == self._identity
        except OSError as error:
            interrupts.pass_on(error)
            return False

    def get(self) -> socket.socket:
        """Return the socket, for use at once, or raise a `DescriptorLostError`."""
        if not self.is_ours:
            raise DescriptorLostError(self._name)
        return self._sock

    def fileno(self) -> int:
        """Return the number that it has or had, -1 once it was closed by us."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close it if it is ours. Idempotent."""
        if self.is_ours:
            self._sock.close()
        else:
            self._sock.detach()  # or Python would close the number with the object


def require_own(status: os.stat_result, path: Path, mode: int) -> None:
    """
    Check that the open file *path*, of *status*, may be written to: a regular file of
    this user, or of the directory's, without another name. Others who can write in that
    directory may have made a link to a file that only this user may change. By *mode*
    the group may have written it. Raises `OSError`: it is something else.
    """
    if not stat.S_ISREG(status.st_mode):
        problem = "not a regular file"
    elif status.st_nlink > 1:
        problem = "it has another name, as a hard link"
    elif not (
        status.st_uid == os.geteuid()
        or mode & stat.S_IWGRP
        # As on network file systems that map users.
        or status.st_uid == path.parent.stat().st_uid
    ):
        problem = "it belongs to another user"
    else:
        return
    raise OSError(errno.EPERM, problem, os.fspath(path))


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of *path*, which may be a link; `None` without one."""
    try:
        status = path.lstat()
    except OSError as error:
        interrupts.pass_on(error)
        return None
    return status.st_dev, status.st_ino


def _file_of(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino


def _socket_of(sock: socket.socket) -> tuple[int, int] | bytes:
    """
    Return what only this socket of the host has. Unlike `os.fstat`, this keeps the GIL,
    so that no thread of Python closes it before the next call of a method of *sock*.
    """
    try:
        return sock.getsockopt(_SOL_SOCKET, _SO_COOKIE, 8)
    except OSError as error:  # not Linux, or no socket any more
        interrupts.pass_on(error)
        return _file_of(sock.fileno())


_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
# Errors of opening if something else is there, or another user's file.
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO)


class FileLock:
    """A lock on the file *path*, of permissions *mode*; it ends with its descriptor."""

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
        Acquire it, creating the file; return `False` if another process holds it, or if
        the file is not ours. Raises `OSError`: it cannot be created.
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
        """Unlink the file if held, and release the lock; interrupted, call it again."""
        try:
            if self.in_place():
                self._path.unlink()
        except OSError as error:
            interrupts.pass_on(error)
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptor only: in a forked child, the parent holds the lock."""
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
