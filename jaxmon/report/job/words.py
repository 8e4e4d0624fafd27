"""The words for what is found out about a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jaxmon.facts.walltime import HELPER_ADVICE
from jaxmon.formats.layout import ago, counted, duration, times
from jaxmon.report.job.model import FAILED, Job, Kind, Suspects, Waiting
from jaxmon.report.job.records import Rank, restarts


_MOST_RANGES = 6
_MOST_NAMED = 3

# Where they are is not known, or does not matter.
_GONE = frozenset(
    (
        *(*FAILED, Kind.FINISHED, Kind.GONE),
        *(Kind.STOPPED, Kind.SILENT, Kind.UNSEEN),
    )
)
_NOT_BEHIND = frozenset((*_GONE, Kind.PROGRAM)) - {Kind.STOPPED, Kind.SILENT}
_PAST = frozenset((*FAILED, Kind.FINISHED))


class Group(Protocol):
    """Ranks that have something in common: the numbers of all, and those known."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of all of them."""

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """Those that are known."""


class Words(NamedTuple):
    """What one rank of a kind does, what several do, and what to do about it."""

    one: str
    several: str
    advice: str


WORDS = {
    Kind.KILLED: Words(
        "was killed, or ended without a word",
        "were killed, or ended without a word",
        "The logs of kernel, scheduler and program say why. Restart the job: JAX "
        "cannot replace a single process.",
    ),
    Kind.CRASHED: Words(
        "ended by an uncaught exception",
        "ended by uncaught exceptions",
        "`jaxmon job post-mortem` shows the exceptions, and which was the first. "
        "Restart the job: JAX cannot replace a single process.",
    ),
    Kind.EXITED: Words(
        "exited with an error code",
        "exited with error codes",
        "`jaxmon job post-mortem` shows the code and the line. Restart the job: JAX "
        "cannot replace a single process.",
    ),
    Kind.FINISHED: Words(
        "has finished its program",
        "have finished their program",
        "All have to stop after the same step: give them the same number of batches, "
        "decide on values that all share, and on a signal stop where "
        "`multihost_utils.reached_preemption_sync_point` says.",
    ),
    Kind.GONE: Words(
        "is reported by no sidecar",
        "are reported by no sidecar",
        "The host is gone, or its sidecar is not among the targets, or the process has "
        "no agent, has not joined the job yet, or failed before: see its log.",
    ),
    Kind.STOPPED: Words(
        "is stopped by a signal or a debugger",
        "are stopped by a signal or a debugger",
        "`kill -CONT PID` lets a process continue.",
    ),
    Kind.SILENT: Words(
        "does not respond",
        "do not respond",
        "`jaxmon explain --stacks` on the host prints what the kernel knows.",
    ),
    Kind.UNSEEN: Words(
        "was not found, and a host did not answer",
        "were not found, and a host did not answer",
        "Find out what is wrong with that host.",
    ),
    Kind.COMPILE: Words(
        "compiles",
        "compile",
        "A persistent cache that all share saves compiles after the first.",
    ),
    Kind.ACTIVITY: Words(
        "is in the activity",
        "are in the activity",
        "What one process does alone, all others wait for.",
    ),
    Kind.LOCK: Words(
        "waits for a lock",
        "wait for a lock",
        "`jaxmon explain --stacks` on the host shows which thread may hold it.",
    ),
    Kind.DATA: Words(
        "waits for data",
        "wait for data",
        "The stack shows what the loader waits for: a file system, a worker process "
        "that has died, a queue that nothing fills.",
    ),
    Kind.BLOCKED: Words(
        "is blocked outside of JAX",
        "are blocked outside of JAX",
        "The stack shows what it waits for.",
    ),
    Kind.IDLE: Words(
        "waits for work",
        "wait for work",
        "Its event loop or thread pool has nothing to do: look at what its tasks "
        "await, and for one that has failed.",
    ),
    Kind.CALLBACK: Words(
        "runs a callback of an XLA program",
        "run callbacks of XLA programs",
        "The XLA program waits until the callback returns, and the others with it. A "
        "callback must not call JAX.",
    ),
    Kind.LOCAL: Words(
        "runs, on its own devices,",
        "run, on their own devices,",
        "The others wait until that is done.",
    ),
    Kind.CODE: Words("runs Python", "run Python", "The stack shows the loop it is in."),
    Kind.PROGRAM: Words(
        "waits in another program,",
        "wait in other programs,",
        "All processes have to call the same functions in the same order, with "
        "arguments of the same shapes.",
    ),
    Kind.LOST: Words(
        "ended by an exception about other processes",
        "ended by exceptions about other processes",
        "That is a consequence. `jaxmon job post-mortem` shows of what, if that is "
        "known.",
    ),
    Kind.ELSEWHERE: Words(
        "waits on another line,",
        "wait on another line,",
        "Either it runs there what the others do not run, and they wait for it, or it "
        "reads a result of what all run: then look at the network and at the "
        "accelerators.",
    ),
}
_ALL_IN_IT = (
    "All ranks are in it: look at what it waits for, such as storage, and in the logs "
    "of all for an error, as of a save before."
)
_EARLY = (
    "It waits there for all, and the others do not come: look in its log for what made "
    "it go there, such as an exception that it handles."
)
FIRST = "`jaxmon job post-mortem` shows which of them failed first."
UNCOUNTED = (
    "None of its ranks has called a function that all run together, or done a step "
    "that it marks: the job starts, or its calls are not counted, as of functions that "
    "were jitted before jaxmon started."
)
NETWORK = (
    "No process holds the others up, as far as Python knows. Look at the network and "
    "at the accelerators."
)


