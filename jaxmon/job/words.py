"""The words for ranks, and for what the others wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, NamedTuple, TypeAlias

from jaxmon.facts.ending import UNRECORDED
from jaxmon.facts.rank import Rank
from jaxmon.facts.walltime import FILLER_ADVICE, HELPER_ADVICE
from jaxmon.host.formats.layout import INDENT, ago, counted, duration, times, wrapped
from jaxmon.job import model


SCHEMA = 1
"""Version of what commands print of jobs as JSON; not of what agents report."""

MOST_NUMBERS = 1000
"""In a list of a document."""

MOST_SILENT = 10
"""Hosts that did not answer, or not with all."""

_SEVERAL = {
    "is": "are",
    "was": "were",
    "has": "have",
    "does": "do",
    "copies": "copy",
    "its": "their",
}
_MOST_RANGES = 6
_MOST_NAMED = 3

_BY_KERNEL = (model.SuspectKind.KILLED, model.SuspectKind.TERMINATED)
_NOT_BEHIND = model.OVER | {model.SuspectKind.UNREACHABLE, model.SuspectKind.PROGRAM}


RankGroup: TypeAlias = model.Suspects | model.DeviatingRanks | model.RepeatedCompiles
"""Ranks that have something in common: the numbers of all, and those known."""


class Phrases(NamedTuple):
    """
    What a single rank of a kind does, what to do about it, and what *several* do if
    `agreeing` cannot say that.
    """

    single: str
    advice: str
    several: str = ""

    def text(self, number: int) -> str:
        """Return what so many ranks do."""
        return (number > 1 and self.several) or agreeing(self.single, number)


_RESTART = "Restart the job: JAX cannot replace a single process."

WORDS = {
    model.SuspectKind.KILLED: Phrases(
        UNRECORDED, f"The logs of kernel, scheduler and program say why. {_RESTART}"
    ),
    model.SuspectKind.CRASHED: Phrases(
        "ended by an uncaught exception",
        "`jaxmon job post-mortem` shows the exceptions, and which was the first. "
        f"{_RESTART}",
        "ended by uncaught exceptions",
    ),
    model.SuspectKind.EXITED: Phrases(
        "exited with an error code",
        f"`jaxmon job post-mortem` shows the code and the line. {_RESTART}",
        "exited with error codes",
    ),
    model.SuspectKind.FINISHED: Phrases(
        "has finished its program",
        "All have to stop after the same step. Give them the same number of batches, "
        "and decide on values that all share. On a signal, stop where "
        "`multihost_utils.reached_preemption_sync_point` says.",
    ),
    model.SuspectKind.TERMINATED: Phrases(
        "was stopped by SIGTERM or SIGINT",
        "A user, a scheduler or an eviction did that: their logs say which. "
        f"{_RESTART}",
    ),
    model.SuspectKind.MISSING: Phrases(
        "is reported by no sidecar",
        "The host is gone, or its sidecar is not among the targets. Or the process has "
        "no agent, has not joined the job yet, or failed before: see its log.",
    ),
    model.SuspectKind.STOPPED: Phrases(
        "is stopped by a signal or a debugger",
        "`kill -CONT PID` lets a process continue.",
    ),
    model.SuspectKind.SILENT: Phrases(
        "does not respond",
        "`jaxmon explain --stacks` on the host prints what the kernel knows.",
    ),
    model.SuspectKind.UNREACHABLE: Phrases(
        "was not found, and a host did not answer",
        "Find out what is wrong with that host.",
    ),
    model.SuspectKind.COMPILE: Phrases(
        "compiles", "A persistent cache that all share saves compiles after the first."
    ),
    model.SuspectKind.ACTIVITY: Phrases(
        "is in the activity", "What one process does alone, all others wait for."
    ),
    model.SuspectKind.LOCK: Phrases(
        "waits for a lock",
        "`jaxmon explain --stacks` on the host shows which thread may hold it.",
    ),
    model.SuspectKind.DATA: Phrases(
        "waits for data",
        "Look at what the loader waits for: a file system, a worker process that has "
        "died, a queue that nothing fills. `jaxmon explain --stacks` on the host shows "
        "all threads.",
    ),
    model.SuspectKind.BLOCKED: Phrases(
        "is blocked outside of JAX", "The stack shows what it waits for."
    ),
    model.SuspectKind.IDLE: Phrases(
        "waits for work",
        "Its event loop or thread pool has nothing to do: look at what its tasks "
        "await, and for one that has failed.",
    ),
    model.SuspectKind.CALLBACK: Phrases(
        "runs a callback of an XLA program",
        "The XLA program waits until the callback returns, and the others with it. A "
        "callback must not call JAX.",
        "run callbacks of XLA programs",
    ),
    model.SuspectKind.LOCAL: Phrases(
        "runs, on its own devices,", "The others wait until that is done."
    ),
    model.SuspectKind.CODE: Phrases(
        "runs Python", "The stack shows the loop it is in."
    ),
    model.SuspectKind.PROGRAM: Phrases(
        "waits in another program,",
        "All processes have to call the same functions in the same order, with "
        "arguments of the same shapes.",
        "wait in other programs,",
    ),
    model.SuspectKind.LOST: Phrases(
        "ended by an exception about other processes",
        "That is a consequence. `jaxmon job post-mortem` shows the first failure, if "
        "it is known.",
        "ended by exceptions about other processes",
    ),
    model.SuspectKind.ELSEWHERE: Phrases(
        "waits on another line,",
        "Either it runs something that the others do not run, and they wait for it. Or "
        "it reads a result of what all run: then look at the network and at the "
        "accelerators.",
    ),
}
_ALL_IN_IT = (
    "All ranks are in it: look at what it waits for, such as storage. Search the logs "
    "of all for an error, such as that of an earlier save."
)
_EARLY = (
    "It waits there for all, and the others do not come. Its data may have ended "
    "earlier: give all ranks the same number of batches. Or look in its log for what "
    "made it go there, such as an exception that it handles."
)
FIRST = "`jaxmon job post-mortem` shows which of them failed first."
UNCOUNTED = (
    "None of its ranks has called a function that all run together, or done a marked "
    "step. The job starts, or its calls are not counted, as those of functions that "
    "were jitted before jaxmon started."
)
NETWORK = (
    "No process holds the others up, as far as Python knows. Look at the network and "
    "at the accelerators."
)


def agreeing(text: str, number: int) -> str:
    """Return the verb and the rest that are of a single rank for so many."""
    if number == 1:
        return text
    return re.sub(
        r"^(?:only )?\w+|\bits\b",
        lambda word: _SEVERAL.get(word[0], word[0].removesuffix("s")),
        text,
    )


def numbers(found: Sequence[int]) -> str:
    """Return ``rank 3``, ``ranks 0-2, 5``: sorted numbers, at most some of them."""
    ranges: list[list[int]] = []
    for number in found:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"{a}-{b}" if a < b else str(a) for a, b in ranges[:_MOST_RANGES]]
    if left := sum(b - a + 1 for a, b in ranges[_MOST_RANGES:]):
        shown.append(f"and {left:,} more")
    return f"rank{'' if len(found) == 1 else 's'} {', '.join(shown)}"


def who(group: RankGroup) -> str:
    """Return the numbers of *group*, with host and pid of a few."""
    if not group.ranks:
        return numbers(group.numbers)
    if len(group.ranks) == 1:
        rank = group.ranks[0]
        return f"{numbers(group.numbers)} ({rank.host}, pid {rank.pid})"
    hosts = list(dict.fromkeys(rank.host for rank in group.ranks))
    more = len(hosts) - _MOST_NAMED
    named = ", ".join(hosts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{numbers(group.numbers)} (on {named})"


def does(suspects: model.Suspects) -> str:
    """Return what *suspects* do, where, and for how long."""
    text = WORDS[suspects.kind].text(len(suspects.numbers))
    if len(suspects.numbers) == len(suspects.ranks) == 1:
        end = suspects.ranks[0].words
        if suspects.kind in _BY_KERNEL and (end.exited or end.stop):
            text = str(end)
    if suspects.kind in {
        model.SuspectKind.COMPILE,
        model.SuspectKind.ACTIVITY,
        model.SuspectKind.LOCAL,
        model.SuspectKind.PROGRAM,
    }:
        name = short(suspects.function)
        text = f"{text} {name}" if name else text.rstrip(",")
        text += f", {suspects.place}" if suspects.place else ""
    elif suspects.kind is model.SuspectKind.ELSEWHERE:
        inside = f" in {short(suspects.function)}," if suspects.function else ""
        text += f"{inside} {suspects.place}"
    elif suspects.kind not in model.ABSENT:
        inside = f" in {suspects.function}" if suspects.function else ""
        text += f"{inside}, {suspects.place}" if suspects.place else ""
    if suspects.seconds is not None:
        past = suspects.kind in model.ENDED
        spent = duration(suspects.seconds)
        text += f", noticed {ago(suspects.seconds)}" if past else f", for {spent}"
    return text


def advised(suspects: model.Suspects, count: int) -> str:
    """Return what to do about *suspects*, in a job of *count* ranks."""
    if suspects.kind is model.SuspectKind.ACTIVITY and len(suspects.numbers) == count:
        return _ALL_IN_IT
    if suspects.kind is model.SuspectKind.ELSEWHERE and suspects.ranks[0].now.barrier:
        return _EARLY
    if suspects.failed_helpers:
        return HELPER_ADVICE
    return FILLER_ADVICE if suspects.fillers else WORDS[suspects.kind].advice


def behind(suspects: model.Suspects, waiting: model.DeviceWait) -> str:
    """Return which call *suspects* have not made, if the others wait in it or later."""
    calls, call = suspects.calls, waiting.call
    if calls is None or call is None or calls >= call or suspects.kind in _NOT_BEHIND:
        return ""
    have = agreeing("has", len(suspects.numbers))
    text = f"{have} not dispatched call {calls + 1:,} of {short(waiting.function)}"
    if call == calls + 1 or not waiting.numbers:
        return text
    only = len(waiting.numbers) == 1
    ahead = f"{numbers(waiting.numbers)} is" if only else "others are"
    return f"{text}; {ahead} at call {call:,}"


def waits(job: model.Job) -> str:
    """Return in what the ranks wait that wait for the device."""
    of = job.waiting
    what = short(of.function)
    call = f", call {of.call:,}" if of.call is not None and what else ""
    verb = agreeing("waits", len(of.numbers))
    where = f" ({of.place})" if of.place else ""
    if of.barrier:
        after = f", after{call.removeprefix(',')} of {what}" if call else ""
        return f"{verb} in {of.barrier}{after}{where}"
    if of.fetches:
        result = f" of {what}{call}" if what else ""
        return f"{verb} for results{result}{where}"
    return f"{verb} in {what}{call}{where}" if what else f"{verb} for the device{where}"


def how_many(job: model.Job) -> str:
    """Return how large *job* is, and where."""
    attempts = {
        (rank.job, rank.attempt): rank.restarts
        for rank in job.ranks
        if rank.responds and rank.job
    }
    name = f" of {job.coordinator}" if job.coordinator else ""
    if len(attempts) == 1:
        [((scheduled, _), restarts)] = attempts.items()
        name = f" of {scheduled}"
        name += f", restarted {times(restarts)}" if restarts else ""
    return f"{counted(job.count, 'rank')}{name}, on {counted(job.hosts, 'host')}"


def chosen(record: object, names: str) -> dict[str, Any]:
    """Return the attributes *names* of *record*, as parts of a document."""
    return {name: getattr(record, name) for name in names.split()}


def identity(rank: Rank) -> dict[str, Any]:
    """Return who *rank* is, as JSON types."""
    return {"rank": rank.index, **chosen(rank, "host pid worker")}


def short(function: str) -> str:
    """Return the name of *function* without its module."""
    return function.rpartition(".")[2]


def point(text: str, width: int) -> list[str]:
    """Return *text* on a job in lines of at most *width* columns."""
    return wrapped(text, width, first=INDENT, rest=INDENT * 2)


def points(texts: Sequence[str], most: int, width: int) -> Iterator[str]:
    """Yield the first of *texts* as points, and how many more there are."""
    for text in texts[:most]:
        yield from point(text, width)
    if (left := len(texts) - most) > 0:
        yield f"{INDENT}and {left:,} more"


def rest(found: Sized, most: int, noun: str, indent: str = INDENT) -> list[str]:
    """Return how many of *found* are not among the first, if there are any."""
    left = len(found) - most
    return [f"{indent}and {counted(left, noun)}"] if left > 0 else []


def paragraphs(found: Iterable[Iterable[str]]) -> list[str]:
    """Return lines of which groups are divided by an empty one."""
    made = [list(lines) for lines in found]
    return [line for lines in made if lines for line in ("", *lines)][1:]


def silent_lines(
    silent: Sequence[tuple[str, str]], answered: int, width: int
) -> Iterator[str]:
    """Yield which hosts did not answer, and why, besides those that have *answered*."""
    if silent:
        hosts = counted(answered + len(silent), "host")
        yield f"{len(silent):,} of {hosts} did not answer:"
        texts = [f"{target}: {trouble}" for target, trouble in silent]
        yield from points(texts, MOST_SILENT, width)


def advice_lines(text: str, width: int) -> list[str]:
    """Return what to do about the point before."""
    return wrapped(text, width, first=INDENT * 2, rest=INDENT * 2)
