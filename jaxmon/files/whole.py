"""Atomic file writes."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from jaxmon.files.bounded import kind


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def write(
    path: Path,
    data: bytes,
    *,
    private: bool = False,
    replace: bool = True,
    follow: bool = True,
) -> None:
    """
    Write *data* to the file *path*, synced to disk.

    On any failure the previous content is kept, and no temporary file is left behind.

    Args:
        path: of the file, or of a symbolic link to it.
        data: all of it.
        private: readable by the owner only; otherwise, the umask decides.
        replace: overwrite an existing file; otherwise that is an error.
        follow: accept a symbolic link, in whose place others cannot put theirs.

    Raises:
        FileExistsError: there is a file, and *replace* is false.
        OSError: it cannot be written; its file name is *path*.
    """
    try:
        target = path.resolve() if follow and path.is_symlink() else path
        found = _existing(target)
        name = f".{target.name[:100]}.{os.urandom(6).hex()}"
        temporary = os.fspath(target.with_name(name))
        # The umask applies to what is new.
        number = os.open(temporary, _NEW, 0o600 if private else 0o666)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                if found is not None and not private:
                    os.fchmod(number, found.st_mode & 0o777)
                os.fsync(number)
            _put(temporary, target, replace=replace)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)  # noqa: PTH108 - a text
        _sync_directory(target.parent)
    except OSError as error:
        error.filename = str(path)
        del error.filename2  # None would be part of its text
        raise


def _existing(target: Path) -> os.stat_result | None:
    """
    Return the status of what is replaced, `None` if there is nothing.

    Raises:
        OSError: it is a device, a pipe or anything else but a file.
    """
    try:
        status = target.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind(status.st_mode)}; give a file")
    return status


def _put(temporary: str, target: Path, *, replace: bool) -> None:
    if not replace:
        try:
            os.link(temporary, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # If another process creates it in between, it is replaced.
            if target.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        else:
            return
    os.replace(temporary, target)  # noqa: PTH105 - a text


def _sync_directory(directory: Path) -> None:
    # Not every file system can; the file itself is on the disk.
    with suppress(OSError):
        number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
