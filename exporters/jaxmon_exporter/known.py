"""What a sidecar knows of one process of a job: as it was last, and how it ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmon import life
from jaxmon.facts.rank import CRASHED, FINISHED, KILLED
from jaxmon_exporter.endings import Kills, aged


KEPT_SECONDS = 3600.0
"""How long a process is reported after its end."""

# A process that was killed cannot write that it ended.
_ENDS = {life.RUNNING: KILLED, life.CRASHED: CRASHED, life.FINISHED: FINISHED}
# Without its record, which another process has now.
_SAID = {"exception": CRASHED, "exit": FINISHED, "finished": FINISHED}
_FAILED = frozenset(("exception", "exit"))
# What last words say of the process, as it does in its responses.
_OF_RANK = ("index", "count", "coordinator", "pid", "observed_seconds")


@dataclass(slots=True)
class Known:
    """
    What is known of the process in a slot.

    Attributes:
        rank: what it reported last.
        read: when, by the clock.
        trouble: why it does not respond; empty if it does.
        stopped: whether a signal or a debugger has stopped it.
        ended: how it ended, empty if it has not; *since* when that is known.
        stacks: the response of ``/debug/stacks`` when it did not get on, or before.
        starts: which process of the slot it is, counted from 1; 0 if unknown.
        words: its last words.
        closed: when the kernel closed its files; `None` if unknown.
        kills: what the kernel has killed for memory so far.
        killed: how many of these between the last response and the end.
    """

    rank: Mapping[str, Any]
    read: float
    kills: Kills
    starts: int = 0
    words: Mapping[str, Any] = field(default_factory=dict)
    closed: float | None = None
    killed: Mapping[str, int | None] = field(default_factory=dict)
    trouble: str = ""
    stopped: bool = False
    ended: str = ""
    since: float = 0.0
    stacks: Mapping[str, Any] = field(default_factory=dict)
    stacks_read: float = 0.0

    def is_same(self, rank: Mapping[str, Any], starts: int) -> bool:
        """Return whether *rank* is from the same process."""
        same = self.rank.get("pid") == rank.get("pid")
        return same and (not self.starts or not starts or self.starts == starts)

    def is_before(self, slot: life.Slot) -> bool:
        """Return whether it has ended, and the *slot* has had another process since."""
        return bool(self.ended) and 0 < self.starts < slot.record.starts

    def as_json(self, now: float) -> dict[str, Any]:
        """Return what is known, with ages at *now*."""
        ended, closed = self.ended, self.closed
        rank, words = self.rank, self.words
        return {
            **rank,
            # It may have joined its job since, or was never read.
            **{of: words[of] for of in _OF_RANK if of in words and not rank.get(of)},
            "since_seconds": max(now - self.read, 0.0),
            "trouble": self.trouble,
            "stopped": self.stopped,
            "ended": ended,
            "ended_seconds": max(now - self.since, 0.0) if ended else 0.0,
            "closed_seconds": None if closed is None else max(now - closed, 0.0),
            "words": aged(words),
            **self.killed,
        }


def how_ended(slot: life.Slot | None, words: Mapping[str, Any]) -> str:
    """Return how a process ended, of whose *slot* another may have the record now."""
    if slot is not None:
        return _ENDS[slot.record.state]
    return _SAID.get(str(words.get("kind")), KILLED)


def left(path: Path, slot: life.Slot, now: float) -> Known | None:
    """
    Return what a process left in *path* that ended before it was ever read, such as for
    an argument that is wrong; `None` if the latest of the *slot* has not, or if it has
    not failed and was no rank of a job.
    """
    if slot.record.state == life.RUNNING:
        return None
    starts, words = slot.record.starts, life.last_words(path)
    age = aged(words).get("age_seconds")
    is_rank = words.get("index") is not None
    if words.get("starts") != starts:
        return None
    if words.get("kind") not in _FAILED and not is_rank:
        return None
    if age is None or age > KEPT_SECONDS:
        return None
    then, ended = now - age, how_ended(slot, words)
    rank = {"host": os.uname().nodename}
    return Known(rank, then, Kills(None, None), starts, words, ended=ended, since=then)
