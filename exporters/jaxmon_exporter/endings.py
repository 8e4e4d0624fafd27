"""
What a sidecar knows of one process of a job: as it was last, and how it ended, by its
own record (`jaxmon.facts.ending`) and from outside.

An agent holds the file of its slot open (`jaxmon.facts.endings`). The kernel closes it
when the process is gone, however it ended, and reports that by inotify, to the
millisecond. Polls would only say within seconds which of two processes died first.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmon.catalog.sidecar import GPU_XID_LAST_TIMESTAMP_SECONDS
from jaxmon.exposition.families import Family, samples_of
from jaxmon.exposition.parse import labels
from jaxmon.facts import endings
from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.endings import SlotEnds, age_of
from jaxmon.facts.host import XidError
from jaxmon.facts.rank import Rank
from jaxmon.facts.record import encoded
from jaxmon.host.formats.json_text import NewerSchemaError
from jaxmon.host.resources import container, hung
from jaxmon.threads import DaemonThread
from jaxmon_exporter.polling import Clock


KEPT_SECONDS = 3600.0
"""How long a process is reported after its end, and an error of a GPU."""

# What a record says of the process, and as what its responses do.
_OF_RANK = {
    "rank": "index",
    "ranks": "count",
    "coordinator": "coordinator",
    "pid": "pid",
    "observed_seconds": "observed_seconds",
}
# And of the slot, whose series have that.
_OF_SLOT = (
    *("schema", "crashes", "state", "running", "failures"),
    *("counted_since", "counted_until", "counted_bytes"),
)
# Agents write their record that often, and twice as much later they are gone.
_WRITTEN_EVERY = 5.0
_MOST_XIDS = 100
_MOST_FOLLOWED = 256
_CLOSE_WRITE, _IGNORED = 0x8, 0x8000
_CLOEXEC = 0o2000000
_HEAD = "iIII"
_SIZE = struct.calcsize(_HEAD)
_BUFFER = 64 << 10
_NAME = rb"agent-([0-9]{1,4})\.end"


@dataclass(slots=True)
class ObservedRank:
    """
    What is known of the process in a slot: what it reported last, and why it does not
    respond; how it *ended*, if it has, with its record and when its files were
    *closed*; the number of processes *killed* for memory between its last response and
    its end; and its *stacks* when it did not get on. It is number *starts* of the slot,
    0 if unknown.
    """

    rank: Mapping[str, Any]
    read: float
    kills: Kills
    starts: int = 0
    end: ProcessEnd | None = None
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

    def is_before(self, end: ProcessEnd) -> bool:
        """Return whether it has ended, and *end* is of a later process of its slot."""
        return bool(self.ended) and 0 < self.starts < end.starts

    def as_json(self, now: float) -> dict[str, Any]:
        """Return what is known, with ages at *now*."""
        ended, closed = self.ended, self.closed
        end = self.end if self.end and (self.end.kind or ended) else None
        record = end.as_json() if end else {}
        state = Rank(
            since_seconds=max(now - self.read, 0.0),
            trouble=self.trouble,
            stopped=self.stopped,
            ended=ended,
            ended_seconds=max(now - self.since, 0.0) if ended else 0.0,
            closed_seconds=None if closed is None else max(now - closed, 0.0),
        )
        # It may have joined its job since, or was never read.
        missing = {
            name: record[of]
            for of, name in _OF_RANK.items()
            if of in record and not self.rank.get(name)
        }
        of_end = {**self.killed, "words": words(end) if end else {}}
        return {**self.rank, **missing, **encoded(state), **of_end}


def words(end: ProcessEnd) -> dict[str, Any]:
    """Return what a process said of its *end*, and its age, as JSON types."""
    found = {
        _OF_RANK.get(name, name): value
        for name, value in end.as_json().items()
        if name not in _OF_SLOT
    }
    age = age_of(end)
    return found if age is None else {**found, "age_seconds": age}


def left(end: ProcessEnd, now: float) -> ObservedRank | None:
    """Return what a process left that ended before it was ever read, if it failed."""
    age = age_of(end)
    if not end.failed and end.rank is None:
        return None
    if age is None or age > KEPT_SECONDS:
        return None
    then = since = now - age
    if not end.kind:  # it lived a little longer
        since = min(now, then + 2 * _WRITTEN_EVERY)
    host, kills = {"host": os.uname().nodename}, Kills(None, None)
    return ObservedRank(
        host, then, kills, end.starts, end, ended=end.ended, since=since
    )


class Kills:
    """What the kernel has killed for memory in the cgroup of *pid*, and *on_host*."""

    def __init__(
        self, pid: int | None, on_host: int | None, root: Path = Path("/")
    ) -> None:
        # Known only while the process is there.
        self._group = None if pid is None else container.group_of(pid, root)
        self.read(on_host)

    def read(self, on_host: int | None) -> None:
        """Count from now on."""
        self._seen = self._now(on_host)

    def since(self, on_host: int | None) -> dict[str, int | None]:
        """Return the number of kills in its cgroup and on the host."""
        found: dict[str, int | None] = dict.fromkeys(self._seen)
        for key, now in self._now(on_host).items():
            before = self._seen[key]
            if before is not None and now is not None:
                found[key] = now - before
        return found

    def _now(self, on_host: int | None) -> dict[str, int | None]:
        kills = None if self._group is None else container.oom_kills(self._group)
        return {"oom_kills": kills, "host_oom_kills": on_host}


class Closings:
    """Watches a run directory on a thread that sleeps until something is closed."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        # The latest time, and the one before it.
        self._closed: dict[str, tuple[float | None, float | None]] = {}
        # The descriptor and the number of the watch; empty if nothing is watched.
        self._watch: tuple[int, ...] = ()
        self._stopped = False

    def watch(self) -> None:
        """Watch, unless that is done, or impossible: no directory, too many watches."""
        if self._watch or self._stopped or not self._directory.is_dir():
            return
        path = os.fsencode(self._directory)
        try:
            libc = ctypes.CDLL(None)
            number = libc.inotify_init1(_CLOEXEC)
            watch = libc.inotify_add_watch(number, path, _CLOSE_WRITE)
        except (OSError, AttributeError):  # another C library, another system
            return
        if watch >= 0:
            self._watch = number, watch
            with suppress(RuntimeError):  # no threads left
                DaemonThread("jaxmon-closings", lambda: self._follow(number)).start()
                return
            self._watch = ()
        if number >= 0:
            os.close(number)

    def close(self) -> None:
        """Stop watching."""
        self._stopped = True
        if watch := self._watch:
            # The thread reads that, and ends.
            ctypes.CDLL(None).inotify_rm_watch(*watch)

    def at(self, worker: str, *, completed: bool = False) -> float | None:
        """Return when the record of *worker* was last closed, or *completed*."""
        return self._closed.get(worker, (None, None))[completed]

    def _follow(self, number: int) -> None:
        try:
            while self._take(os.read(number, _BUFFER)):
                pass
        except OSError:  # interrupted, out of memory: the next poll starts another
            pass
        finally:
            self._watch = ()
            os.close(number)

    def _take(self, events: bytes) -> bool:
        now, at = self._clock(), 0
        while at + _SIZE <= len(events):
            _, mask, _, length = struct.unpack_from(_HEAD, events, at)
            name = events[at + _SIZE : at + _SIZE + length].rstrip(b"\0")
            at += _SIZE + length
            if mask & _IGNORED:  # it was removed
                return False
            if match := re.fullmatch(_NAME, name):
                worker = str(int(match[1]))
                self._closed[worker] = now, self.at(worker)
        return True


