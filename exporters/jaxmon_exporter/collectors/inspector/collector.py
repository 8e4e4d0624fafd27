"""Jobs that use NCCL: time and bandwidth of their collectives, by NCCL Inspector."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from jaxmon.exposition.families import Family
from jaxmon.facts import responses
from jaxmon.facts.host import InspectedCollectives
from jaxmon.host import rundir
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon_exporter.collecting import (
    NO_JOB,
    Clock,
    CollectorUnavailable,
    partial_failures,
)
from jaxmon_exporter.collectors.inspector import files
from jaxmon_exporter.collectors.inspector.collectives import (
    BrokenRecordError,
    RecentCollectives,
    Tallies,
    parse,
)
from jaxmon_exporter.collectors.inspector.files import InspectedProcess


NO_ACCESS = "no_access"
BAD_RECORD = "bad_record"
_REASONS = (
    *(BAD_RECORD, files.LONG_LINE, files.BEHIND),
    *(files.NOT_A_FILE, files.UNREADABLE, files.TOO_MANY),
)
# The worker of processes without an agent, all together.
_OTHER = "other"

# An agent may start later than NCCL, or another process have the number now.
_AGAIN_SECONDS = 60.0
_TIMEOUT = 3.0
_MOST_BYTES, _MOST_TOTAL = 64 << 10, 8 << 20


class Inspector:
    """
    Reads what NCCL Inspector appends to its files in *directory*.

    Args:
        directory: need not exist yet.
        run_dir: where the agents are.
        host: whose files, by default this host's; ``*`` is any.
        interval: seconds between polls.
        budget: bytes that are parsed in each of them; 4 MiB take some 100 ms.
        clock: seconds, monotonic.
    """

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
        clock: Clock = time.monotonic,
    ) -> None:
        self.interval = interval
        self._path = directory
        self._host = host or os.uname().nodename
        self._directory = files.Directory(directory, self._host, budget=budget)
        self._owners = _Owners(run_dir, clock)
        self._tallies = Tallies(clock)
        self._recent = RecentCollectives(clock)
        self._bad = Counter(dict.fromkeys(_REASONS, 0))
        self._found: tuple[InspectedCollectives | None, float] = None, 0.0
        self._clock = clock

    def collect(self) -> Iterable[Family]:
        """
        Read what was appended since the last poll.

        Raises:
            CollectorUnavailable: there are no files of this host, or may not be read.
        """
        try:
            for process, line in self._directory.lines():
                self._read(process, line)
        except FileNotFoundError:
            # Inspector creates it.
            self._directory.none()
        except OSError as error:
            message = f"{self._path}: {error.strerror}; the sidecar must read it"
            raise CollectorUnavailable(NO_ACCESS, message) from error
        processes = self._directory.processes
        self._owners.keep(processes)
        self._recent.turn()
        self._found = self._recent.describe(), self._clock()
        counters = list(self._tallies.families())
        if not processes and not self._tallies:
            raise CollectorUnavailable(NO_JOB, self._no_job(), costly=False)
        failures = self._bad + self._directory.failures
        return [
            *counters,
            partial_failures(self.name, {one: failures[one] for one in _REASONS}),
        ]

    def found(self) -> InspectedCollectives | None:
        """
        Return by what ranks are compared, `None` if nothing is known; called from other
        threads.
        """
        found, made = self._found
        if found is None:
            return None
        return found.replace(age_seconds=max(self._clock() - made, 0.0))

    def close(self) -> None:
        """Nothing is held between polls."""

    def _read(self, process: InspectedProcess, line: bytes) -> None:
        try:
            record = parse(line)
        except BrokenRecordError:
            self._bad[BAD_RECORD] += 1
            return
        if record is not None:
            worker = self._owners.worker(process)
            launched = self._tallies.add(worker, process, record)
            self._recent.add(process, record, launched if record.sampled else 1)

    def _no_job(self) -> str:
        return (
            f"no file of host {self._host} in {self._path}: no job here has "
            "NCCL_INSPECTOR_ENABLE=1 and an NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_"
            "MICROSECONDS, or its directory or host name is another"
        )


class _Owners:
    """
    Finds the slots of processes by what the agents in *run_dir* report of themselves:
    host and number as the process itself knows them, as Inspector does.
    """

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self._workers: dict[InspectedProcess, str] = {}
        self._asked: set[InspectedProcess] = set()
        self._read: float | None = None
        self._fresh = False

    def worker(self, process: InspectedProcess) -> str:
        """Return the slot of the agent in *process*; it may just have exited."""
        # A job starts all its processes at once, and an agent may hang.
        new = process not in self._asked and not self._fresh
        if new or self._read is None or self._clock() - self._read > _AGAIN_SECONDS:
            self._refresh()
        self._asked.add(process)
        return self._workers.get(process, _OTHER)

    def keep(self, processes: Collection[InspectedProcess]) -> None:
        """Forget all but *processes*; agents may be read again. Ends a poll."""
        self._fresh = False
        self._asked.intersection_update(processes)
        for one in self._workers.keys() - processes:
            del self._workers[one]

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
            try:
                rank = responses.decoded(answer)
            except FetchError:
                continue
            host, pid = rank.get("host"), rank.get("pid")
            if isinstance(host, str) and isinstance(pid, int):
                self._workers[InspectedProcess(host, pid)] = worker
