"""Jobs that use NCCL: time and bandwidth of their collectives, by NCCL Inspector."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from jaxmon.exposition.families import Family
from jaxmon.facts import responses
from jaxmon.facts.host import InspectedCollectives
from jaxmon.host import rundir
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon_exporter import polling
from jaxmon_exporter.collectors import collectives


# Reasons of partial failures.
BEHIND, LONG_LINE, NOT_A_FILE = "behind", "long_line", "not_a_file"
UNREADABLE, TOO_MANY = "unreadable", "too_many_files"

# What log rotation appends may be a number or a date.
_NAME = r"-pid([0-9]{1,10})\.log([.-].{1,64})?"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Of this host; and of all that share the directory.
_MOST_FILES, _MOST_ENTRIES = 10_000, 200_000
# A verbose record of 64 channels has 16 KiB.
_LONGEST_LINE = 1 << 18
# Up to the time stamp of the first record.
_HEAD = 512


_Key: TypeAlias = tuple[collectives.InspectedProcess, int]
"""Whose file, and its inode: log rotation changes its name."""


@dataclass(slots=True)
class _InspectedFile:
    """How far a file is read, *inside* a line or not, and how it began then."""

    offset: int = 0
    inside: bool = False
    head: bytes = b""

    def ignore(self, size: int) -> None:
        """Ignore what is before *size*, and the line there, unless it begins there."""
        if size:
            self.offset, self.inside = size - 1, True


_Growing: TypeAlias = tuple[int, str, _Key, _InspectedFile]
"""How much was appended to a file, its path, and what is known of it."""


class Directory:
    """
    Follows Inspector's files of *host*, ``*`` for any, in the directory *path*, from
    when it is first read. At once, *budget* bytes are read of all files; if there are
    more, the newest of those that have most.
    """

    def __init__(
        self, path: Path, host: str, failures: Counter[str], budget: int
    ) -> None:
        self._failures = failures
        self._path = path
        of = ".{1,255}" if host == "*" else re.escape(host)
        self._name = re.compile(f"({of}){_NAME}", re.DOTALL)
        self._budget = budget
        # Also of files that are not there: they may be, when their disk is back. The
        # last ones were seen last.
        self._files: dict[_Key, _InspectedFile] = {}
        self._first = True
        self.processes: set[collectives.InspectedProcess] = set()

    def none(self) -> None:
        """Note that the directory does not exist: files that it will have are new."""
        self._first, self.processes = False, set()

    def lines(self) -> Iterator[tuple[collectives.InspectedProcess, bytes]]:
        """Return the lines appended since the last call, and who wrote them."""
        growing = self._growing()
        left = self._budget
        # What those with little leave is shared by the others.
        growing.sort(key=itemgetter(0))
        for number, (appended, path, key, file) in enumerate(growing):
            share = left // (len(growing) - number)
            left -= min(appended, share)
            try:
                for line in self._read(path, key, file, share):
                    yield key[0], line
            except FileNotFoundError:
                continue
            except OSError:
                self._failures[UNREADABLE] += 1

    def _growing(self) -> list[_Growing]:
        growing: list[_Growing] = []
        processes = set()
        with os.scandir(self._path) as entries:
            some = islice(entries, _MOST_ENTRIES)
            ours = ((entry, self._name.fullmatch(entry.name)) for entry in some)
            named = ((entry, match) for entry, match in ours if match)
            for entry, match in islice(named, _MOST_FILES):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if not stat.S_ISREG(status.st_mode):
                    self._failures[NOT_A_FILE] += 1
                    continue
                process = collectives.InspectedProcess(match[1], int(match[2]))
                key = process, status.st_ino
                file = self._files.pop(key, None)
                if file is None:
                    if match[3] and not self._first:
                        continue  # a copy, which log rotation has made
                    file = _InspectedFile()
                    if self._first:
                        file.ignore(status.st_size)
                self._files[key] = file
                processes.add(process)
                # All of it, if it was truncated meanwhile.
                before = file.offset if file.offset <= status.st_size else 0
                if appended := status.st_size - before:
                    growing.append((appended, entry.path, key, file))
            more = next(named, None) or next(entries, None)
            self._failures[TOO_MANY] += more is not None
        self._first, self.processes = False, processes
        for key in list(self._files)[:-_MOST_FILES]:
            del self._files[key]
        return growing

    def _read(
        self, path: str, key: _Key, file: _InspectedFile, budget: int
    ) -> Iterator[bytes]:
        descriptor = os.open(path, _FLAGS)
        try:
            status = os.fstat(descriptor)
            # It may be another one by now.
            if status.st_ino == key[1] and stat.S_ISREG(status.st_mode):
                yield from self._appended(descriptor, status.st_size, file, budget)
        finally:
            os.close(descriptor)

    def _appended(
        self, descriptor: int, size: int, file: _InspectedFile, budget: int
    ) -> Iterator[bytes]:
        _rewind(descriptor, file)
        if size - file.offset > budget:
            self._failures[BEHIND] += 1
            file.ignore(size - budget)
        while file.offset < size:
            most = min(_LONGEST_LINE, size - file.offset)
            piece = os.pread(descriptor, most, file.offset)
            end = piece.rfind(b"\n") + 1
            if not end and len(piece) < _LONGEST_LINE:
                return  # half a line, so far
            if end:
                lines = piece[: end - 1].split(b"\n")
                if file.inside:
                    del lines[0]
                file.offset, file.inside = file.offset + end, False
                yield from filter(None, (line.lstrip(b"\0") for line in lines))
            else:
                self._failures[LONG_LINE] += not file.inside
                file.offset, file.inside = file.offset + len(piece), True


def _rewind(descriptor: int, file: _InspectedFile) -> None:
    """Begin again if the file was truncated, by another process or log rotation."""
    head = os.pread(descriptor, _HEAD, 0)
    if not head.startswith(file.head):
        file.offset, file.inside = 0, False
    file.head = head
    # Where holes are unknown, zeros are read.
    with suppress(OSError, AttributeError):
        file.offset = os.lseek(descriptor, file.offset, os.SEEK_DATA)


NO_ACCESS = "no_access"
BAD_RECORD = "bad_record"
_REASONS = (*(BAD_RECORD, LONG_LINE, BEHIND), *(NOT_A_FILE, UNREADABLE, TOO_MANY))
# The worker of processes without an agent, all together.
_OTHER = "other"

# An agent may start later than NCCL, or another process have the number now.
_AGAIN_SECONDS = 60.0
_TIMEOUT = 3.0
_MOST_BYTES, _MOST_TOTAL = 64 << 10, 8 << 20


class Inspector(polling.Collector):
    """Reads what NCCL Inspector appends to its files in *directory*."""

    name = "nccl_inspector"
    deadline = 10.0

    def __init__(  # noqa: PLR0913 - the last are for tests
        self,
        directory: Path,
        run_dir: Path,
        *,
        host: str = "",
        interval: float = 15.0,
        budget: int = 4 << 20,
        clock: polling.Clock = time.monotonic,
    ) -> None:
        self.interval = interval
        self._path = directory
        self._host = host or os.uname().nodename
        self._failures = Counter(dict.fromkeys(_REASONS, 0))
        self._directory = Directory(directory, self._host, self._failures, budget)
        self._owners = _Owners(run_dir, clock)
        self._tallies = collectives.Tallies(clock)
        self._recent = collectives.RecentCollectives(clock)
        self._found: tuple[InspectedCollectives | None, float] = None, 0.0
        self._clock = clock

    def collect(self) -> Iterable[Family]:
        """Read what was appended, or raise `CollectorUnavailable`: no files to read."""
        try:
            for process, line in self._directory.lines():
                self._read(process, line)
        except FileNotFoundError:
            # Inspector creates it.
            self._directory.none()
        except OSError as error:
            message = f"{self._path}: {error.strerror}; the sidecar must read it"
            raise polling.CollectorUnavailable(NO_ACCESS, message) from error
        processes = self._directory.processes
        self._owners.keep(processes)
        self._recent.turn()
        self._found = self._recent.describe(), self._clock()
        counters = list(self._tallies.families())
        if not processes and not self._tallies:
            message = (
                f"no file of host {self._host} in {self._path}: no job here has "
                "NCCL_INSPECTOR_ENABLE=1 and an NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_"
                "MICROSECONDS, or its directory or host name is another"
            )
            raise polling.CollectorUnavailable(polling.NO_JOB, message, costly=False)
        return [*counters, polling.partial_failures(self.name, self._failures)]

    def found(self) -> InspectedCollectives | None:
        """Return by what ranks are compared, `None` if unknown; from other threads."""
        found, made = self._found
        age = max(self._clock() - made, 0.0)
        return None if found is None else found.replace(age_seconds=age)

    def _read(self, process: collectives.InspectedProcess, line: bytes) -> None:
        try:
            record = collectives.parse(line)
        except collectives.BrokenRecordError:
            self._failures[BAD_RECORD] += 1
            return
        if record is not None:
            worker = self._owners.worker(process)
            launched = self._tallies.add(worker, process, record)
            self._recent.add(process, record, launched if record.sampled else 1)


class _Owners:
    """Finds the slots of processes by what the agents in *run_dir* report."""

    def __init__(self, run_dir: Path, clock: polling.Clock) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self._workers: dict[collectives.InspectedProcess, str] = {}
        self._asked: set[collectives.InspectedProcess] = set()
        self._read: float | None = None
        self._fresh = False

    def worker(self, process: collectives.InspectedProcess) -> str:
        """Return the slot of the agent in *process*; it may just have exited."""
        # A job starts all its processes at once, and an agent may hang.
        new = process not in self._asked and not self._fresh
        if new or self._read is None or self._clock() - self._read > _AGAIN_SECONDS:
            self._refresh()
        self._asked.add(process)
        return self._workers.get(process, _OTHER)

    def keep(self, processes: Collection[collectives.InspectedProcess]) -> None:
        """Forget all but *processes*; agents may be read again. Ends a poll."""
        self._fresh = False
        self._asked.intersection_update(processes)
        for process in self._workers.keys() - processes:
            del self._workers[process]

    def _refresh(self) -> None:
        self._read, self._fresh = self._clock(), True
        try:
            sockets = rundir.sockets(self._run_dir)
        except OSError:
            return
        found = fetch_all(
            sockets,
            "/debug/rank",
            timeout=_TIMEOUT,
            max_bytes=_MOST_BYTES,
            max_total=_MOST_TOTAL,
        )
        for worker, answer in found.items():
            with suppress(FetchError):
                rank = responses.decoded(answer)
                host, pid = rank.get("host"), rank.get("pid")
                if isinstance(host, str) and isinstance(pid, int):
                    self._workers[collectives.InspectedProcess(host, pid)] = worker
