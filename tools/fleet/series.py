"""The values of a fleet's series, for many owners and moments at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from jaxmon import catalog
from tools.fleet import remote
from tools.fleet.layout import DAY, GPUS, WORKERS, Fault, Life, Pod
from tools.fleet.remote import Floats, Writer
from tools.fleet.templates import Labels, Line, Shape, Templates


Mask: TypeAlias = NDArray[np.bool_]

# A process has compiled and loaded what it needs after this many seconds.
_WARM_UP = 60.0
_UP = ("up", "gauge")
_PER_PROCESS = GPUS // WORKERS


@dataclass(frozen=True)
class Owner:
    """What has the series of one template: a process, an accelerator, a sidecar."""

    pod: Pod
    life: Life
    labels: Labels
    # When the next process takes the slot; infinity if none does.
    taken: float = float("inf")

    @property
    def number(self) -> int:
        """A number of its own, whatever else is in the fleet."""
        life = f"{self.life.worker}/{self.life.start}"
        return zlib.crc32(f"{self.pod.labels}{self.labels}{life}".encode())


class Values:
    """
    Values of the series of *owners* at *times*, which are evenly spaced.

    Rates follow the day in services. Each array has a row for each owner.
    """

    def __init__(
        self, owners: Sequence[Owner], times: Floats, faults: Iterable[Fault]
    ) -> None:
        self.owners, self.times = owners, times
        self._faults = [fault for fault in faults if fault.kind != "crashes"]
        lives = [owner.life for owner in owners]
        self._start = np.array([[life.start] for life in lives])
        end = np.array([[life.end] for life in lives])
        taken = np.array([[owner.taken] for owner in owners])
        step = times[1] - times[0] if len(times) > 1 else 0.0
        self.alive: Mask = np.logical_and(times >= self._start, times < end)
        self.ended: Mask = (times >= end) & (times - step < end) & (times < taken)
        self._speed = np.array([[life.speed] for life in lives])
        self._phase = np.array([[owner.pod.phase] for owner in owners])
        self._swing = np.array(
            [[0.3 if owner.pod.program == "serve" else 0.0] for owner in owners]
        )

    @cached_property
    def age(self) -> Floats:
        """Return seconds since the start."""
        found: Floats = np.maximum(self.times - self._start, 0.0)
        return found

    @cached_property
    def activity(self) -> Floats:
        """Return seconds at the recorded rate."""
        found = self._work(self._start, np.maximum(self.times, self._start))
        for fault in self._faults:
            if fault.kind == "hang":
                found = found - self._during(fault)
        return found

    @cached_property
    def failed(self) -> Floats:
        """Return the part of `activity` whose requests failed."""
        return self._sum("errors", self._during)

    @cached_property
    def recompiled(self) -> Floats:
        """Return the number of additional recompiles."""
        return self._sum("recompiles", self._seconds)

    def of(self, line: Line, failing: float = 0.0) -> Floats:
        """
        Return the values of *line*.

        Args:
            line: of the owners' template.
            failing: what the same series has as rate for requests that succeed.
        """
        found = self._of(line)
        labels = dict(line.labels)
        if labels.get("outcome") == "success":
            found = found - line.rate * self.failed
        elif labels.get("outcome") == "error":
            found = found + failing * self.failed
        sign = _recompiles(line.name, labels)
        if sign:
            found = found + sign * self.recompiled
        if line.whole and line.shape is Shape.RISES:
            found = np.floor(found)
        found = np.array(np.broadcast_to(found, self.alive.shape))
        self._hang(line, found)
        found[self.ended] = remote.STALE
        return found

    def _of(self, line: Line) -> Floats:  # noqa: PLR0911 - one for each shape
        if line.name in (catalog.PROCESS_COUNT.name, catalog.PROCESS_INDEX.name):
            return self._rank(of=line.name == catalog.PROCESS_COUNT.name)
        if line.shape is Shape.RISES:
            ramp = np.minimum(self.age / _WARM_UP, 1.0)
            return line.base * ramp + line.rate * self.activity
        if line.shape is Shape.STARTED:
            return self._start + line.base
        if line.shape is Shape.NOW:
            return self.times + min(0.0, line.base)
        if line.shape is Shape.AGE:
            return self.age + max(0.0, line.base)
        if line.shape is Shape.VARIES:
            return self._varying(line)
        return np.full((1, 1), line.base)

    def _varying(self, line: Line) -> Floats:
        """Draw what was recorded: for each owner the same, whoever else there is."""
        seed = zlib.crc32(f"{line.name}{line.labels}{self.times[0]}".encode())
        recorded, count = np.array(line.recorded), len(self.times)
        rows = [
            np.random.default_rng((seed, owner.number)).choice(recorded, count)
            for owner in self.owners
        ]
        return np.array(rows, float)

    def _rank(self, *, of: bool) -> Floats:
        """Return which rank a process is, or *of* how many; replicas have no ranks."""
        found = [
            [(owner.life.ranks if of else owner.life.rank)]
            if owner.pod.program == "train"
            else [int(of)]
            for owner in self.owners
        ]
        return np.array(found, float)

    def _hang(self, line: Line, values: Floats) -> None:
        """Let moments and ages stand where nothing finishes any more."""
        if line.name not in _WAITS:
            return
        for fault in self._faults:
            if fault.kind != "hang":
                continue
            hangs = (self.times >= fault.start) & (self.times < fault.end)
            hangs = hangs & self._concerned(fault)
            since = np.broadcast_to(self.times - fault.start, values.shape)
            values[hangs] = since[hangs] if "_seconds" in line.name else 4.0

    def _sum(self, kind: str, of: Callable[[Fault], Floats]) -> Floats:
        found = np.zeros((1, 1))
        for fault in self._faults:
            if fault.kind == kind:
                found = found + fault.amount * of(fault)
        return found

    def _during(self, fault: Fault) -> Floats:
        first = np.maximum(self._start, fault.start)
        last = np.clip(self.times, first, max(fault.end, fault.start))
        return self._work(first, np.maximum(first, last)) * self._concerned(fault)

    def _seconds(self, fault: Fault) -> Floats:
        first = np.maximum(self._start, fault.start)
        last = np.clip(self.times, first, np.maximum(first, fault.end))
        found: Floats = (last - first) * self._concerned(fault)
        return found

    def _concerned(self, fault: Fault) -> Mask:
        """Return a column: which owners have the fault."""
        found = [[fault.concerns(owner.pod, owner.life)] for owner in self.owners]
        return np.array(found, bool)

    def _work(self, first: Floats, last: Floats) -> Floats:
        """Return the integral of the rate between two moments."""
        turn = 2 * np.pi / DAY
        wave = np.cos(turn * first + self._phase) - np.cos(turn * last + self._phase)
        found: Floats = self._speed * (last - first + self._swing * wave / turn)
        return found


class Fleet:
    """The series of *pods*, with *faults*, by *templates*."""

    def __init__(
        self, templates: Templates, pods: Sequence[Pod], faults: Sequence[Fault] = ()
    ) -> None:
        self._templates, self.pods, self.faults = templates, pods, faults
        self._encoded: dict[tuple[int, Labels], bytes] = {}

    def write(
        self,
        writer: Writer,
        times: Floats,
        names: Collection[str] | None = None,
        every: int = 1,
    ) -> None:
        """
        Write the samples at *times* of all series, or those with one of *names*.

        A value that stays the same is written at one in *every* times.
        """
        laid = remote.samples(times)
        first, last = times[0], times[-1]
        here = [
            pod
            for pod in self.pods
            if pod.start <= last and pod.end >= first - DAY / 24
        ]
        for lines, owners in self.groups(here):
            wanted = [line for line in lines if names is None or line.name in names]
            if not wanted or not owners:
                continue
            values = Values(owners, times, self.faults)
            keep = values.alive | values.ended
            whole: Mask = np.all(keep, axis=1)
            some: Mask = np.any(keep, axis=1)
            success = self.succeeding(lines)
            for line in wanted:
                rows = values.of(line, success(line))
                stands = _standing(rows, times, every)
                full = whole & ~np.any(stands, axis=1)
                kept = keep & ~stands
                for index, owner in enumerate(owners):
                    if some[index]:
                        mask = None if full[index] else kept[index]
                        writer.add(self._label(line, owner), laid, rows[index], mask)

    def series(self, at: float) -> int:
        """Return how many series exist at the time *at*."""
        here = [pod for pod in self.pods if pod.start <= at < pod.end]
        return sum(
            len(lines) * sum(one.life.start <= at < one.life.end for one in owners)
            for lines, owners in self.groups(here)
        )

    def succeeding(self, lines: Iterable[Line]) -> Callable[[Line], float]:
        """Return a function that returns the rate of the same series for success."""
        rates = {(line.name, line.labels): line.rate for line in lines}

        def rate(line: Line) -> float:
            same = tuple(
                (n, "success" if n == "outcome" else v) for n, v in line.labels
            )
            return rates.get((line.name, same), 0.0)

        return rate

    def _label(self, line: Line, owner: Owner) -> bytes:
        key = (id(line), owner.labels)
        found = self._encoded.get(key)
        if found is None:
            own = labels(line, owner)
            found = self._encoded[key] = remote.series((("__name__", line.name), *own))
        return found

    def groups(
        self, pods: Sequence[Pod]
    ) -> Iterator[tuple[tuple[Line, ...], list[Owner]]]:
        """Yield templates and who has their series, of all processes of *pods*."""
        up = Line("up", (), Shape.CONSTANT, _UP, 1.0)
        hosts = [Owner(pod, _whole(pod), pod.labels) for pod in pods]
        yield (up, *self._templates.host), hosts
        for program, lines in self._templates.programs.items():
            mine = [pod for pod in pods if pod.program == program]
            processes = [one for pod in mine for one in _processes(pod)]
            yield lines, processes
            for number, devices in self._templates.devices.items():
                yield devices, [_with_device(one, number) for one in processes]
        count = len(self._templates.gpus)
        for index in range(GPUS):
            found = [_gpu(host, index) for host in hosts]
            yield self._templates.gpus[index % count], found


def _standing(rows: Floats, times: Floats, every: int) -> Mask:
    """Return which values equal those before and after and are not one in *every*."""
    found: Mask = np.zeros(rows.shape, bool)
    if every > 1 and len(times) > 1:
        same = rows[:, 1:] == rows[:, :-1]
        turn = np.round(times / (times[1] - times[0])) % every != 0
        found[:, 1:-1] = same[:, 1:] & same[:, :-1] & turn[1:-1]
    return found


def labels(line: Line, owner: Owner) -> Labels:
    """Return the labels of *line* for *owner*, those of the target included."""
    filled = dict(owner.labels)
    own = tuple((name, filled.pop(f"_{name}", value)) for name, value in line.labels)
    rest = tuple((n, v) for n, v in filled.items() if not n.startswith("_"))
    return (*rest, *own)


def _processes(pod: Pod) -> Iterator[Owner]:
    for index, life in enumerate(pod.lives):
        following = pod.lives[index + 1 : index + 2]
        same = bool(following) and following[0].worker == life.worker
        taken = following[0].start if same else float("inf")
        labels = (*pod.labels, ("worker", str(life.worker)))
        yield Owner(pod, life, labels, taken)


def _with_device(owner: Owner, number: int) -> Owner:
    index = owner.life.worker * _PER_PROCESS + number
    more = (
        ("device", str(number)),
        ("_uuid", _uuid(owner.pod, index)),
        ("_pci_bus_id", _bus(index)),
        ("_process_index", str(owner.life.rank)),
    )
    return Owner(owner.pod, owner.life, (*owner.labels, *more), owner.taken)


def _gpu(host: Owner, index: int) -> Owner:
    more = (
        ("uuid", _uuid(host.pod, index)),
        ("_pci_bus_id", _bus(index)),
        ("_index", str(index)),
    )
    return Owner(host.pod, host.life, (*host.labels, *more))


def _whole(pod: Pod) -> Life:
    return Life(0, 0, 1, pod.start, pod.end, 1.0)


def _uuid(pod: Pod, index: int) -> str:
    return f"GPU-{pod.number:08x}-0000-4000-8000-{index:012x}"


def _bus(index: int) -> str:
    return f"0000:{0x17 + 0x10 * index:02x}:00.0"


def _recompiles(name: str, own: dict[str, str]) -> int:
    """Return by how much a recompile changes a series."""
    if name == catalog.RECOMPILES.name:
        return int(own.get("cause") == "shape")
    if name == catalog.JIT_CACHE_MISSES.name:
        return 1
    return -1 if name == catalog.JIT_CACHE_HITS.name else 0


# Moments that stand still, and what is 0 unless something waits.
_WAITS = {
    catalog.REQUESTS_IN_PROGRESS.name,
    catalog.REQUEST_OLDEST_SECONDS.name,
    catalog.STEP_AGE_SECONDS.name,
    catalog.ACTIVITY_AGE_SECONDS.name,
}
