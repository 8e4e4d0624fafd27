"""Which run a process is an attempt at, and which process keeps its record."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxmon import interrupts
from jaxmon.clocks import monotonic, wall_time
from jaxmon.host import rundir
from jaxmon.settings import Settings


# What schedulers call the job; in Kubernetes by the downward API.
_NAMES = (
    "JOBSET_NAME",
    "K8S_JOB_NAME",
    "SLURM_JOB_ID",
    "TORCHELASTIC_RUN_ID",
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
    """
    Attributes:
        name: of the run.
        attempt: how often it was restarted before, `None` if unknown.
        directory: where its record is.
    """

    name: str
    attempt: int | None
    directory: Path


class ClockPair(NamedTuple):
    """
    A moment by two clocks.

    Attributes:
        wall: Unix time, comparable between hosts as far as their clocks agree.
        boottime: seconds since the host was started, suspended or not.
    """

    wall: float
    boottime: float


class Writer(NamedTuple):
    """
    A process, as others may find it.

    Attributes:
        boot: which start of the kernel.
        pid: its number.
        started: its start in clock ticks.
    """

    boot: str
    pid: int
    started: str

    def age(self, now: ClockPair) -> float:
        """Return how long ago it started; 0 if the system does not say."""
        try:
            began = int(self.started) / os.sysconf("SC_CLK_TCK")
        except (ValueError, OSError) as error:
            interrupts.pass_on(error)
            return 0.0
        # The kernel counts in hundredths: a process may seem to start in the future.
        return max(now.boottime - began, 0.0) if began else 0.0

    def __str__(self) -> str:
        return f"{self.boot}/{self.pid}/{self.started}"


def job_of(environ: Mapping[str, str] | None = None) -> str:
    """Return what the scheduler calls the job, empty if it does not."""
    environ = os.environ if environ is None else environ
    found = (environ.get(name, "") for name in _NAMES)
    return next(filter(None, found), "")[:_LONGEST]


def attempt_of(environ: Mapping[str, str] | None = None) -> int | None:
    """Return how often the scheduler restarted the job, `None` if it does not say."""
    environ = os.environ if environ is None else environ
    for variable, first in _ATTEMPTS.items():
        text = environ.get(variable, "")
        if text.isascii() and text.isdecimal() and len(text) < len(str(10**6)):
            return max(int(text) - first, 0)
    return None


def is_run(settings: Settings) -> bool:
    """Return whether *settings* say that this process is an attempt at a run."""
    return bool(settings.run) or settings.run_state is not None


def run_of(
    settings: Settings, environ: Mapping[str, str] | None = None
) -> AttemptIdentity:
    """Return the run of *settings*, for which `is_run` is true."""
    from jaxmon.facts import run as record  # noqa: PLC0415 - few processes are runs

    if settings.run_state is None:
        directory = rundir.locate(settings.run_dir, environ) / _DIRECTORY
    else:
        directory = Path(settings.run_state)
    directory = directory.absolute()
    name = settings.run or job_of(environ) or directory.name or "run"
    attempt = settings.attempt
    if attempt is None:
        attempt = attempt_of(environ)
    return AttemptIdentity(record.name(name), attempt, directory)


def moment() -> ClockPair:
    """Return the current moment."""
    try:
        return ClockPair(wall_time(), time.clock_gettime(time.CLOCK_BOOTTIME))
    except (AttributeError, OSError) as error:  # not Linux
        interrupts.pass_on(error)
        return ClockPair(wall_time(), monotonic())


def this_process() -> Writer:
    """Return this process."""
    pid = os.getpid()
    fields = _stat(pid)
    return Writer(_boot(), pid, fields[_STARTED].decode() if fields else "0")


def lives(writer: str, me: Writer) -> bool:
    """
    Return whether the process *writer* runs beside this one. Those of other hosts, and
    of other containers, are taken to be gone.
    """
    boot, _, rest = writer.partition("/")
    pid, _, started = rest.partition("/")
    if not boot or boot != me.boot or not (pid.isascii() and pid.isdecimal()):
        return False
    fields = _stat(int(pid))
    if not fields or fields[_STATE] in _DEAD:
        return False
    return fields[_STARTED].decode() == started


def _stat(pid: int) -> list[bytes]:
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except (OSError, ValueError) as error:
        interrupts.pass_on(error)
        return []
    fields = raw.rpartition(b")")[2].split()
    return fields if len(fields) > _STARTED else []


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError) as error:
        interrupts.pass_on(error)
        return ""
