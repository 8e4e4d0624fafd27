"""Atomic file writes, temporary directories, and files that are generated."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from jaxmon.errors import ConfigFileError, JaxmonError, raised
from jaxmon.host.files.bounded import kind, read


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
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
    Write *data* to the file *path*, or what it links to if *follow*, synced to disk. On
    failure the old content is kept, and no temporary file left. *private* is for the
    owner only; else the umask decides. Raises `FileExistsError`: it exists, without
    *replace*; `OSError`: of *path*.
    """
    try:
        target = path.resolve() if follow and path.is_symlink() else path
        _require_regular(target)
        temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}")
        number = os.open(temporary, _NEW, 0o600 if private else 0o666)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                if not private:
                    _imitate(number, target)
                os.fsync(number)
            _put(temporary, target, replace=replace)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_directory(target.parent)
    except OSError as error:
        error.filename = str(path)
        del error.filename2  # None would be part of its text
        raise


def unwritable(path: Path) -> str:
    """Return why the file *path* cannot be written, empty if it seems that it can."""
    if path.exists() and not path.is_file():
        return f"it is {kind(path.stat().st_mode)}"
    if not path.parent.is_dir():
        return "its directory does not exist"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return "its directory cannot be written to"
    return ""


def _require_regular(target: Path) -> None:
    """Reject a device, a pipe or anything else that a file would replace."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(mode := target.lstat().st_mode):
            raise OSError(errno.EINVAL, f"it is {kind(mode)}; give a file")


def _imitate(number: int, target: Path) -> None:
    """Give a new file the permissions of *target*, if there is one."""
    with suppress(FileNotFoundError):
        mode = target.lstat().st_mode
        # Some network file systems have one mode for all files, and no chmod.
        if mode != os.fstat(number).st_mode:
            os.fchmod(number, stat.S_IMODE(mode) & 0o777)


def _put(temporary: Path, target: Path, *, replace: bool) -> None:
    if replace:
        temporary.replace(target)
        return
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # If another process creates it in between, it is replaced.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        temporary.replace(target)


def _sync_directory(directory: Path) -> None:
    # Not every file system can; the file itself is on the disk.
    with suppress(OSError):
        number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def directory(prefix: str) -> Iterator[Path]:
    """Create a directory for the block, and remove it. Raises `JaxmonError`."""
    try:
        # A process that was started may write there while we clean up.
        made = TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        msg = (
            f"cannot create a temporary directory: {error.strerror}; free some "
            "space, or set TMPDIR to a directory that can be written to"
        )
        raise JaxmonError(msg) from error
    with made as name:
        yield Path(name)


Artifacts = Mapping[str, str]

# What we write has a hundredth of that.
_MOST_BYTES = 32 << 20


def write_all(root: Path, artifacts: Artifacts) -> list[str]:
    """Write *artifacts*, text by POSIX path, below *root*; return the changed paths."""
    changed = []
    for path, text in sorted(artifacts.items()):
        target = root / path
        if _read(target) != text.encode():
            target.parent.mkdir(parents=True, exist_ok=True)
            write(target, text.encode())
            changed.append(path)
    return changed


def check(root: Path, artifacts: Artifacts) -> Iterator[str]:
    """Yield one report for each file that `write_all` would change; writes nothing."""
    for path, text in sorted(artifacts.items()):
        found = _read(root / path)
        if found is None:
            yield f"missing: {path}\n"
        elif found != text.encode():
            yield f"changed: {path}\n{_diff(path, found, text)}"


def _read(path: Path) -> bytes | None:
    """Return the file *path*, `None` without one; `JaxmonError` if it is no file."""
    if not path.exists():
        return None
    with raised(JaxmonError, path, ConfigFileError):
        return read(path, most=_MOST_BYTES)


def _diff(path: str, found: bytes, text: str) -> str:
    import difflib  # noqa: PLC0415 - few files are generated

    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ no newline at end of file\n"
        for line in difflib.unified_diff(
            found.decode(errors="replace").splitlines(keepends=True),
            text.splitlines(keepends=True),
            f"{path} (current)",
            f"{path} (as generated)",
        )
    )