def xids(families: Iterable[Family], now: float) -> list[XidError]:
    """Return the latest Xid error of each kind and GPU, of the hour before *now*."""
    found = []
    for name, at in samples_of(families, GPU_XID_LAST_TIMESTAMP_SECONDS):
        if at > 0 and 0 <= now - at <= KEPT_SECONDS:
            of = labels(name)
            found.append(XidError(of.get("uuid", ""), of.get("xid", ""), now - at))
    return found[:_MOST_XIDS]


class ExitStatuses:
    """Adds to records how the kernel saw processes exit, since Linux 6.15."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        # Descriptors, by worker and number of the process in its slot.
        self._followed: dict[tuple[str, int], int] = {}

    def follow(
        self, slots: Mapping[str, SlotEnds], sockets: Mapping[str, Path]
    ) -> bool:
        """
        Follow those of *slots* that run, with *sockets*, and return whether any has
        exited; 50 µs for a new one.
        """
        found = False
        for (worker, starts), process in list(self._followed.items()):
            slot = slots.get(worker)
            if slot is not None and slot.latest.starts == starts and slot.held:
                continue
            status = hung.exit_of(process)
            if status is not None:
                found = True
                endings.complete(self._path(worker), starts, status)
            elif slot is not None and slot.of(starts) is not None:
                continue  # nothing has waited for it yet
            del self._followed[worker, starts]
            os.close(process)
        for worker in slots.keys() & sockets.keys():
            slot = slots[worker]
            key = worker, slot.latest.starts
            room = len(self._followed) < _MOST_FOLLOWED
            if slot.held and room and key not in self._followed:
                listening = hung.process_of(sockets[worker])
                if listening is not None and self._is_held(worker, slot):
                    self._followed[key] = listening
                elif listening is not None:
                    os.close(listening)
        return found

    def _is_held(self, worker: str, slot: SlotEnds) -> bool:
        with suppress(NewerSchemaError):
            now = endings.slot(self._path(worker))
            return now is not None and bool(now.held) and are_same(now, slot)
        return False

    def _path(self, worker: str) -> Path:
        return self._run_dir / f"agent-{worker}.end"

    def close(self) -> None:
        """Follow none any more."""
        for process in self._followed.values():
            with suppress(OSError):
                os.close(process)
        self._followed.clear()


def are_same(slot: SlotEnds | None, other: SlotEnds | None) -> bool:
    """Return whether no other process started in a slot in between, as far as known."""
    return not slot or not other or slot.latest.starts == other.latest.starts
