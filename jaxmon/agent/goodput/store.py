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
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jaxmon import interrupts
from jaxmon.clocks import monotonic, wall_time
from jaxmon.errors import ConfigFileError, JaxmonError
from jaxmon.facts import run as record
from jaxmon.facts.run import NewerRecordError, RunRecord
from jaxmon.host import rundir
from jaxmon.host.files import whole
from jaxmon.settings import Settings


# What schedulers call the job; in Kubernetes by the downward API.
_NAMES = (
    *("JOBSET_NAME", "K8S_JOB_NAME", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"),
    "AWS_BATCH_JOB_ID",
)
# How often that was restarted; some count the first attempt as 1.
_ATTEMPTS = {
    "JOBSET_RESTART_ATTEMPT": 0,
    "SLURM_RESTART_COUNT": 0,
    "TORCHELASTIC_RESTART_COUNT": 0,
    "AWS_BATCH_JOB_ATTEMPT": 1,
}
_LONGEST = 256
_DIRECTORY = "runs"
# In /proc/PID/stat after the name: state, and start in clock ticks since boot.
_STATE, _STARTED = 0, 19
_DEAD = (b"Z", b"X")


class AttemptIdentity(NamedTuple):
    """The run of an attempt, its number if known, and where its record is."""

    name: str
    attempt: int | None
    directory: Path


class ClockPair(NamedTuple):
    """
    A moment: Unix time, comparable between hosts as far as their clocks agree, and
    seconds since the host was started, suspended or not.
    """

    wall: float
    boottime: float


class Writer(NamedTuple):
    """A process, as others find it: its kernel's start, and its own in ticks."""

    boot: str
    pid: int
    started: str

    def age(self, now: ClockPair) -> float:
        """Return how long ago it started; 0 if the system does not say."""
        with interrupts.expected(ValueError, OSError):
            if began := int(self.started) / os.sysconf("SC_CLK_TCK"):
                # In hundredths: a process may seem to start in the future.
                return max(now.boottime - began, 0.0)
        return 0.0

    def __str__(self) -> str:
        return f"{self.boot}/{self.pid}/{self.started}"


def job_of(environ: Mapping[str, str] = os.environ) -> str:
    """Return what the scheduler calls the job, empty if it does not."""
    found = (environ.get(name, "") for name in _NAMES)
    return next(filter(None, found), "")[:_LONGEST]


def attempt_of(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return how often the scheduler restarted the job, `None` if it does not say."""
    for variable, first in _ATTEMPTS.items():
        text = environ.get(variable, "")
        if text.isascii() and text.isdecimal() and len(text) < len(str(10**6)):
            return max(int(text) - first, 0)
    return None


def run_of(
    settings: Settings, environ: Mapping[str, str] = os.environ
) -> AttemptIdentity:
    """Return the run of *settings*, which name one, or where its record is."""
    if settings.run_state is None:
        directory = rundir.locate(settings.run_dir, environ) / _DIRECTORY
    else:
        directory = Path(settings.run_state)
    directory = directory.absolute()
    name = settings.run or job_of(environ) or directory.name or "run"
    given = settings.attempt
    attempt = attempt_of(environ) if given is None else given
    return AttemptIdentity(record.name(name), attempt, directory)


def moment() -> ClockPair:
    """Return the current moment."""
    with interrupts.expected(AttributeError, OSError):  # not Linux
        return ClockPair(wall_time(), time.clock_gettime(time.CLOCK_BOOTTIME))
    return ClockPair(wall_time(), monotonic())


def this_process() -> Writer:
    """Return this process."""
    pid = os.getpid()
    fields = _stat(pid)
    return Writer(_boot(), pid, fields[_STARTED].decode() if fields else "0")


def lives(writer: str, me: Writer) -> bool:
    """Return whether *writer* runs beside this process, in this container."""
    boot, _, rest = writer.partition("/")
    pid, _, started = rest.partition("/")
    if not boot or boot != me.boot or not (pid.isascii() and pid.isdecimal()):
        return False
    fields = _stat(int(pid))
    if not fields or fields[_STATE] in _DEAD:
        return False
    return fields[_STARTED].decode() == started


def _stat(pid: int) -> list[bytes]:
    with interrupts.expected(OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields if len(fields) > _STARTED else []
    return []


def _boot() -> str:
    with interrupts.expected(OSError, ValueError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


# Of a scheduler's number that jumps.
_MOST_UNSEEN = 1_000_000


def begun(  # noqa: PLR0913 - two processes, and the time between
    previous: RunRecord | None,
    run: AttemptIdentity,
    me: Writer,
    *,
    host: str,
    now: ClockPair,
    age: float,
) -> RunRecord:
    """
    Return the record as process *me* begins to keep it, accounted for up to its start,
    *age* seconds ago; *previous* was found, `None` if there was none.
    """
    started = ClockPair(now.wall - age, now.boottime - age)
    if previous is None:
        unseen = min(run.attempt or 0, _MOST_UNSEEN)
        fresh = RunRecord(
            schema=record.SCHEMA,
            run=run.name,
            starts=1,
            began=started.wall,
            interruptions={record.UNSEEN: unseen} if unseen else {},
            fruitless=1,
        )
        return _held(fresh, run, me, host, started)
    if previous.writer == str(me):
        # An agent that was stopped and started again in the same process.
        return previous.replace(ended="")
    gap, until = _gap(previous, me, started)
    ended = Counter(previous.interruptions)
    ended[previous.ended or record.KILLED] += 1
    if run.attempt is not None and previous.attempt is not None:
        unseen = min(run.attempt - previous.attempt - 1, _MOST_UNSEEN)
        if unseen > 0:
            ended[record.UNSEEN] += unseen
    waited = previous.seconds.get(record.WAITING, 0.0) + gap
    new_ground = previous.step >= previous.furthest
    fresh = previous.replace(
        starts=previous.starts + 1,
        ended="",
        seconds={**previous.seconds, record.WAITING: waited},
        interruptions=dict(ended),
        owed=previous.owed + (previous.unfinished if new_ground else 0.0),
        unfinished=0.0,
        behind=0,
        down=(previous.down or 0.0) + gap,
        fruitless=previous.fruitless + 1,
    )
    return _held(fresh, run, me, host, until)


def supersedes(theirs: RunRecord, mine: RunRecord) -> bool:
    """Return whether another process, of a later attempt, keeps the record now."""
    if theirs.writer == mine.writer:
        return False
    return (theirs.starts, theirs.writer) > (mine.starts, mine.writer)


def _gap(
    previous: RunRecord, me: Writer, started: ClockPair
) -> tuple[float, ClockPair]:
    """
    Return the seconds between the attempts, by a clock that cannot be set if both were
    on this host, and the moment up to which all is accounted for then.
    """
    if previous.boot == me.boot:
        gap = started.boottime - previous.boottime
        if gap < 0:
            # The attempt before took some time to end.
            return 0.0, ClockPair(started.wall - gap, previous.boottime)
        return gap, started
    return max(started.wall - previous.time, 0.0), started


def _held(
    record: RunRecord, run: AttemptIdentity, me: Writer, host: str, until: ClockPair
) -> RunRecord:
    return record.replace(
        writer=str(me),
        host=host,
        attempt=run.attempt,
        time=until.wall,
        boot=me.boot,
        boottime=until.boottime,
    )


# What a process left that was killed while it wrote.
_LEFT_SECONDS = 3600.0
# Longer than network file systems keep attributes: NFS and gcsfuse at most 60 s.
_DOUBT_SECONDS = 90.0


class SupersededError(JaxmonError):
    """Another process keeps the record now."""


class Store:
    """
    The record of *run* in the file `path`, as process *me* keeps it. `broken`: what was
    there instead of a record, in words.
    """

    def __init__(
        self, run: AttemptIdentity, me: Writer, clock: Callable[[], float] = monotonic
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
            if lives(previous.writer, self._me):
                return None
            self._tidy()
        now, host = moment(), os.uname().nodename
        age = self._me.age(now)
        found = begun(previous, self._run, self._me, host=host, now=now, age=age)
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
        """Return the record, `None` if there is none or what is there is none."""
        doubted, self._doubted = self._doubted, None
        try:
            self.path.stat()
        except FileNotFoundError:
            return None
        try:
            return record.read(self.path)
        except NewerRecordError:
            raise
        except (record.RunRecordError, ConfigFileError) as error:
            # Else a directory, or larger than any record, or not to be read.
            if isinstance(error, record.RunRecordError):
                now = self._clock()
                since = now if doubted is None else doubted
                if now - since >= _DOUBT_SECONDS:
                    self._set_aside(error)
                    return None
                self._doubted = since
            msg = f"{self.path} {error}"
            raise OSError(msg) from error

    def _set_aside(self, error: record.RunRecordError) -> None:
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
            for leftover in self.path.parent.glob(f".{self.path.name[:100]}.*"):
                if leftover.stat().st_mtime < old:
                    leftover.unlink()
