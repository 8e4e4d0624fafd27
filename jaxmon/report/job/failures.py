"""
Failures of single ranks: what each of them was, when, and whether it speaks of others.

All times are by the clock of who asked. A host reports only ages, so its own clock does
not matter; how well they are known depends on how quickly it responded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from jaxmon.facts.ending import CRASHED, KILLED, ProcessEnd
from jaxmon.report.job.records import Host, Rank


# Thirty years: who reports more is wrong, or lies.
_OLDEST = 1e9


class Ending(Enum):
    """How a rank failed."""

    EXCEPTION = "exception"
    OOM = "oom"
    """An exception, perhaps turned into an exit: a device had no memory left."""
    EXIT = "exit"
    """`sys.exit` with another code than 0."""
    CRASHED = "crashed"
    """An uncaught exception, of which nothing more is known."""
    KILLED = "killed"
    """Without a word."""
    OOM_KILLED = "oom_killed"
    """Without a word, and the kernel killed a process of its cgroup for memory."""


@dataclass(frozen=True, slots=True)
class Failure:
    """
    How a rank failed.

    Attributes:
        rank: what is known of it.
        host: where it ran.
        ending: how it failed.
        first: when at the earliest; *last* at the latest.
        of_peers: whether its error says that another process is gone.
    """

    rank: Rank
    host: Host
    ending: Ending
    first: float
    last: float
    of_peers: bool = False

    @property
    def time(self) -> float:
        """Return when it was, as well as that is known."""
        return (self.first + self.last) / 2

    @property
    def is_silent(self) -> bool:
        """Whether it ended without a word, as also by JAX when others are gone."""
        return self.ending in {Ending.KILLED, Ending.CRASHED}

    def meets(self, other: Failure) -> bool:
        """Return whether it is unknown which of them was before the other."""
        return self.first <= other.last and other.first <= self.last


# What a process says when others are gone: seen in jobs with gloo, and known of JAX's
# coordination service, of gRPC and of NCCL.
_OF_PEERS = (
    r"\bgloo \S+ failed|gloo/transport|PollForError|polled an error"
    r"|coordination[ _]?service|JAX distributed service"
    r"|another task (died|is unhealthy)|tasks? (is|are) unhealthy|heartbeat timeout"
    r"|barrier (timed out|failed|has been aborted)|ncclRemoteError|ncclSystemError"
    r"|\bnccl\b.{0,200}(unhandled system error|timed? ?out|abort|remote)"
    r"|collective (operation )?timed? ?out"
    r"|rendezvous.{0,200}(timed? ?out|stuck|participants)"
)
# Programs have connections of their own; those of the runtime have a status before.
_OF_RUNTIME = (
    r"\b(UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED"
    r"|FAILED_PRECONDITION): .*("
    r"connection (was )?(reset|refused|aborted|closed)|broken pipe|socket closed"
    r"|failed to connect|heartbeat|preempt|peer|barrier)"
)


def failures(host: Host) -> Iterator[Failure]:
    """Yield the failures of the ranks of *host*."""
    for rank in host.ranks:
        if (found := failure(host, rank)) is not None:
            yield found


def failure(host: Host, rank: Rank) -> Failure | None:
    """Return how *rank* failed on *host*, `None` if it did not."""
    ending = _ending(rank)
    if ending is None:
        return None
    ages = [min(max(age, 0.0), _OLDEST) for age in _ages(rank)]
    return Failure(
        rank,
        host,
        ending,
        host.asked - max(ages) - host.within,
        host.asked - min(ages) + host.within,
        is_of_peers(rank.words),
    )


def is_of_peers(words: ProcessEnd) -> bool:
    """Return whether *words* say that another process is gone, or unreachable."""
    messages = (words.message, *(one.message for one in words.causes))
    return any(
        re.search(pattern, message, re.IGNORECASE)
        for message in messages
        for pattern in (_OF_PEERS, _OF_RUNTIME)
    )


def _ending(rank: Rank) -> Ending | None:
    words = rank.words
    if words.kind == "exception":
        # Someone may have called the hook for uncaught exceptions, and continued.
        age, known = rank.age, words.age_seconds
        if rank.responds and age is not None and known is not None and age < known - 1:
            return None
        return Ending.OOM if words.oom else Ending.EXCEPTION
    if words.kind == "exit":
        return Ending.OOM if words.oom else Ending.EXIT
    if rank.ended == KILLED:
        return Ending.OOM_KILLED if rank.oom_kills else Ending.KILLED
    return Ending.CRASHED if rank.ended == CRASHED else None


def _ages(rank: Rank) -> tuple[float, ...]:
    """Return how many seconds ago it failed: a range, if that is not known well."""
    if rank.words.failed and rank.words.age_seconds is not None:
        return (rank.words.age_seconds,)
    if rank.closed_seconds is not None:
        return (rank.closed_seconds,)
    return rank.since_seconds, rank.ended_seconds
