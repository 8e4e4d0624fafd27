"""The process that a command is about, as people name it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from jaxmon.cli.workers import AgentProcess, running
from jaxmon.errors import CommandError
from jaxmon.facts import endings
from jaxmon.facts.ending import FINISHED
from jaxmon.host import rundir
from jaxmon.host.formats.layout import clean
from jaxmon.host.resources import hung
from jaxmon.screens.programs import begins, names


_MOST_LISTED = 20
_HINTS = {
    True: "It may be stopped, or running native code that holds the GIL; try again.",
    False: "It may be another version of jaxmon, or another program listening there.",
}


def pick(
    choice: str | None, run_dir: Path | None, *, responding: bool = True
) -> AgentProcess:
    """
    Return the process *choice*, or the only running one.

    Args:
        choice: its slot, its pid, the name of its script or module, or the beginning of
            its command line; the first of these that fits any process.
        run_dir: directory of the sockets; `None` for the default.
        responding: whether it has to respond.

    Raises:
        CommandError: there is none, there are several, or it does not respond.
    """
    workers = candidates(choice, run_dir)
    chosen = matching(workers, choice)
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
    elif ended := _ends(choice, run_dir):
        msg = f"{choice!r} does not run any more:"
        raise CommandError(msg, details=ended, exit_code=2)
    else:
        msg = f"no process has the number, pid or name {choice!r}; running here:"
    raise CommandError(msg, details=listed(chosen or workers), exit_code=2)


def candidates(choice: str | None, run_dir: Path | None) -> list[AgentProcess]:
    """
    Return the processes among which *choice* is to be found.

    Raises:
        CommandError: there is none.
    """
    # Only a caller who asks for a hung process waits for it.
    only = _slot(choice, run_dir)
    workers = (only and running(run_dir, only=only)) or running(run_dir)
    if not workers:
        msg = (
            "no instrumented process is running: no agent in "
            f"{run_dir or rundir.locate()}. Start one with `jaxmon run PROGRAM`, "
            "or set its directory with --run-dir."
        )
        raise CommandError(msg, details=_ends(choice, run_dir))
    return workers


def matching(workers: Sequence[AgentProcess], choice: str | None) -> list[AgentProcess]:
    """Return those of *workers* that *choice* names, all for `None`."""
    if choice is None:
        return list(workers)
    for found in (
        [one for one in workers if one.number == choice],
        [one for one in workers if str(one.pid) == choice],
        [one for one in workers if choice in names(one.program)],
        [one for one in workers if choice and begins(one.program, choice)],
    ):
        if found:
            return found
    return []


def _ends(choice: str | None, run_dir: Path | None) -> list[str]:
    """Return a line for each process *choice* that did not finish, all for `None`."""
    found = []
    for number, end in endings.ends(run_dir or rundir.locate()).items():
        known = {number, str(end.pid), *names(end.program)}
        if end.ended != FINISHED and choice in {None, *known}:
            what = ", ".join(filter(None, (f"pid {end.pid}", end.program)))
            found.append(clean(f"worker {number} ({what}): {end.sentence}"))
    return found[:_MOST_LISTED]


def listed(workers: Sequence[AgentProcess]) -> list[str]:
    """Return a line for each of *workers*, for an error."""
    lines = [one.description for one in workers[:_MOST_LISTED]]
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
        sockets = rundir.sockets(run_dir or rundir.locate())
        if choice in sockets:
            return choice
        return _listening(choice, sockets.items())
    return None


def _listening(pid: str, sockets: Iterable[tuple[str, Path]]) -> str | None:
    """Return the slot whose socket process *pid* listens on."""
    return next(
        (slot for slot, path in sockets if str(hung.listener(path)) == pid),
        None,
    )
