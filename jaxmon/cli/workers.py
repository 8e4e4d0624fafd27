"""Instrumented processes on this host."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxmon.errors import CommandError
from jaxmon.facts import responses
from jaxmon.facts.process import Process
from jaxmon.facts.reader import from_json
from jaxmon.host import disclosure, rundir
from jaxmon.host.formats.layout import clean, duration, shortened
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.host.resources import hung, process


TIMEOUT = 5.0
"""Response timeout for an agent, in seconds."""

_NEIGHBOUR_TIMEOUT = 1.0
_MAX_BYTES = 32 << 20
_ROOM = 76


@dataclass(frozen=True)
class AgentProcess:
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

    @cached_property
    def pid(self) -> int | None:
        """Its number; from the kernel if it does not respond."""
        found = self._process.pid
        return hung.listener(self.socket) if found is None else found

    @cached_property
    def program(self) -> str:
        """Its command line, sanitised; empty if unknown."""
        if found := self._process.program:
            return clean(disclosure.command(found.split(" ")))  # of an older agent
        return "" if self.pid is None else clean(hung.program(self.pid))

    @cached_property
    def age(self) -> float | None:
        """Seconds since it was started, or else since its agent was."""
        if self.pid is not None:
            age = process.age(Path(f"/proc/{self.pid}"))
            if age is not None:
                return age
        return self._process.observed_seconds if self.overview else None

    @property
    def description(self) -> str:
        """Slot, process, age and program as one sanitised line."""
        facts = [
            self.number,
            "" if self.pid is None else f"pid {self.pid}",
            "" if self.age is None else f"for {duration(self.age)}",
            self.program,
            self.trouble,
        ]
        return shortened("  ".join(filter(None, facts)), _ROOM)

    @cached_property
    def _process(self) -> Process:
        return from_json(Process, self.overview.get("process", {}))

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
) -> list[AgentProcess]:
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
            worker = AgentProcess(number, sockets[number], responses.overview(answer))
        except FetchError as error:
            if error.reason in (fetch.GONE, fetch.LEFT):
                continue
            trouble, slow = responses.trouble(error), error.reason == fetch.TIMEOUT
            worker = AgentProcess(number, sockets[number], {}, trouble, slow)
        found.append(worker)
    return sorted(found, key=lambda worker: int(worker.number))


def neighbours(worker: AgentProcess, run_dir: Path | None) -> list[Mapping[str, Any]]:
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
