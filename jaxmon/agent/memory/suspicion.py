"""The leaks that are suspected now, from both detectors, as metric, event and facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.jaxlink import backends
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Family, series
from jaxmon.facts.memory import Leak
from jaxmon.facts.record import encoded


if TYPE_CHECKING:
    from jaxmon.agent.memory.filling import FillingDetector
    from jaxmon.agent.memory.leaks import LeakDetector
    from jaxmon.agent.memory.profile import MemoryProfile
    from jaxmon.agent.memory.room import Room


_LINES = 5


class Suspicion:
    """
    Judges snapshots. Not thread-safe, but for `look`, `explain` and `family`.

    What it judges with is loaded once the program has a backend.
    """

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._events = context.events
        self._table = context.table
        self._window = context.settings.leak_window
        self._detector: LeakDetector | None = None
        self._filling: FillingDetector | None = None
        self._devices: tuple[str, ...] = ()
        self._leaks: dict[str, Leak] = {}
        self._rooms: Mapping[str, Room] = {}
        self._fills = False

    def look(self, now: float) -> bool:
        """
        Read how much memory is left; return whether a device may be full within
        minutes.

        Args:
            now: seconds on a monotonic clock.
        """
        if not backends.initialised(self._jax):
            return False
        from jaxmon.agent.memory.filling import FillingDetector  # noqa: PLC0415
        from jaxmon.agent.memory.room import rooms  # noqa: PLC0415

        self._filling = self._filling or FillingDetector(self._window)
        try:
            self._rooms = rooms(self._jax.local_devices())
        except Exception:  # noqa: BLE001 - contained: a device is lost
            self._guard.failed("memory_stats", stays_on=True)
            self._rooms = {}
        self._fills = self._filling.look(self._rooms, now)
        return self._fills

    def judge(self, profile: MemoryProfile, devices: tuple[str, ...]) -> None:
        """Update the suspects from a snapshot of *devices*, just taken."""
        from jaxmon.agent.memory.leaks import LeakDetector  # noqa: PLC0415

        before, now = self._leaks, monotonic()
        self._devices = devices
        self._detector = self._detector or LeakDetector(self._window)
        leaks = dict(self._detector.add(profile, now))
        if self._fills and self._filling is not None:
            early = self._filling.add(profile, self._rooms, self._calls(), now)
            leaks = {**early, **leaks}
        self._leaks = leaks
        for device, leak in leaks.items():
            if device not in before:
                fact = self._fact(leak)
                self._events.add("leak", None, _message(fact), **encoded(fact))

    def drop(self) -> None:
        """Drop the suspects, because snapshots fail."""
        self._devices, self._leaks = (), {}

    def forget(self) -> None:
        """Drop everything, because the devices are gone."""
        self.drop()
        self._detector = self._filling = None
        self._rooms, self._fills = {}, False

    def explain(self) -> tuple[Leak, ...]:
        """Return the suspects."""
        return tuple([self._fact(leak) for leak in list(self._leaks.values())])

    def family(self) -> Family:
        """Return the growth of the suspects, by device."""
        metric, leaks = catalog.LEAK_GROWTH_BYTES, self._leaks
        return Family(
            metric,
            [
                (
                    series(metric, device),
                    leaks[device].growth_bytes if device in leaks else 0,
                )
                for device in self._devices
            ],
        )

    def _calls(self) -> int:
        """Return how often the program has called jitted functions of its own."""
        return sum(one.objects.calls for one in self._table if not one.internal)

    def _fact(self, leak: Leak) -> Leak:
        from jaxmon.agent.memory.filling import seconds_left  # noqa: PLC0415

        left = seconds_left(leak, self._rooms)
        return leak.replace(full_in_seconds=left, lines=leak.lines[:_LINES])


def _message(leak: Leak) -> str:
    from jaxmon.agent.memory.profile import place  # noqa: PLC0415

    lines = "".join(
        f"\n  {one.growth_bytes:+,} bytes, {one.growth_arrays:+,} arrays "
        f"at {place(one)}"
        for one in leak.lines
    )
    return (
        f"live bytes on device {leak.device} grew steadily for {leak.seconds:,.0f} "
        f"s, by {leak.growth_bytes:,}:{lines}"
    )
