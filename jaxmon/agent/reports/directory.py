"""A directory of reports: private and size-limited."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxmon.clocks import wall_time
from jaxmon.errors import JaxmonError


MAX_REPORTS = 20
"""Maximum number of out-of-memory reports, of all processes together."""

MAX_BYTES = 256 * 1024
"""Maximum size of one file of these."""

_NAME = "jaxmon-reports"
# A file that has been unfinished for this long belongs to a process that was killed.
_STALE_SECONDS = 3600

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ReportKind(NamedTuple):
    """
    Reports of one kind: *prefix* of the names of their files, maximum number in a
    directory, of all processes together, maximum size of a file, and the *variable*
    that sets the directory.
    """

    prefix: str
    most: int
    most_bytes: int
    variable: str


OOM = ReportKind("oom", MAX_REPORTS, MAX_BYTES, "JAXMON_REPORT_DIR")


class ReportDirError(JaxmonError):
    """The report directory is unusable."""


class ReportDirectory:
    """
    Writes reports of a *kind* to the *chosen* directory, by default ``jaxmon-reports``
    in that for temporary files, and removes the oldest.

    All operations are relative to an open descriptor of the directory, so another user
    with write access to its parent cannot redirect our writes.
    """

    def __init__(self, chosen: str | None = None, kind: ReportKind = OOM) -> None:
        self._kind = kind
        self._is_chosen = chosen is not None
        # The program may change its working directory before the first report.
        path = Path(chosen) if chosen else Path(_temporary(), _NAME)
        self.path = path.absolute()

    def write(self, stem: str, texts: Mapping[str, str]) -> Path:
        """
        Write a file for each suffix in *texts*; return the path of the first.

        Each file appears complete or not at all, readable by this user only.

        Raises:
            ReportDirError: the directory is unusable.
            OSError: writing failed, for example because the disk is full.
        """
        directory = self._open()
        try:
            self._prune(directory)
            for suffix, text in texts.items():
                # File names and messages may contain what UTF-8 cannot encode.
                content = text.encode(errors="backslashreplace")[
                    : self._kind.most_bytes
                ]
                _write(directory, f"{stem}{suffix}", content)
        finally:
            os.close(directory)
        return self.path / f"{stem}{next(iter(texts))}"

    def _open(self) -> int:
        try:
            self.path.mkdir(mode=0o700, parents=self._is_chosen, exist_ok=True)
            descriptor = os.open(self.path, _DIRECTORY)
        except OSError as error:
            what = (
                "is a symbolic link, which anyone could have created"
                if self.path.is_symlink()
                else f"is unusable: {error.strerror}"
            )
            raise ReportDirError(self._refusal(what)) from error
        try:
            self._check(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        mine = status.st_uid == os.getuid()
        # A volume mounted by an administrator belongs to root.
        if not mine and not (self._is_chosen and status.st_uid == 0):
            what = f"belongs to uid {status.st_uid}, not to {os.getuid()}"
            raise ReportDirError(self._refusal(what))
        if not self._is_chosen and stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)

    def _refusal(self, what: str) -> str:
        return (
            f"report directory {self.path} {what}; set {self._kind.variable} to a "
            "writable directory that you own"
        )

    def _prune(self, directory: int) -> None:
        prefix, reports = self._kind.prefix, dict[str, list[str]]()
        report = rf"({prefix}-\d{{8}}T\d{{6}}Z-\d+-\d+)\.\w+"
        for name in os.listdir(directory):
            if found := re.fullmatch(report, name):
                reports.setdefault(found[1], []).append(name)
            elif re.fullmatch(rf"\.{prefix}-.*\.part", name):
                _remove(directory, name, older_than=wall_time() - _STALE_SECONDS)
        # Names start with the time, so they sort by age.
        for stem in sorted(reports)[: max(len(reports) - self._kind.most + 1, 0)]:
            for name in reports[stem]:
                _remove(directory, name)


def stem_of(moment: float, number: int, kind: ReportKind = OOM) -> str:
    """Return the file name, without suffix, of this process's report *number*."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))
    return f"{kind.prefix}-{when}-{os.getpid()}-{number}"


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # not writable; writing a report will fail with a message
        return "/tmp"  # noqa: S108 - nothing is made there


def _write(directory: int, name: str, content: bytes) -> None:
    part = f".{name}.{os.getpid()}.part"
    descriptor = os.open(part, _FRESH, 0o600, dir_fd=directory)
    try:
        try:
            while content:
                content = content[os.write(descriptor, content) :]
        finally:
            os.close(descriptor)
        os.rename(part, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=directory)
        raise


def _remove(directory: int, name: str, older_than: float | None = None) -> None:
    # Another process may be faster.
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if older_than is None or status.st_mtime < older_than:
            os.unlink(name, dir_fd=directory)
