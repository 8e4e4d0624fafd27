"""
The ranks of jobs on this host, for those who judge whole jobs: ``/job``.

Read from the agents every few seconds, and kept: a process that no longer responds, or
has died, is reported as it was last, with its last words and what the kernel knows of
its end. When one does not get on, the stacks of its threads are read and kept too,
before someone restarts it.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from socket import AF_INET, AF_INET6
from threading import Lock
from typing import TYPE_CHECKING, Any

from jaxmon.catalog.sidecar import GPU_CLOCK_EVENT_ACTIVE
from jaxmon.exposition.families import Family, samples_of
from jaxmon.exposition.parse import labels
from jaxmon.facts import SCHEMA, endings, responses
from jaxmon.facts.ending import KILLED, RUNNING, ProcessEnd
from jaxmon.facts.endings import SlotEnds
from jaxmon.facts.host import InspectedCollectives, JobHost, Ras, ThrottledGpu, XidError
from jaxmon.facts.rank import Rank
from jaxmon.facts.reader import from_json, mapping
from jaxmon.facts.record import encoded
from jaxmon.host import rundir
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.host.http.messages import Request, Response
from jaxmon.host.resources import container, hung
from jaxmon_exporter.endings import KEPT_SECONDS, Closings, Kills, ObservedRank, left
from jaxmon_exporter.pages import Refreshed, after
from jaxmon_exporter.polling import Clock


if TYPE_CHECKING:
    from concurrent.futures import Future


# Between two readings of the agents, however many ask; and of all their stacks.
_EVERY, _STACKS_EVERY = 1.0, 5.0
_TIMEOUT = 3.0
_MOST_BYTES = 64 << 10
_MOST_STACKS = 256 << 10
_MOST_TOTAL = 8 << 20
_MOST_RANKS = 256
# Agents notice within five seconds that their socket was removed, and recreate it.
_RECREATED_SECONDS = 15.0
# Without progress for so long, or three times as long as usual, stacks are read.
_STUCK_SECONDS = 15.0
_TIMES_AS_USUAL = 3.0
_LONGEST, _DIGITS = 200, 16
_MOST_GPUS = 100
_MOST_ADDRESSES = 64
# Of NVML's, those that lower the clocks of a GPU that works.
_REASONS = frozenset(
    ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
)


_fetched = partial(fetch_all, timeout=_TIMEOUT, max_total=_MOST_TOTAL)


@dataclass(frozen=True, slots=True)
class HostSources:
    """What a sidecar knows besides its ranks: errors and load of GPUs, and NCCL."""

    xids: Callable[[], list[XidError]] = list
    gpus: Callable[[], list[ThrottledGpu]] = list
    nccl: Callable[[], Ras | None] = lambda: None
    collectives: Callable[[], InspectedCollectives | None] = lambda: None


_NOTHING = HostSources()


class Ranks:
    """Follows the ranks of one run directory; *failed* is called with what fails."""

    def __init__(
        self,
        run_dir: Path,
        failed: Callable[[BaseException], None],
        *,
        sources: HostSources = _NOTHING,
        clock: Clock = time.monotonic,
    ) -> None:
        self._run_dir = run_dir
        self._clock = clock
        self._sources = sources
        self._closings = Closings(run_dir, clock)
        self._observed: dict[str, ObservedRank] = {}
        self._host_kills: int | None = None
        # Of the reading in progress.
        self._slots: Mapping[str, SlotEnds] = {}
        self._now = 0.0
        # Those whose slot another process has now.
        self._past: deque[tuple[str, ObservedRank]] = deque(maxlen=_MOST_RANKS)
        # Two threads read: one of them also the stacks.
        self._lock = Lock()
        self._latest = Refreshed(
            self._read, failed, every=_EVERY, patience=2 * _TIMEOUT
        )
        self._with_stacks = Refreshed(
            self._read_stacks, failed, every=_STACKS_EVERY, patience=2 * _TIMEOUT
        )

    def refresh(self) -> None:
        """Read the agents on another thread; called by the server's, now and then."""
        self._latest.refresh()

    def read(self, *, stacks: bool) -> dict[str, Any]:
        """Read the agents now, within seconds, and return what `document` does."""
        (self._read_stacks if stacks else self._read)()
        return self.document(stacks=stacks)

    def close(self) -> None:
        """Stop watching for ends."""
        self._closings.close()

    def page(self, request: Request) -> Response | Future[Response]:
        """Respond to ``/job``, with the stacks of all threads if ``?stacks=1``."""
        stacks = request.query.get("stacks") == "1"
        source = self._with_stacks if stacks else self._latest
        making = source.refresh()

        def respond() -> Response:
            body = json.dumps(self.document(stacks=stacks), separators=(",", ":"))
            headers = {"Cache-Control": "no-store"}
            return Response(body.encode(), "application/json", headers=headers)

        return respond() if making is None else after(making, respond)

    def document(self, *, stacks: bool) -> dict[str, Any]:
        """Return what is known; of at most 8 MiB."""
        now, total = self._clock(), 0
        found: list[dict[str, Any]] = []
        setups = Setups()
        observed = sorted(self._observed.copy().items(), key=lambda item: int(item[0]))
        observed += list(self._past)
        for worker, process in observed:
            rank = setups.shared({**process.as_json(now), "worker": worker})
            if stacks and process.stacks:
                age = max(now - process.stacks_read, 0.0)
                rank["stacks"] = {**process.stacks, "age_seconds": age}
            total += len(json.dumps(rank))
            if total + setups.size <= _MOST_TOTAL:
                found.append(rank)
        return {
            "schema": SCHEMA,
            "host": os.uname().nodename,
            "ranks": found,
            "left_out": len(observed) - len(found),
            "setups": setups.by_digest,
            **encoded(self._of_host()),
        }

    def _of_host(self) -> JobHost:
        sources = self._sources
        found = JobHost(
            xids=tuple(sources.xids()),
            gpus=tuple(sources.gpus()),
            collectives=sources.collectives(),
            time=time.time(),
        )
        if (ras := sources.nccl()) is None:
            return found
        # Its processes have a host by its address.
        return found.replace(nccl=ras, addresses=tuple(addresses()))

    def _read(self) -> None:
        with self._lock:
            self._follow()

    def _follow(self) -> None:
        self._closings.watch()
        try:
            sockets = dict(list(rundir.sockets(self._run_dir).items())[:_MOST_RANKS])
            answers = _fetched(sockets, "/debug/rank", max_bytes=_MOST_BYTES)
            # After the responses: what died meanwhile is dead.
            self._slots = endings.slots(self._run_dir)
        except OSError:  # no agent has run here yet
            sockets, answers, self._slots = {}, {}, {}
        self._now, self._host_kills = self._clock(), container.host_oom_kills()
        self._read_records(self._observed.items())
        for worker, answer in answers.items():
            try:
                self._heard(worker, responses.decoded(answer), sockets[worker])
            except FetchError as error:
                self._unheard(worker, sockets[worker], error)
        for worker in self._observed.keys() - answers.keys():
            self._left(worker)
        self._find_unread()
        self._read_records((*self._observed.items(), *self._past))
        for worker, process in self._observed.items():
            self._note_closing(worker, process)
        while self._past and self._now - self._past[0][1].since > KEPT_SECONDS:
            self._past.popleft()
        self._keep_stacks(sockets, self._stuck())

    def _find_unread(self) -> None:
        """Note what processes left that ended before they were ever read."""
        for worker, slot in self._slots.items():
            process = self._observed.get(worker)
            if process is None and len(self._observed) >= _MOST_RANKS:
                continue
            self._find_replaced(worker, slot.before)
            if process is not None and not process.is_before(slot.latest):
                continue
            unread = None if slot.ended is None else left(slot.ended, self._now)
            if unread is not None:
                if process is not None:
                    self._past.append((worker, process))
                self._observed[worker] = unread

    def _find_replaced(self, worker: str, end: ProcessEnd | None) -> None:
        """Note likewise what the process left whose slot another one has."""
        if end is None or (unread := left(end, self._now)) is None:
            return
        read = (*self._past, *self._observed.items())
        if all(of != worker or process.starts != end.starts for of, process in read):
            self._past.append((worker, unread))

    def _heard(self, worker: str, rank: Mapping[str, Any], path: Path) -> None:
        before, slot = self._observed.get(worker), self._slots.get(worker)
        starts = 0 if slot is None else slot.latest.starts
        if before is not None and before.is_same(rank, starts):
            made = ObservedRank(rank, self._now, before.kills, starts)
            made.stacks, made.stacks_read = before.stacks, before.stacks_read
        else:
            kills = Kills(hung.listener(path), self._host_kills)
            made = ObservedRank(rank, self._now, kills, starts)
            if before is not None:
                self._end(before)
                self._note_closing(worker, before)
                self._past.append((worker, before))
        made.kills.read(self._host_kills)
        self._observed[worker] = made

    def _read_records(self, processes: Iterable[tuple[str, ObservedRank]]) -> None:
        """Note what their records say, which their successors leave alone."""
        for worker, process in processes:
            slot = self._slots.get(worker)
            if process.starts and slot is not None:
                process.end = slot.of(process.starts) or process.end

    def _note_closing(self, worker: str, process: ObservedRank) -> None:
        if process.ended and process.closed is None:
            completed = process.end is not None and process.end.exited
            closed = self._closings.at(worker, completed=completed) or 0.0
            # It may have been another process's, of before or after.
            if process.read - _EVERY <= closed <= process.since + _EVERY:
                process.closed = closed

    def _unheard(self, worker: str, path: Path, error: FetchError) -> None:
        process = self._observed.get(worker)
        if process is None:
            return  # it has never said that it is a rank
        if error.reason == fetch.GONE:
            self._end(process)
        elif error.reason == fetch.LEFT:
            self._left(worker)
        else:
            pid = hung.listener(path)
            process.trouble = responses.trouble(error)[:_LONGEST]
            process.stopped = pid is not None and hung.is_stopped(pid)

    def _left(self, worker: str) -> None:
        """Note that a process has no socket: it has ended, or a cleaner was here."""
        process, slot = self._observed[worker], self._slots.get(worker)
        if process.ended:
            if self._now - process.since > KEPT_SECONDS:
                del self._observed[worker]
            return
        over = slot is not None and (slot.latest.state != RUNNING or slot.held is False)
        if over or self._now - process.read > _RECREATED_SECONDS:
            self._end(process)
        else:
            process.trouble = "has no socket in the run directory"

    def _end(self, process: ObservedRank) -> None:
        if process.ended:
            return
        process.ended = KILLED if process.end is None else process.end.ended
        process.since = self._now
        process.trouble, process.stopped = "", False
        process.killed = process.kills.since(self._host_kills)

    def _stuck(self) -> list[str]:
        """Return those that have stopped getting on, and whose stacks are not kept."""
        found = []
        for worker in self._live():
            process = self._observed[worker]
            age = _since_progress(process.rank)
            # Its stacks are of an earlier time, or of none.
            if age is not None and process.stacks_read < self._now - age:
                found.append(worker)
        return found

    def _live(self) -> list[str]:
        observed = self._observed.items()
        return [worker for worker, of in observed if not (of.ended or of.trouble)]

    def _read_stacks(self) -> None:
        with self._lock:
            self._follow()
            with suppress(OSError):  # no agent has run here yet
                self._keep_stacks(rundir.sockets(self._run_dir), self._live())

    def _keep_stacks(self, sockets: Mapping[str, Path], workers: Iterable[str]) -> None:
        paths = {worker: sockets[worker] for worker in workers if worker in sockets}
        found = _fetched(paths, "/debug/stacks", max_bytes=_MOST_STACKS)
        for worker, answer in found.items():
            if (process := self._observed.get(worker)) is not None:
                with suppress(FetchError):
                    process.stacks = responses.decoded(answer)
                    process.stacks_read = self._clock()


