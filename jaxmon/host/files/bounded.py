"""
Reading files that users name: regular files only, and no larger than a limit.

A wrong path costs an error message and nothing else: a pipe without a writer does not
block, and an endless device does not fill the memory. A command that reads a file once
also accepts a pipe, such as the shell's ``<(...)``, and waits for it with a deadline.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable
from pathlib import Path

from jaxmon.errors import ConfigFileError


MAX_BYTES = 1 << 20
"""Maximum size of a configuration file: thousands of users, prices or objectives."""

PIPE_SECONDS = 30.0
"""Time for a process to write to a pipe: it may have to prompt for a password."""

_CHUNK = 1 << 16
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind(mode: int) -> str:
    """Return what kind of file has *mode*, for one that is not regular."""
    return _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def require_regular(path: Path, *, most: int = MAX_BYTES) -> None:
    """
    Check that *path* is a regular file of at most *most* bytes: a pipe waits, a device
    may be endless, and neither can be reloaded. Raises `ConfigFileError`.
    """
    try:
        _require_regular(path.stat(), most)
    except ConfigFileError:
        raise
    except (OSError, ValueError) as error:  # a zero byte is no part of a path
        raise _unreadable(error) from error


def read(
    path: Path,
    *,
    most: int = MAX_BYTES,
    pipe: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> bytes:
    """
    Return the file *path*, of at most *most* bytes; if *pipe* is set, also of a pipe,
    within `PIPE_SECONDS` by *clock*. Raises `ConfigFileError`: it is no such file,
    larger, or cannot be read.
    """
    try:
        if not (pipe and stat.S_ISFIFO(path.stat().st_mode)):
            require_regular(path, most=most)
        # What it was a moment ago it need not be now.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            status = os.fstat(number)
            if pipe and stat.S_ISFIFO(status.st_mode):
                raw = _from_pipe(number, most, clock)
            else:
                _require_regular(status, most)
                raw = file.read(most + 1)
    except ConfigFileError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error
    _require_size(len(raw), most)
    return raw


def read_text(path: Path, *, most: int = MAX_BYTES, pipe: bool = False) -> str:
    """Return the UTF-8 text in the file *path*; all else is as for `read`."""
    raw = read(path, most=most, pipe=pipe)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        msg = "not UTF-8"
        raise ConfigFileError(msg, line=line) from error


def _from_pipe(number: int, most: int, clock: Callable[[], float]) -> bytes:
    raw, end = bytearray(), clock() + PIPE_SECONDS
    ready = select.poll()
    # Until a writer opens the pipe, read() returns an end of file; poll() waits.
    ready.register(number, select.POLLIN)
    while len(raw) <= most:
        left = end - clock()
        if left <= 0 or not ready.poll(left * 1000):
            msg = f"is a pipe that was not closed within {PIPE_SECONDS:g} s"
            raise ConfigFileError(msg)
        if not (part := os.read(number, _CHUNK)):
            break
        raw += part
    return bytes(raw)


def _require_regular(status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        msg = f"is {kind(status.st_mode)}, not a regular file"
        raise ConfigFileError(msg)
    _require_size(status.st_size, most)


def _require_size(size: int, most: int) -> None:
    if size > most:
        unit, name = (1 << 20, "MiB") if most >= 1 << 20 else (1 << 10, "KiB")
        msg = f"too large (limit {most // unit} {name})"
        raise ConfigFileError(msg)


def _unreadable(error: OSError | ValueError) -> ConfigFileError:
    reason = error.strerror if isinstance(error, OSError) else "not a valid file path"
    return ConfigFileError(f"cannot be read: {reason}")
