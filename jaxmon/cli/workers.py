"""The instrumented programs that run on this host, and one of them picked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmon import rundir
from jaxmon.errors import CommandError
from jaxmon.formats import json_text
from jaxmon.http import fetch
from jaxmon.http.fetch import FetchError, fetch_all
from jaxmon.report.layout import clean, shortened


TIMEOUT = 5.0
"""Seconds that an agent has for its answer."""

_MAX_BYTES = 32 << 20
_MOST_LISTED = 20
_ROOM = 76
_HINTS = {
    True: "It may be stopped, or busy in native code that holds Python's lock; try "
    "again.",
    False: "Another version of jaxmon may run there, or something else may listen.",
}


@dataclass(frozen=True, slots=True)
class Worker:
    """
    A program that has an agent.

    Attributes:
        number: its slot, which Prometheus sees as the label ``worker``.
        socket: where its agent listens.
        overview: what ``/debug/overview`` told, empty when *trouble* is not.
        trouble: why it did not answer.
        slow: whether it took too long to.
    """

    number: str
    socket: Path
    overview: Mapping[str, Any]
    trouble: str = ""
    slow: bool = False

    @property
    def told(self) -> str:
        """Number, process and program in a line that is harmless for a terminal."""
        if self.trouble:
            return f"{self.number}  {self.trouble}"
        process = self.overview.get("process")
        process = process if isinstance(process, dict) else {}
        pid, program = process.get("pid"), clean(str(process.get("program") or ""))
        return shortened(f"{self.number}  pid {clean(str(pid))}  {program}", _ROOM)

    def ask(self, target: str, *, timeout: float = TIMEOUT) -> Any:
        """
        Return what the page *target*, path and query, tells.

        Raises:
            CommandError: no answer in time, or one that is not JSON.
        """
        answers = fetch_all(
            {self.number: self.socket}, target, timeout=timeout, max_bytes=_MAX_BYTES
        )
        try:
            return _decoded(answers[self.number])
        except FetchError as error:
            msg = f"worker {self.number} does not tell {target}: {error}"
            raise CommandError(msg) from error


def running(
    run_dir: Path | None, *, only: str | None = None, timeout: float = TIMEOUT
) -> list[Worker]:
    """
    Return the programs with an agent, by number; at most *timeout* seconds.

    Programs that were killed, whose sockets lie there still, are left out.

    Args:
        run_dir: where the sockets are; `None` for the default.
        only: number of the program to ask; `None` asks all.
        timeout: for the slowest answer.

    Raises:
        CommandError: the run directory cannot be read.
    """
    directory = run_dir or rundir.locate()
    try:
        sockets = rundir.sockets(directory)
    except OSError as error:
        msg = (
            f"run directory {directory}: {error.strerror}; run as the user of the "
            "program, or give another with --run-dir"
        )
        raise CommandError(msg) from error
    sockets = {n: path for n, path in sockets.items() if only in (None, n)}
    answers = fetch_all(
        sockets, "/debug/overview", timeout=timeout, max_bytes=_MAX_BYTES
    )
    found = []
    for number, answer in answers.items():
        try:
            overview = _with_figures(_decoded(answer))
            worker = Worker(number, sockets[number], overview)
        except FetchError as error:
            if error.reason in (fetch.GONE, fetch.LEFT):
                continue
            trouble, slow = f"does not answer: {error}", error.reason == fetch.TIMEOUT
            worker = Worker(number, sockets[number], {}, trouble, slow)
        found.append(worker)
    return sorted(found, key=lambda worker: int(worker.number))


def pick(number: str | None, run_dir: Path | None) -> Worker:
    """
    Return the program *number*, or the only one that runs.

    Raises:
        CommandError: there is none, there are several, or it does not answer.
    """
    # One that hangs is waited for only by who asks for it.
    workers = running(run_dir, only=number) or running(run_dir)
    if not workers:
        msg = (
            f"no program with jaxmon runs: no agent in {run_dir or rundir.locate()}. "
            "Start one with `jaxmon run PROGRAM`, or give its directory with --run-dir."
        )
        raise CommandError(msg)
    chosen = [one for one in workers if number in (None, one.number)]
    if len(chosen) == 1:
        worker = chosen[0]
        if worker.trouble:
            msg = f"worker {worker.number} {worker.trouble}. {_HINTS[worker.slow]}"
            raise CommandError(msg)
        return worker
    listed = [one.told for one in workers[:_MOST_LISTED]]
    if (rest := len(workers) - _MOST_LISTED) > 0:
        listed.append(f"and {rest} more")
    if chosen:
        msg = f"{len(workers)} programs run here; give the number of one:"
    else:
        msg = f"no worker {number!r}; these run here:"
    raise CommandError(msg, details=listed, exit_code=2)


def _with_figures(overview: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Return *overview*, in which all agents have functions, if only none yet: without
    them all would seem to be well.

    Raises:
        FetchError: it is no agent's.
    """
    if not isinstance(overview.get("functions"), dict):
        message = "its answer has no figures of jaxmon: there is nothing to judge"
        raise FetchError(fetch.BROKEN, message)
    return overview


def _decoded(answer: str | FetchError) -> Any:
    """
    Return the JSON object in *answer*.

    Raises:
        FetchError: it is none.
    """
    if isinstance(answer, FetchError):
        raise answer
    try:
        found = json_text.parse(answer, odd_numbers=True)
    except ValueError as error:
        message = f"its answer is {error}"
        raise FetchError(fetch.BROKEN, message) from error
    if not isinstance(found, dict):
        message = "its answer is not a JSON object"
        raise FetchError(fetch.BROKEN, message)
    return found
