"""Live bytes by the source line that allocated them, and leaks."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from jaxmon import interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.memory.suspicion import Suspicion
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic, wall_time
from jaxmon.exposition.families import Family
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.agent.memory.profile import Line, MemoryProfile


LIMIT = 50
"""Maximum number of source lines reported."""

_PEAK_LINES = 5

# A program that frees its results periodically must not be sampled at the same phase
# each time: that would look like a slope.
_SPREAD = 0.4
_LOOK_SECONDS = 5.0
"""Time between two looks at how fast memory fills up, if snapshots take longer."""


class MemoryLines(Part):
    """
    Reads JAX's own memory profile on a background thread.

    JAX itself always records the stack of each live buffer; a snapshot costs as much as
    `jax.profiler.device_memory_profile`, about 1 µs per live array, holding the GIL.
    Nothing is allocated on a device, and the backends are never initialised by us.
    """

    name = "allocations"

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._interval = context.settings.memory_lines_interval
        self._sites = SourceLineFinder(context.jax)
        self._suspicion = Suspicion(context)
        # A separate one: the program may have seeded the shared one.
        self._random = random.Random()  # noqa: S311 - nothing secret
        self._due = 0.0
        self._last: MemoryProfile | None = None
        self._first: MemoryProfile | None = None
        # Of each device: bytes in the snapshot that had most, and what held them.
        self._peaks: dict[str, tuple[int, tuple[Line, ...]]] = {}
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

    def stop(self) -> None:
        """Stop the thread and drop all snapshots."""
        self._worker.stop()
        self._forget()

    def refresh(self, *, asked: bool) -> None:
        """Take a snapshot now, unless disabled."""
        del asked
        self.take_snapshot()

    def explain(self) -> Explanation:
        """Return the source lines that hold memory."""
        return Explanation({"allocations": self.snapshot})

    def take_snapshot(self) -> None:
        """Take a snapshot now, on this thread; does nothing if disabled."""
        if self._interval:
            self.profile()

    def profile(self) -> MemoryProfile:
        """
        Return the memory holders; empty before the program has initialised a backend.

        Raises:
            ProfileError: JAX's profile cannot be read.
        """
        from jaxmon.agent.memory.profile import MemoryProfile, read  # noqa: PLC0415

        if not backends.initialised(self._jax):
            self._forget()
            return MemoryProfile(wall_time(), ())
        try:
            devices = {str(one): str(one.id) for one in self._jax.local_devices()}
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
            if self._interval:
                self._suspicion.judge(profile, tuple(devices.values()))
        return profile

    def lines(self, limit: int = LIMIT, *, fresh: bool = True) -> dict[str, Any]:
        """
        Return the source lines that hold most memory, as in `snapshot`, and the time of
        the snapshot.

        Never raises, and allocates nothing on a device: for failure reports.

        Args:
            limit: maximum number of lines.
            fresh: take a snapshot now; otherwise, or if that fails, use the last one.
        """
        if fresh:
            try:
                self.profile()
            except MemoryError as error:  # no memory: not a failure of ours
                interrupts.pass_on(error)
            except Exception:  # noqa: BLE001 - contained: somebody reports a failure
                self._guard.failed("allocations", stays_on=True)
        last = self._last
        if last is None:
            return {"time": None, "lines": []}
        return {"time": last.time, "lines": last.rows(limit)}

    @property
    def has_snapshot(self) -> bool:
        """Whether a snapshot has been taken."""
        return self._last is not None

    def snapshot(self) -> dict[str, Any]:
        """
        Return the last snapshot and growth since the first; takes one if there is none.
        """
        if self._interval and not self.has_snapshot:
            self.lines()
        with self._lock:
            last, first, leaks = self._last, self._first, self._suspicion.explain()
            peaks = self._peaks.copy()
        if last is None or first is None:
            return {}
        from jaxmon.agent.memory.profile import rows  # noqa: PLC0415

        growth = {
            _identity(row): row["bytes"] for row in rows(last.growth_since(first))
        }
        return {
            "time": last.time,
            "seconds": last.time - first.time,
            "bytes": last.bytes,
            "arrays": last.arrays,
            "lines": [
                {**row, "growth_bytes": growth.get(_identity(row), 0)}
                for row in last.rows(LIMIT)
            ],
            "peaks": [
                {"device": device, "bytes": size, "lines": rows(lines)}
                for device, (size, lines) in peaks.items()
            ],
            "leaks": leaks,
        }

    def collect(self) -> list[Family]:
        """Return the suspected growth by device."""
        return [self._suspicion.family()] if self._interval else []

    def _forget(self) -> None:
        """Drop all snapshots: their devices are gone."""
        with self._lock:
            self._first = self._last = None
            self._peaks.clear()
            self._suspicion.forget()

    def _keep_peaks(self, profile: MemoryProfile) -> None:
        held = defaultdict[str, list["Line"]](list)
        for line in profile.lines:
            if line.kind == "buffer":
                held[line.device].append(line)
        for device, lines in held.items():
            size = sum(line.bytes for line in lines)
            if size > self._peaks.get(device, (0, ()))[0]:
                self._peaks[device] = size, tuple(lines[:_PEAK_LINES])

    def _look(self) -> None:
        """Take a snapshot if one is due, or if a device fills up within minutes."""
        now = monotonic()
        filling = self._suspicion.look(now)
        if filling or now >= self._due:
            pause = self._interval * (1 + _SPREAD * self._random.uniform(-1, 1))
            self._due = now + max(pause - _LOOK_SECONDS / 2, 0)
            self.take_snapshot()


def _identity(row: dict[str, Any]) -> tuple[str, int, str, str]:
    return row["file"], row["line"], row["function"], row["kind"]
