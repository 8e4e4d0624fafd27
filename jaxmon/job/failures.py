"""
Failures of single ranks: what each of them was, when, and whether it speaks of others.

All times are by the clock of who asked. A host reports only ages, so its own clock does
not matter; how well they are known depends on how quickly it responded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from jaxmon.facts.ending import CRASHED, KILLED, ProcessEnd
from jaxmon.facts.host import JobHost
from jaxmon.facts.rank import Rank


# Thirty years: who reports more is wrong, or lies.
_OLDEST = 1e9


class FailureKind(Enum):
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
class RankFailure:
    """How a rank failed, between *first* and *last*; *of_peers* if others were gone."""

    rank: Rank
    host: JobHost
    kind: FailureKind
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
        return self.kind in {FailureKind.KILLED, FailureKind.CRASHED}

    def meets(self, other: RankFailure) -> bool:
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


def failure_of(host: JobHost, rank: Rank) -> RankFailure | None:
    """Return how *rank* failed on *host*, `None` if it did not."""
    kind = _kind(rank)
    if kind is None:
        return None
    ages = [min(max(age, 0.0), _OLDEST) for age in _ages(rank)]
    return RankFailure(
        rank,
        host,
        kind,
        host.asked - max(ages) - host.within,
        host.asked - min(ages) + host.within,
        is_of_peers(rank.words),
    )


def is_of_peers(words: ProcessEnd) -> bool:
    """Return whether *words* say that another process is gone, or unreachable."""
    messages = (words.message, *(cause.message for cause in words.causes))
    return any(
        re.search(pattern, message, re.IGNORECASE)
        for message in messages
        for pattern in (_OF_PEERS, _OF_RUNTIME)
    )


def _kind(rank: Rank) -> FailureKind | None:
    words = rank.words
    if words.kind == "exception":
        # Someone may have called the hook for uncaught exceptions, and continued.
        age, failed_age = rank.age, words.age_seconds
        if (
            rank.responds
            and age is not None
            and failed_age is not None
            and age < failed_age - 1
        ):
            return None
        return FailureKind.OOM if words.oom else FailureKind.EXCEPTION
    if words.kind == "exit":
        return FailureKind.OOM if words.oom else FailureKind.EXIT
    if rank.ended == KILLED:
        return FailureKind.OOM_KILLED if rank.oom_kills else FailureKind.KILLED
    return FailureKind.CRASHED if rank.ended == CRASHED else None


def _ages(rank: Rank) -> tuple[float, ...]:
    """Return how many seconds ago it failed: a range, if that is not known well."""
    if rank.words.failed and rank.words.age_seconds is not None:
        return (rank.words.age_seconds,)
    if rank.closed_seconds is not None:
        return (rank.closed_seconds,)
    return rank.since_seconds, rank.ended_seconds