class Setups:
    """The setups of ranks, of which most share one, by digest, and their size."""

    def __init__(self) -> None:
        self.by_digest: dict[str, Mapping[str, Any]] = {}
        self.size = 0

    def shared(self, rank: dict[str, Any]) -> dict[str, Any]:
        """Return *rank* with the digest of its setup, if it has one."""
        if not (setup := mapping(rank.get("setup"))):
            return rank
        text = json.dumps(setup, sort_keys=True)
        digest = sha256(text.encode()).hexdigest()[:_DIGITS]
        if digest not in self.by_digest:
            self.by_digest[digest] = setup
            self.size += len(text)
        return {**rank, "setup": digest}


def addresses() -> list[str]:
    """Return those of all interfaces, loopback included; without a resolver."""
    import psutil  # noqa: PLC0415 - few serve peers

    found = [
        entry.address.partition("%")[0]
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (AF_INET, AF_INET6)
    ]
    return list(dict.fromkeys(found))[:_MOST_ADDRESSES]


def throttled(families: Iterable[Family]) -> list[ThrottledGpu]:
    """Return the GPUs that are throttled now, and why."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, active in samples_of(families, GPU_CLOCK_EVENT_ACTIVE):
        of = labels(name)
        if active > 0 and of.get("reason") in _REASONS:
            found[of.get("uuid", "")].append(of["reason"])
    return [
        ThrottledGpu(uuid, tuple(sorted(reasons)))
        for uuid, reasons in list(found.items())[:_MOST_GPUS]
    ]


def _since_progress(rank: Mapping[str, Any]) -> float | None:
    """Return for how long *rank* has not got on, `None` if that is not long."""
    state = from_json(Rank, rank)
    limit = max(_STUCK_SECONDS, _TIMES_AS_USUAL * state.pace.usual_seconds)
    return None if state.age is None or state.age < limit else state.age
