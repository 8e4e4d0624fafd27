"""Live bytes by the source line that allocated them, and leaks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic, wall_time
from jaxmon.exposition.families import Family, series


if TYPE_CHECKING:
    from jaxmon.agent.memory.leaks import Leak, LeakDetector
    from jaxmon.agent.memory.profile import MemoryProfile


LIMIT = 50
"""Maximum number of source lines reported."""

_LEAK_LINES = 5
# A program that frees its results periodically must not be sampled at the same phase
# each time: that would look like a slope.
_SPREAD = 0.4


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
        self._events = context.events
        self._interval = context.settings.memory_lines_interval
        self._window = context.settings.leak_window
        self._sites = SourceLineFinder(context.jax)
        self._detector: LeakDetector | None = None
        self._leaks: dict[str, Leak] = {}
        self._devices: tuple[str, ...] = ()
        self._last: MemoryProfile | None = None
        self._first: MemoryProfile | None = None
        # Several threads may request a snapshot; reentrant, because a finaliser may
        # request one within another.
        self._lock = threading.RLock()
        self._worker = Worker(
            "allocations",
            context.guard,
            every=self._interval,
            routine=self.take_snapshot,
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
                self._devices, self._leaks = (), {}
            raise
        with self._lock:
            self._devices = tuple(devices.values())
            self._last = profile
            self._first = self._first or profile
            if self._interval:
                self._judge(profile)
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
            last, first, leaks = self._last, self._first, list(self._leaks.values())
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
            "leaks": [_details(leak) for leak in leaks],
        }

    def collect(self) -> list[Family]:
        """Return the suspected growth by device."""
        metric = catalog.LEAK_GROWTH_BYTES
        leaks = self._leaks
        if not self._interval:
            return []
        return [
            Family(
                metric,
                [
                    (
                        series(metric, device),
                        leaks[device].growth_bytes if device in leaks else 0,
                    )
                    for device in self._devices
                ],
            )
        ]

    def _forget(self) -> None:
        """Drop all snapshots: their devices are gone."""
        with self._lock:
            self._first = self._last = None
            self._devices, self._leaks = (), {}
            self._detector = None

    def _judge(self, profile: MemoryProfile) -> None:
        from jaxmon.agent.memory.leaks import LeakDetector  # noqa: PLC0415

        before = self._leaks
        self._detector = self._detector or LeakDetector(self._window)
        self._leaks = dict(self._detector.add(profile, monotonic()))
        for device, leak in self._leaks.items():
            if device not in before:
                details = _details(leak)
                self._events.add("leak", None, _message(leak, details), **details)


def _details(leak: Leak) -> dict[str, Any]:
    from jaxmon.agent.memory.profile import rows  # noqa: PLC0415

    return {
        "device": leak.device,
        "growth_bytes": leak.growth_bytes,
        "seconds": leak.seconds,
        "lines": [
            {
                **rows([one.line])[0],
                "growth_bytes": one.growth_bytes,
                "growth_arrays": one.growth_arrays,
            }
            for one in leak.suspects[:_LEAK_LINES]
        ],
    }


def _message(leak: Leak, details: dict[str, Any]) -> str:
    from jaxmon.agent.memory.profile import place  # noqa: PLC0415

    lines = "".join(
        f"\n  {row['growth_bytes']:+,} bytes, {row['growth_arrays']:+,} arrays "
        f"at {place(row)}"
        for row in details["lines"]
    )
    return (
        f"live bytes on device {leak.device} grew steadily for {leak.seconds:,.0f} "
        f"s, by {leak.growth_bytes:,}:{lines}"
    )


def _identity(row: dict[str, Any]) -> tuple[str, int, str, str]:
    return row["file"], row["line"], row["function"], row["kind"]