def numbers(found: Sequence[int]) -> str:
    """Return ``rank 3``, ``ranks 0-2, 5``: sorted numbers, at most some of them."""
    ranges: list[list[int]] = []
    for one in found:
        if ranges and one == ranges[-1][1] + 1:
            ranges[-1][1] = one
        else:
            ranges.append([one, one])
    shown = [f"{a}-{b}" if a < b else str(a) for a, b in ranges[:_MOST_RANGES]]
    if left := sum(b - a + 1 for a, b in ranges[_MOST_RANGES:]):
        shown.append(f"and {left:,} more")
    return f"rank{'' if len(found) == 1 else 's'} {', '.join(shown)}"


def who(group: Group) -> str:
    """Return the numbers of *group*, with host and pid of a few."""
    if not group.ranks:
        return numbers(group.numbers)
    if len(group.ranks) == 1:
        one = group.ranks[0]
        return f"{numbers(group.numbers)} ({one.host}, pid {one.pid})"
    hosts = list(dict.fromkeys(one.host for one in group.ranks))
    more = len(hosts) - _MOST_NAMED
    named = ", ".join(hosts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{numbers(group.numbers)} (on {named})"


def does(suspects: Suspects) -> str:
    """Return what *suspects* do, where, and for how long."""
    known = WORDS[suspects.kind]
    text = known.several if len(suspects.numbers) > 1 else known.one
    if suspects.kind in {Kind.COMPILE, Kind.ACTIVITY, Kind.LOCAL, Kind.PROGRAM}:
        name = short(suspects.function)
        text = f"{text} {name}" if name else text.rstrip(",")
        text += f", {suspects.place}" if suspects.place else ""
    elif suspects.kind is Kind.ELSEWHERE:
        inside = f" in {short(suspects.function)}," if suspects.function else ""
        text += f"{inside} {suspects.place}"
    elif suspects.kind not in _GONE:
        inside = f" in {suspects.function}" if suspects.function else ""
        text += f"{inside}, {suspects.place}" if suspects.place else ""
    if suspects.seconds is not None:
        past = suspects.kind in _PAST
        spent = duration(suspects.seconds)
        text += f", noticed {ago(suspects.seconds)}" if past else f", for {spent}"
    return text


def advised(suspects: Suspects, count: int) -> str:
    """Return what to do about *suspects*, in a job of *count* ranks."""
    if suspects.kind is Kind.ACTIVITY and len(suspects.numbers) == count:
        return _ALL_IN_IT
    if suspects.kind is Kind.ELSEWHERE and suspects.ranks[0].now.barrier:
        return _EARLY
    return HELPER_ADVICE if suspects.gone else WORDS[suspects.kind].advice


def behind(suspects: Suspects, waiting: Waiting) -> str:
    """Return whether *suspects* have made the call in which the others wait."""
    calls, call = suspects.calls, waiting.call
    if calls is None or call is None or calls >= call or suspects.kind in _NOT_BEHIND:
        return ""
    have = "has" if len(suspects.numbers) == 1 else "have"
    return f"{have} not dispatched call {call:,} of {short(waiting.function)}"


def waits(job: Job) -> str:
    """Return in what the ranks wait that wait for the device."""
    of = job.waiting
    what = short(of.function)
    call = f", call {of.call:,}" if of.call is not None and what else ""
    verb = "waits" if len(of.numbers) == 1 else "wait"
    where = f" ({of.place})" if of.place else ""
    if of.barrier:
        after = f", after{call.removeprefix(',')} of {what}" if call else ""
        return f"{verb} in {of.barrier}{after}{where}"
    if of.fetches:
        result = f" of {what}{call}" if what else ""
        return f"{verb} for results{result}{where}"
    return f"{verb} in {what}{call}{where}" if what else f"{verb} for the device{where}"


def how_many(job: Job) -> str:
    """Return how large *job* is, and where."""
    found = {(one.job, one.attempt) for one in job.ranks if one.responds and one.job}
    name = f" of {job.coordinator}" if job.coordinator else ""
    if len(found) == 1:
        [(known, attempt)] = found
        name = f" of {known}"
        name += f", restarted {times(number)}" if (number := restarts(attempt)) else ""
    return f"{counted(job.count, 'rank')}{name}, on {counted(job.hosts, 'host')}"


def short(function: str) -> str:
    """Return the name of *function* without its module."""
    return function.rpartition(".")[2]
