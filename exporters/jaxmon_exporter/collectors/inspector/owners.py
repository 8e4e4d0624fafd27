"""Which agent is in the process that wrote a file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from jaxmon import rundir
from jaxmon.http.fetch import FetchError, fetch_all
from jaxmon.report import responses
from jaxmon_exporter.collecting import Clock
from jaxmon_exporter.collectors.inspector.files import Process


OTHER = "other"
"""The worker of processes without an agent, all together."""

# An agent may start later than NCCL, or another process have the number now.
_AGAIN_SECONDS = 60.0
_TIMEOUT = 3.0
_MOST_BYTES, _MOST_TOTAL = 64 << 10, 8 << 20


class Owners:
    """
    Finds the slots of processes by what the agents in *run_dir* report of themselves:
    host and number as the process itself knows them, as Inspector does.
    """

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self._workers: dict[Process, str] = {}
        self._asked: set[Process] = set()
        self._read: float | None = None
        self._fresh = False

    def worker(self, process: Process) -> str:
        """Return the slot of the agent in *process*; it may just have exited."""
        # A job starts all its processes at once, and an agent may hang.
        new = process not in self._asked and not self._fresh
        if new or self._read is None or self._clock() - self._read > _AGAIN_SECONDS:
            self._refresh()
        self._asked.add(process)
        return self._workers.get(process, OTHER)

    def keep(self, processes: Collection[Process]) -> None:
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
                self._workers[Process(host, pid)] = worker
