"""Live bytes by the source line that allocated them, and leaks."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic, thread_time, wall_time
from jaxmon.exposition.families import Family, family_of
from jaxmon.facts import memory as facts
from jaxmon.facts.memory import Leak
from jaxmon.facts.record import encoded
from jaxmon.host.resources.process import resident_bytes
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from types import ModuleType

    from jaxmon.agent.memory import leaks
    from jaxmon.agent.memory.holders import HolderFinder
    from jaxmon.agent.memory.profile import AllocationLine, MemoryProfile


_LINES = 5
# A collection must hold so much of what has grown.
_OF_GROWTH = 0.5
# After so much of what is judged, it is kept what there was before.
_EARLY = 0.25
_FIND_SECONDS, _FIND_PAUSES = 0.25, 50


class Suspicion:
    """Judges snapshots. Not thread-safe, but for `look`, `explain` and `family`."""

    def __init__(self, context: Context, sites: SourceLineFinder) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._sites = sites
        self._began = context.began
        self._events = context.events
        self._table = context.table
        self._window = context.settings.leak_window
        self._detector: leaks.LeakDetector | None = None
        self._filling: leaks.FillingDetector | None = None
        self._devices: tuple[str, ...] = ()
        self._leaks: dict[str, Leak] = {}
        self._rooms: Mapping[str, leaks.Room] = {}
        self._fills = False
        self._young: leaks.YoungDetector | None = None
        self._holders: HolderFinder | None = None
        # By the device, "" for the host, and when they may be looked for again.
        self._held: dict[str, facts.MemoryHolder] = {}
        self._find_at = 0.0

    def look(self, now: float) -> bool:
        """Return whether, by the memory left, a device may be full within minutes."""
        if not backends.initialised(self._jax):
            return False
        self._filling = self._filling or _leaks().FillingDetector(self._window)
        try:
            self._rooms = _leaks().rooms(self._jax.local_devices())
        except Exception:  # noqa: BLE001 - contained: a device is lost
            self._guard.failed("memory_stats", stays_on=True)
            self._rooms = {}
        self._fills = self._filling.look(self._rooms, now)
        return self._fills

    def used(self) -> int | None:
        """Return the bytes in use on devices and host; `None` without a backend."""
        if not backends.initialised(self._jax):
            return None
        used = resident_bytes() or 0
        try:
            for device in self._jax.local_devices():
                if device.platform != "cpu":
                    used += (device.memory_stats() or {}).get("bytes_in_use", 0)
        except Exception:  # noqa: BLE001 - contained: a device is lost
            self._guard.failed("memory_stats", stays_on=True)
            return None
        return used

    def judge(
        self, profile: MemoryProfile, devices: tuple[str, ...], *, ended: bool
    ) -> None:
        """
        Update the suspects from a snapshot of *devices*, just taken. Of a program that
        has *ended* no more will be known.
        """
        before, now = self._leaks, monotonic()
        self._devices = devices
        self._detector = self._detector or _leaks().LeakDetector(self._window)
        leaks = dict(self._detector.add(profile, now))
        if self._fills and self._filling is not None:
            early = self._filling.add(profile, self._rooms, self._calls(), now)
            leaks = {**early, **leaks}
        leaks = self._leaks = {**self._judge_young(profile, now, ended=ended), **leaks}
        for device, leak in leaks.items():
            if device not in before:
                fact = self._fact(leak)
                self._events.add("leak", None, _message(fact), **encoded(fact))
        self._find_holders()

    def _judge_young(
        self, profile: MemoryProfile, now: float, *, ended: bool
    ) -> Mapping[str, Leak]:
        young = self._young = self._young or _leaks().YoungDetector()
        on_cpu = {str(d.id) for d in self._jax.local_devices() if d.platform == "cpu"}
        arrays = sum(
            line.bytes
            for line in profile.lines
            if line.kind == "buffer" and line.device in on_cpu
        )
        rest = max((resident_bytes() or 0) - arrays, 0)
        young.add(profile, rest, self._calls(), now)
        if now - self._began >= self._window:
            return {}
        return young.leaks if ended else young.urgent(self._rooms)

    def host(self) -> facts.HostGrowth:
        """Return how the rest of the process grows, if it does."""
        young, holder = self._young, self._holder("")
        growth = None if young is None else young.host
        if holder.backlog:
            return facts.HostGrowth(holder.bytes, holder=holder)
        if young is None or growth is None or not young.goes_on(growth, self._calls()):
            return facts.HostGrowth()
        left = _leaks().seconds_left(growth, _leaks().room_of_host())
        return growth.replace(full_in_seconds=left, holder=holder)

    def _holder(self, device: str) -> facts.MemoryHolder:
        return self._held.get(device, facts.MemoryHolder())

    def _find_holders(self) -> None:
        """
        Find what holds what has grown: while the program runs, for at its end its
        variables may be gone. Takes at most a fiftieth of the time.
        """
        young = {} if self._young is None else self._young.leaks
        leaks = {**young, **self._leaks}
        grown = {device: leak.growth_bytes for device, leak in leaks.items()}
        host = None if self._young is None else self._young.host
        risen = 0 if self._young is None else self._young.risen
        if host is not None or risen >= _leaks().YOUNG_GROWTH * _OF_GROWTH:
            grown[""] = risen if host is None else host.growth_bytes
        early = risen >= _leaks().YOUNG_GROWTH * _EARLY
        if not (grown or early) or monotonic() < self._find_at:
            return
        before = thread_time()
        # The growth is known without.
        with self._guard.contained("holders", stays_on=True):
            if self._holders is None:
                from jaxmon.agent.memory.holders import HolderFinder  # noqa: PLC0415

                self._holders, grown = HolderFinder(self._sites), {}
            for device, growth in grown.items():
                grows = bool(device or host) and not self._holder(device).backlog
                found = self._holders.largest(growth * _OF_GROWTH)
                if found.name and (grows or found.backlog):
                    self._held[device] = found
        pause = max(_FIND_SECONDS, _FIND_PAUSES * (thread_time() - before))
        self._find_at = monotonic() + pause

    def drop(self) -> None:
        """Drop the suspects, because snapshots fail."""
        self._devices, self._leaks = (), {}

    def forget(self) -> None:
        """Drop everything, because the devices are gone."""
        self.drop()
        self._detector = self._filling = self._young = self._holders = None
        self._rooms, self._fills = {}, False
        self._held.clear()

    def explain(self) -> tuple[Leak, ...]:
        """Return the suspects."""
        return tuple(
            [
                self._fact(leak).replace(holder=self._holder(leak.device))
                for leak in list(self._leaks.values())
                if not leak.calls or self._goes_on(leak)
            ]
        )

    def growing(self) -> tuple[Leak, ...]:
        """Return what grows in a young program, and is no suspect yet."""
        young = self._young
        if young is None or monotonic() - self._began >= self._window:
            return ()
        found = [*young.leaks.values(), *young.growing.values()]
        new = [leak for leak in found if leak.device not in self._leaks]
        return tuple([self._fact(leak) for leak in new if self._goes_on(leak)])

    def _goes_on(self, growth: Leak) -> bool:
        return self._young is None or self._young.goes_on(growth, self._calls())

    def family(self) -> Family:
        """Return the growth of the suspects, by device."""
        growth = {device: leak.growth_bytes for device, leak in self._leaks.items()}
        rows = [(device, growth.get(device, 0)) for device in self._devices]
        return family_of(catalog.LEAK_GROWTH_BYTES, rows)

    def _calls(self) -> int:
        return sum(f.objects.calls for f in self._table if not f.internal)

    def _fact(self, leak: Leak) -> Leak:
        left = _leaks().seconds_left(leak, self._rooms.get(leak.device))
        return leak.replace(full_in_seconds=left, lines=leak.lines[:_LINES])


def _leaks() -> ModuleType:
    from jaxmon.agent.memory import leaks  # noqa: PLC0415 - once there is a backend

    return leaks


def _message(leak: Leak) -> str:
    lines = "".join(
        f"\n  {line.growth_bytes:+,} bytes, {line.growth_arrays:+,} arrays at {line}"
        for line in leak.lines
    )
    return (
        f"live bytes on device {leak.device} grew steadily for {leak.seconds:,.0f} "
        f"s, by {leak.growth_bytes:,}:{lines}"
    )


LIMIT = 50
"""Maximum number of source lines reported."""

_PEAK_LINES = 5

# A program that frees its results periodically must not be sampled at the same phase
# each time: that would look like a slope.
_SPREAD = 0.4
# In a young program: first pause between two looks at how much memory is used, what
# fraction of its age it is later, and growth after which a snapshot is taken.
_YOUNG_PAUSE, _YOUNG_FRACTION, _YOUNG_BYTES = 0.2, 0.1, 32 << 20
_LOOK_SECONDS = 5.0
"""Time between two looks at how fast memory fills up, if snapshots take longer."""


class MemoryLines(Part):
    """
    Reads JAX's own memory profile on a background thread: JAX always records the stack
    of each live buffer; a snapshot takes 1 µs per live array, holding the GIL. Nothing
    is allocated on a device, and the backends are never initialised by us.
    """

    name = "allocations"

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._interval = context.settings.memory_lines_interval
        self._sites = SourceLineFinder(context.jax)
        self._suspicion = Suspicion(context, self._sites)
        self._scheduler = context.scheduler
        self._began = context.began
        self._young_until = context.began + context.settings.leak_window
        self._used = 0
        # A separate one: the program may have seeded the shared one.
        self._random = random.Random()  # noqa: S311 - nothing secret
        self._due = 0.0
        self._last: MemoryProfile | None = None
        self._first: MemoryProfile | None = None
        # Of each device: bytes in the snapshot that had most, and what held them.
        self._peaks: dict[str, tuple[int, tuple[AllocationLine, ...]]] = {}
        # Several threads may request a snapshot; reentrant, because a finaliser may
        # request one within another.
        self._lock = RLock()
        self._worker = Worker(
            "allocations",
            context.scheduler,
            every=min(self._interval, _LOOK_SECONDS),
            routine=self._look,
            spread=_SPREAD,
        )

    def start(self) -> None:
        """Start the thread that takes snapshots, if enabled."""
        if self._interval:
            self._worker.start()
            # Together with what is due then: waking the thread takes most of it.
            self._scheduler.later(
                _YOUNG_PAUSE, self._ring, site=self.name, early=_YOUNG_PAUSE / 2
            )

    def stop(self) -> None:
        """Stop the thread and drop all snapshots."""
        self._worker.stop()
        self._forget()

    def refresh(self, *, asked: bool) -> None:
        """Take a snapshot now, unless disabled; unasked, the program ends."""
        # What has grown may have been freed by then, which says nothing about it.
        freed = not asked and (self._suspicion.used() or 0) < self._used
        self.take_snapshot(judge=not freed, ended=not asked)

    def explain(self) -> Explanation:
        """Return the source lines that hold memory."""
        return Explanation({"allocations": self.snapshot})

    def take_snapshot(self, *, judge: bool = True, ended: bool = False) -> None:
        """Take a snapshot now, on this thread; does nothing if disabled."""
        if self._interval:
            self.profile(judge=judge, ended=ended)

    def profile(self, *, judge: bool = True, ended: bool = False) -> MemoryProfile:
        """
        Return the memory holders, and *judge* what grows, of a program that has *ended*
        or runs; empty without a backend, and if disabled.
        Raises `ProfileError` if JAX's profile cannot be read.
        """
        from jaxmon.agent.memory.profile import MemoryProfile, read  # noqa: PLC0415

        if not backends.initialised(self._jax) or not self._guard.on(self.name):
            self._forget()
            return MemoryProfile(wall_time(), ())
        try:
            devices = {str(of): str(of.id) for of in self._jax.local_devices()}
            data = self._jax.profiler.device_memory_profile()
            profile = read(data, self._sites, devices)
        except BaseException:
            # It is unknown whether the suspects still grow.
            with self._lock:
                self._suspicion.drop()
            raise
        with self._lock:
            self._last = profile
            self._first = self._first or profile
            self._keep_peaks(profile)
            if self._interval and judge:
                self._suspicion.judge(profile, tuple(devices.values()), ended=ended)
        return profile

    def lines(self, limit: int = LIMIT, *, fresh: bool = True) -> facts.Allocations:
        """
        Return the lines that hold most memory in a *fresh* snapshot, or else the last.
        Never raises, and allocates nothing on a device: for failure reports.
        """
        if fresh:
            try:
                self.profile()
            except MemoryError as error:  # no memory: not a failure of ours
                interrupts.pass_on(error)
            except Exception:  # noqa: BLE001 - contained: the caller reports a failure
                self._guard.failed("allocations", stays_on=True)
        last = self._last
        if last is None:
            return facts.Allocations(time=None, lines=())
        from jaxmon.agent.memory.profile import held  # noqa: PLC0415 - with a snapshot

        return facts.Allocations(time=last.time, lines=held(last.lines, limit))

    @property
    def has_snapshot(self) -> bool:
        """Whether a snapshot has been taken."""
        return self._last is not None

    def snapshot(self) -> facts.Allocations:
        """Return the last snapshot and growth since the first; takes one if needed."""
        if self._interval and not self.has_snapshot:
            self.lines()
        with self._lock:
            last, first, leaks = self._last, self._first, self._suspicion.explain()
            growing, host = self._suspicion.growing(), self._suspicion.host()
            peaks = self._peaks.copy()
        if last is None or first is None:
            return facts.Allocations()
        from jaxmon.agent.memory.profile import held  # noqa: PLC0415

        growth = {
            _identity(line): line.bytes for line in held(last.growth_since(first))
        }
        return facts.Allocations(
            time=last.time,
            seconds=last.time - first.time,
            bytes=last.bytes,
            arrays=last.arrays,
            lines=tuple(
                line.replace(growth_bytes=growth.get(_identity(line), 0))
                for line in held(last.lines, LIMIT)
            ),
            peaks=tuple(
                facts.MemoryPeak(device, size, held(lines))
                for device, (size, lines) in peaks.items()
            ),
            leaks=leaks,
            growing=growing,
            host=host,
        )

    def collect(self) -> list[Family]:
        """Return the suspected growth by device."""
        return [self._suspicion.family()] if self._interval else []

    def _forget(self) -> None:
        with self._lock:
            self._first = self._last = None
            self._peaks.clear()
            self._suspicion.forget()

    def _keep_peaks(self, profile: MemoryProfile) -> None:
        held = defaultdict[str, list["AllocationLine"]](list)
        for line in profile.lines:
            if line.kind == "buffer":
                held[line.device].append(line)
        for device, lines in held.items():
            size = sum(line.bytes for line in lines)
            if size > self._peaks.get(device, (0, ()))[0]:
                self._peaks[device] = size, tuple(lines[:_PEAK_LINES])

    def _ring(self) -> float | None:
        """Look at a young program's memory soon; return the pause until then."""
        now = monotonic()
        if now >= self._young_until or not self._worker.submit(self._look_early):
            return None
        return max(_YOUNG_PAUSE, (now - self._began) * _YOUNG_FRACTION)

    def _look_early(self) -> None:
        used = self._suspicion.used()
        if used is None or used < self._used + _YOUNG_BYTES:
            return
        self._used = used
        self.take_snapshot()

    def _look(self) -> None:
        now = monotonic()
        filling = self._suspicion.look(now)
        if filling or now >= self._due:
            pause = self._interval * (1 + _SPREAD * self._random.uniform(-1, 1))
            self._due = now + max(pause - _LOOK_SECONDS / 2, 0)
            self.take_snapshot()


def _identity(line: facts.Line) -> tuple[str, int, str, str]:
    return line.file, line.line, line.function, line.kind
