"""Instrumented processes on this host."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import click

from jaxmon.cli import output
from jaxmon.errors import CommandError, raised
from jaxmon.facts import endings, responses
from jaxmon.facts.ending import IN_ORDER, STOPPED
from jaxmon.facts.process import Process, Snapshot, read
from jaxmon.facts.reader import from_json
from jaxmon.facts.recent import TEN_MINUTES
from jaxmon.host import bootstrap, disclosure, rundir
from jaxmon.host.formats.layout import ago, clean, duration, shortened
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.host.resources import hung, process
from jaxmon.screens.programs import begins, names


TIMEOUT = 5.0
"""Response timeout for an agent, in seconds."""

_NEIGHBOUR_TIMEOUT = 1.0
_MAX_BYTES = 32 << 20
_ROOM = 76
_MOST_LISTED, _MOST_ENDED = 20, 2
# A program of that age may be importing JAX; seconds to wait for it, and between looks.
_YOUNG, _PATIENCE, _OFTEN = 60.0, 5.0, 0.2
_HINTS = {
    True: "It may be stopped, or running native code that holds the GIL; try again.",
    False: "It may be another version of jaxmon, or another program listening there.",
}


@dataclass(frozen=True)
class AgentProcess:
    """A process with an agent; in *trouble*, *slow* if it timed out, no *overview*."""

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
        """Slot, rank, process, age and program as one sanitised line."""
        facts = [
            self.number,
            str(self._process.rank),
            "" if self.pid is None else f"pid {self.pid}",
            "" if self.age is None else f"for {duration(self.age)}",
            self.program,
            self.trouble,
        ]
        return shortened("  ".join(filter(None, facts)), _ROOM)

    @property
    def is_rank(self) -> bool:
        """Whether it is one of the processes of a job."""
        return self._process.rank.index is not None

    @cached_property
    def _process(self) -> Process:
        return from_json(Process, self.overview.get("process", {}))

    def fetch(self, target: str, *, timeout: float = TIMEOUT) -> Any:
        """Return the JSON at *target*, a path with a query."""
        answers = fetch_all(
            {self.number: self.socket}, target, timeout=timeout, max_bytes=_MAX_BYTES
        )
        with raised(
            CommandError, f"worker {self.number} could not return {target}", FetchError
        ):
            return responses.decoded(answers[self.number])


def directory_of(run_dir: Path | None, *, past: bool = False) -> Path:
    """
    Return the run directory to read: the one that was given, or this user's. If nothing
    runs there or has just failed, it is the only other one with agents, and the command
    says so once. For the *past*, a record that is left there counts, too.
    """
    context = click.get_current_context(silent=True)
    directory = run_dir or rundir.locate()
    if context is None or run_dir or os.environ.get("JAXMON_RUN_DIR"):
        return directory
    if (found := context.meta.get(output.RUN_DIR)) is None:
        others = rundir.listening(os.getuid())
        if len(others) != 1 or directory.absolute() in others:
            return directory
        (found,) = others
        recorded = endings.ends(directory) if past else ends(directory)[0]
        if recorded or _has_just_ended(directory) or _without_agent(directory):
            return directory
        if not (rundir.is_private(found) and rundir.sockets(found)):
            return directory
        context.meta[output.RUN_DIR] = found
        reads = f"reading {found}, your only other directory with agents"
        output.line(f"No agent is in {directory}: {reads}.", err=True)
    return Path(found)


def running(
    run_dir: Path | None, *, only: str | None = None, timeout: float = TIMEOUT
) -> list[AgentProcess]:
    """Return the processes with an agent, by number. Raises `CommandError`."""
    directory = directory_of(run_dir)
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


def neighbours_of(
    worker: AgentProcess, snapshot: Snapshot, run_dir: Path | None
) -> list[Snapshot]:
    """Return the functions of others, if *snapshot* is worth comparing with them."""
    from jaxmon.symptoms.cache import is_worth_comparing

    if not is_worth_comparing(snapshot):
        return []
    try:
        sockets = rundir.sockets(directory_of(run_dir))
    except OSError:  # gone since
        return []
    sockets.pop(worker.number, None)
    answers = fetch_all(
        sockets, "/debug/functions", timeout=_NEIGHBOUR_TIMEOUT, max_bytes=_MAX_BYTES
    )
    found = []
    for answer in answers.values():
        with suppress(FetchError):
            found.append(read(responses.decoded(answer)))
    return found


def pick(
    choice: str | None, run_dir: Path | None, *, responding: bool = True
) -> AgentProcess:
    """
    Return the process *choice*, or the only running one, which must be *responding*. A
    choice is a slot, pid, name of the script or module, or the beginning of the command
    line, the first of these that fits. Raises `CommandError`: there is no such one.
    """
    workers = candidates(choice, run_dir)
    chosen = _matching(workers, choice)
    if len(chosen) == 1:
        worker = chosen[0]
        if worker.trouble and responding:
            msg = f"worker {worker.number} {worker.trouble}. {_HINTS[worker.slow]}"
            raise CommandError(msg, details=of_kernel(worker))
        return worker
    if choice is None:
        msg = (
            f"{len(workers)} instrumented processes are running here; give one by its "
            "number, pid or name:"
        )
    elif chosen:
        msg = f"{choice!r} may be any of these; give one by its number or pid:"
    elif any(ended := ends(directory_of(run_dir), choice, stopped=True, finished=True)):
        msg = f"{choice!r} does not run any more:"
        raise CommandError(msg, details=[*ended[0], *ended[1]], exit_code=2)
    else:
        msg = f"no process has the number, pid or name {choice!r}; running here:"
    raise CommandError(msg, details=listed(chosen or workers), exit_code=2)


def candidates(choice: str | None, run_dir: Path | None) -> list[AgentProcess]:
    """Return the processes among which *choice* is to be found."""
    # Only a caller who asks for a hung process waits for it.
    only = _slot(choice, run_dir)
    workers = (only and running(run_dir, only=only)) or running(run_dir)
    directory = directory_of(run_dir)
    if not workers and wait_for_start(directory):
        workers = running(run_dir)
    if not workers:
        raise nothing_runs(directory, choice)
    return workers


def wait_for_start(directory: Path) -> bool:
    """Wait some seconds for the agent of a new program; return whether there is one."""
    found, over = _without_agent(directory), _over(directory)
    starting = {p: found[p] for p in found.keys() - over if not _is_fork(p)}
    if not any(age < _YOUNG for age in starting.values()):
        return False
    pids = " and ".join(f"pid {pid}" for pid in starting)
    output.line(f"Waiting for {pids} to import JAX ...", err=True)
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and starting.keys() <= found.keys():
        found = _without_agent(directory)
        time.sleep(_OFTEN)
    return True


def _has_just_ended(directory: Path) -> bool:
    ages = map(endings.age_of, endings.ends(directory).values())
    return any(age is not None and age < _YOUNG for age in ages)


def _over(directory: Path) -> set[int]:
    """Return the processes whose agent has ended, and left a record of that."""
    ages = {of.pid: endings.age_of(of) for of in endings.ends(directory).values()}
    lives = {pid: process.age(Path(f"/proc/{pid}")) or 0.0 for pid in ages}
    return {pid for pid, age in ages.items() if lives[pid] > (age or 0.0)}


def _is_fork(pid: int) -> bool:
    """Return whether it was forked, and has JAX: so no agent begins, if it had then."""
    return process.is_fork(Path(f"/proc/{pid}"), "jaxlib")


def _without_agent(directory: Path) -> dict[int, float]:
    """Return pid and age of what `jaxmon run` has started, and has no agent."""
    have, found = set[int | None](), {}
    with suppress(OSError):  # `running` says why
        have = {hung.listener(path) for path in rundir.sockets(directory).values()}
    for pid, environ, settings in bootstrap.programs():
        chosen = rundir.locate(settings.get("run_dir"), environ)
        # Its temporary directory may be another one.
        here = environ.get("TMPDIR") == os.environ.get("TMPDIR")
        is_there = here or chosen != rundir.locate(None, {})
        if pid not in have and is_there and chosen.absolute() == directory.absolute():
            found[pid] = process.age(Path(f"/proc/{pid}")) or 0.0
    return found


def nothing_runs(directory: Path, choice: str | None = None) -> CommandError:
    """Return that no agent is in *directory*, what ended, and where others are."""
    msg = (
        f"no instrumented process is running: no agent in {directory}. Start one with "
        "`jaxmon run PROGRAM`, with --report if it ends soon, or set its directory "
        "with --run-dir."
    )
    just, earlier = ends(directory, choice, stopped=True, finished=True)
    lines = [*just, msg, *earlier, *hints(directory)]
    return CommandError(lines[0], details=lines[1:])


def hints(directory: Path) -> list[str]:
    """Return what runs besides *directory*: in others, or without an agent yet."""
    found, over = [], _over(directory)
    for pid, age in _without_agent(directory).items():
        how = "`jaxmon run` started it {}, and an agent begins once JAX is imported."
        if _is_fork(pid):
            how = "it was forked {} from a program of `jaxmon run`, and has loaded JAX."
        elif pid in over:
            how = "it was started {}; the agent has ended, and the process has not."
        program = f"pid {pid} ({hung.program(pid)})"
        found.append(f"{program} has no agent here: {how.format(ago(age))}")
    for other, count in rundir.listening(os.getuid()).items():
        if other != directory.absolute():
            have = "process has" if count == 1 else "processes have"
            found.append(f"{count} {have} an agent in {other}: add --run-dir {other}")
    return list(map(clean, found[:_MOST_LISTED]))


def _matching(
    workers: Sequence[AgentProcess], choice: str | None
) -> list[AgentProcess]:
    if choice is None:
        return list(workers)
    for found in (
        [worker for worker in workers if worker.number == choice],
        [worker for worker in workers if str(worker.pid) == choice],
        [worker for worker in workers if choice in names(worker.program)],
        [worker for worker in workers if choice and begins(worker.program, choice)],
    ):
        if found:
            return found
    return []


def ends(
    directory: Path,
    choice: str | None = None,
    *,
    stopped: bool = False,
    finished: bool = False,
) -> tuple[list[str], list[str]]:
    """
    Return a sentence on each process *choice* that did not finish, was *stopped* or has
    just *finished*, on all for `None`, the latest first: on those that did not finish
    in the last ten minutes, and on others.
    """
    found = []
    for number, end in endings.ends(directory).items():
        names_of_it = {number, str(end.pid), *names(end.program)}
        age = inf if (seconds := endings.age_of(end)) is None else seconds
        over = (stopped and end.ended == STOPPED) or (finished and age < _YOUNG)
        if (end.ended not in IN_ORDER or over) and choice in {None, *names_of_it}:
            past = age >= TEN_MINUTES or end.ended in IN_ORDER
            found.append((past, age, clean(end.line(seconds))))
    found = sorted(found)[:_MOST_LISTED]
    just = [line for past, _, line in found if not past]
    return just, [line for past, _, line in found if past]


def ends_beside(
    workers: Sequence[AgentProcess], directory: Path
) -> tuple[list[str], str]:
    """
    Return a sentence on each process that did not finish in the last ten minutes, if
    only such *workers* run its program that began before, or if such ends repeat; and
    one on the others.
    """
    again = endings.repeated(directory).items()
    first, others = [clean(f"Worker {worker} {text}") for worker, text in again], []
    found = [(endings.age_of(of) or 0.0, of) for of in endings.ends(directory).values()]
    for age, end in sorted(found, key=lambda item: item[0]):
        called = set(names(end.program))
        same = [of.age or 0.0 for of in workers if called & set(names(of.program))]
        if age >= TEN_MINUTES or end.ended in IN_ORDER:
            continue
        if same and min(same) > age:
            first.append(clean(end.line(age)))
        else:
            seen = "last seen " if end.unrecorded else ""
            others.append(f"{clean(end.process)}, {seen}{ago(age)}")
    rest = len(others) - _MOST_ENDED
    more = f" and {rest} more" if rest > 0 else ""
    how = f"{more}. `jaxmon job post-mortem` says how."
    return first, f"Ended: {'; '.join(others[:_MOST_ENDED])}{how}" if others else ""


def listed(workers: Sequence[AgentProcess]) -> list[str]:
    """Return a line for each of *workers*, for an error."""
    lines = [worker.description for worker in workers[:_MOST_LISTED]]
    if (rest := len(workers) - _MOST_LISTED) > 0:
        lines.append(f"and {rest} more")
    return lines


def of_kernel(worker: AgentProcess) -> list[str]:
    """Return what the kernel knows of a process that does not respond in time."""
    if not worker.slow or worker.pid is None:
        return []
    return [f"pid {worker.pid}: {worker.program}", *hung.threads(worker.pid)]


def _slot(choice: str | None, run_dir: Path | None) -> str | None:
    """Return the slot that is or has the number *choice*, without a response."""
    if choice is None or not (choice.isascii() and choice.isdigit()):
        return None
    with suppress(OSError):  # `running` says why
        sockets = rundir.sockets(directory_of(run_dir))
        if choice in sockets:
            return choice
        for slot, path in sockets.items():
            if str(hung.listener(path)) == choice:
                return slot
    return None
