"""Instrumented processes on this host, and selecting one of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmon import rundir
from jaxmon.errors import CommandError
from jaxmon.http import fetch
from jaxmon.http.fetch import FetchError, fetch_all
from jaxmon.report import responses
from jaxmon.report.layout import clean, shortened


TIMEOUT = 5.0
"""Response timeout for an agent, in seconds."""

_NEIGHBOUR_TIMEOUT = 1.0
_MAX_BYTES = 32 << 20
_MOST_LISTED = 20
_ROOM = 76
_HINTS = {
    True: "It may be stopped, or running native code that holds the GIL; try again.",
    False: "It may be another version of jaxmon, or another program listening there.",
}


@dataclass(frozen=True, slots=True)
class Worker:
    """
    A process with an agent.

    Attributes:
        number: its slot, which Prometheus sees as the label ``worker``.
        socket: where its agent listens.
        overview: response of ``/debug/overview``; empty if *trouble* is set.
        trouble: why it did not respond.
        slow: whether it timed out.
    """

    number: str
    socket: Path
    overview: Mapping[str, Any]
    trouble: str = ""
    slow: bool = False

    @property
    def description(self) -> str:
        """Number, process and program as one sanitised line."""
        if self.trouble:
            return f"{self.number}  {self.trouble}"
        process = self.overview.get("process")
        process = process if isinstance(process, dict) else {}
        pid, program = process.get("pid"), clean(str(process.get("program") or ""))
        return shortened(f"{self.number}  pid {clean(str(pid))}  {program}", _ROOM)

    def fetch(self, target: str, *, timeout: float = TIMEOUT) -> Any:
        """
        Return the JSON at *target*, a path with a query.

        Raises:
            CommandError: no response in time, or one that is not JSON.
        """
        answers = fetch_all(
            {self.number: self.socket}, target, timeout=timeout, max_bytes=_MAX_BYTES
        )
        try:
            return responses.decoded(answers[self.number])
        except FetchError as error:
            msg = f"worker {self.number} could not return {target}: {error}"
            raise CommandError(msg) from error


def running(
    run_dir: Path | None, *, only: str | None = None, timeout: float = TIMEOUT
) -> list[Worker]:
    """
    Return the processes with an agent, by number, within *timeout* seconds.

    Killed processes, whose sockets still exist, are omitted.

    Args:
        run_dir: directory of the sockets; `None` for the default.
        only: number of the process to query; `None` queries all.
        timeout: for the slowest response.

    Raises:
        CommandError: the run directory cannot be read.
    """
    directory = run_dir or rundir.locate()
    try:
        sockets = rundir.sockets(directory)
    except OSError as error:
        msg = (
            f"run directory {directory}: {error.strerror}; run as the program's "
            "user, or choose another directory with --run-dir"
        )
        raise CommandError(msg) from error
    sockets = {n: path for n, path in sockets.items() if only in (None, n)}
    answers = fetch_all(
        sockets, "/debug/overview", timeout=timeout, max_bytes=_MAX_BYTES
    )
    found = []
    for number, answer in answers.items():
        try:
            worker = Worker(number, sockets[number], responses.overview(answer))
        except FetchError as error:
            if error.reason in (fetch.GONE, fetch.LEFT):
                continue
            trouble, slow = responses.trouble(error), error.reason == fetch.TIMEOUT
            worker = Worker(number, sockets[number], {}, trouble, slow)
        found.append(worker)
    return sorted(found, key=lambda worker: int(worker.number))


def pick(number: str | None, run_dir: Path | None) -> Worker:
    """
    Return the process *number*, or the only running one.

    Raises:
        CommandError: there is none, there are several, or it does not respond.
    """
    # Only a caller who asks for a hung process waits for it.
    workers = running(run_dir, only=number) or running(run_dir)
    if not workers:
        msg = (
            "no instrumented process is running: no agent in "
            f"{run_dir or rundir.locate()}. Start one with `jaxmon run PROGRAM`, "
            "or set its directory with --run-dir."
        )
        raise CommandError(msg)
    chosen = [one for one in workers if number in (None, one.number)]
    if len(chosen) == 1:
        worker = chosen[0]
        if worker.trouble:
            msg = f"worker {worker.number} {worker.trouble}. {_HINTS[worker.slow]}"
            raise CommandError(msg, details=_of_kernel(worker))
        return worker
    listed = [one.description for one in workers[:_MOST_LISTED]]
    if (rest := len(workers) - _MOST_LISTED) > 0:
        listed.append(f"and {rest} more")
    if chosen:
        msg = (
            f"{len(workers)} instrumented processes are running here; give a worker "
            "number:"
        )
    else:
        msg = f"no worker {number!r}; running here:"
    raise CommandError(msg, details=listed, exit_code=2)


def neighbours(worker: Worker, run_dir: Path | None) -> list[Mapping[str, Any]]:
    """
    Return the functions of the other processes, as ``/debug/functions`` has them, those
    that respond within a second.

    Args:
        worker: the process whose neighbours to query.
        run_dir: directory of the sockets; `None` for the default.
    """
    try:
        sockets = rundir.sockets(run_dir or rundir.locate())
    except OSError:  # gone since
        return []
    sockets.pop(worker.number, None)
    answers = fetch_all(
        sockets, "/debug/functions", timeout=_NEIGHBOUR_TIMEOUT, max_bytes=_MAX_BYTES
    )
    found: list[Mapping[str, Any]] = []
    for answer in answers.values():
        with suppress(FetchError):
            found.append(responses.decoded(answer))
    return found


def _of_kernel(worker: Worker) -> list[str]:
    """Return what the kernel knows of a process that does not respond in time."""
    if not worker.slow:
        return []
    from jaxmon.cli import hung

    pid = hung.listener(worker.socket)
    return [] if pid is None else [f"pid {pid}:", *hung.threads(pid)]
