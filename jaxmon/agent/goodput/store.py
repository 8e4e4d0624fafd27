"""
The file of a run's record: read, taken over and replaced by one process at a time.

There is no lock: not every shared file system has them, and one that a lost machine
holds would stop the run from being recorded. Each write reads what is there first. A
process whose successor has begun to write stops.

A network file system may show a file that another host has replaced in part, for as
long as it keeps attributes. So what cannot be read as a record is left alone at first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from jaxmon.agent.goodput import identity
from jaxmon.agent.goodput.identity import Run, Writer
from jaxmon.agent.goodput.succession import begun, supersedes
from jaxmon.clocks import monotonic
from jaxmon.errors import ConfigFileError, JaxmonError
from jaxmon.facts import run as record
from jaxmon.facts.run import NewerRecordError, RunRecord, RunRecordError
from jaxmon.files import whole


# What a process left that was killed while it wrote.
_LEFT_SECONDS = 3600.0
# Longer than network file systems keep attributes: NFS and gcsfuse at most 60 s.
_DOUBT_SECONDS = 90.0


class SupersededError(JaxmonError):
    """Another process keeps the record now."""


class Store:
    """
    The record of *run*, as process *me* keeps it.

    Args:
        run: the run.
        me: this process.
        clock: returns seconds, of any epoch.

    Attributes:
        path: of the file.
        broken: what was there instead of a record, in words; empty if nothing was.
    """

    def __init__(
        self, run: Run, me: Writer, clock: Callable[[], float] = monotonic
    ) -> None:
        self._run = run
        self._me = me
        self._clock = clock
        # Since when the file is no record.
        self._doubted: float | None = None
        self.path = record.path_of(run.directory, run.name)
        self.broken = ""

    def begin(self) -> tuple[RunRecord, bool] | None:
        """
        Return the record as this process begins to keep it, not yet written, and
        whether an earlier agent of this process has kept it; `None` while a living
        process of this host does.

        Raises:
            OSError: it cannot be read.
            NewerRecordError: a later release has written it.
        """
        previous = self._read()
        if self.broken:
            self.broken += ", and the record of the run begins anew"
        continues = previous is not None and previous.writer == str(self._me)
        if previous is not None and not continues:
            if identity.lives(previous.writer, self._me):
                return None
            self._tidy()
        now = identity.moment()
        found = begun(
            previous,
            self._run,
            self._me,
            host=os.uname().nodename,
            now=now,
            age=self._me.age(now),
        )
        return found, continues

    def write(self, current: RunRecord) -> None:
        """
        Replace the record by the *current* one.

        Raises:
            OSError: it cannot be read or written.
            NewerRecordError: a later release has written it.
            SupersededError: another process keeps it.
        """
        self._run.directory.mkdir(parents=True, exist_ok=True)
        found = self._read()
        if found is not None and supersedes(found, current):
            msg = f"{self.path} is kept by another process, on {found.host or 'a host'}"
            raise SupersededError(msg)
        whole.write(self.path, current.as_json(), follow=False)

    def _read(self) -> RunRecord | None:
        """
        Return the record, `None` if there is none or what is there is none.

        Raises:
            OSError: it cannot be read, or not yet.
            NewerRecordError: a later release has written it.
        """
        doubted, self._doubted = self._doubted, None
        try:
            self.path.stat()
        except FileNotFoundError:
            return None
        try:
            return record.read(self.path)
        except NewerRecordError:
            raise
        except RunRecordError as error:
            now = self._clock()
            since = now if doubted is None else doubted
            if now - since < _DOUBT_SECONDS:
                self._doubted = since
                msg = f"{self.path} {error}"
                raise OSError(msg) from error
            self._set_aside(error)
            return None
        except ConfigFileError as error:
            # A directory, or larger than any record, or not to be read.
            msg = f"{self.path} {error}"
            raise OSError(msg) from error

    def _set_aside(self, error: RunRecordError) -> None:
        """Keep what is no record beside it, for people, if that is possible."""
        aside = self.path.with_name(f"{self.path.name}.broken")
        self.broken = f"{self.path} {error}"
        with suppress(OSError):
            self.path.replace(aside)
            self.broken += f"; it is now {aside.name}"

    def _tidy(self) -> None:
        """Remove what earlier processes left of files that they did not finish."""
        old = time.time() - _LEFT_SECONDS
        with suppress(OSError):
            for one in self.path.parent.glob(f".{self.path.name[:100]}.*"):
                if one.stat().st_mtime < old:
                    one.unlink()
