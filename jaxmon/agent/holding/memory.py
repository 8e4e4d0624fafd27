"""
Device memory and live arrays, looked at off the scrape path.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.holding.live import Kind, kinds
from jaxmon.agent.worker import Worker
from jaxmon.exposition.families import Family, Sample, series


_KINDS = {
    "in_use": "bytes_in_use",
    "peak": "peak_bytes_in_use",
    "limit": "bytes_limit",
    "reserved": "bytes_reserved",
    "largest_allocation": "largest_alloc_size",
}

# JAX has some thirty, and a program may not register its own for arrays.
_MAX_DTYPES = 64


class Memory:
    """
    Reads allocator figures and live arrays of the local devices.

    JAX's backends are never started by us: until the program does, there is
    nothing to read. Holds a list of the live arrays only while it adds them up:
    10 ms for 10,000 arrays.
    """

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._interval = context.settings.memory_interval
        self._families: list[Family] = []
        self._devices: list[dict[str, Any]] = []
        # A dtype that is gone stays at 0, and JAX's default is there from the start: a
        # series that ends, or that is missing, says nothing.
        self._dtypes: dict[str, None] = {"float32": None}
        self._worker = Worker(
            "memory", context.guard, every=self._interval, routine=self.look
        )

    def start(self) -> None:
        """
        Start the thread that looks, if it is to.
        """
        if self._interval:
            self._worker.start()

    def stop(self) -> None:
        """
        Stop the thread and wait for it.
        """
        self._worker.stop()

    def snapshot(self) -> dict[str, Any]:
        """
        Return the figures of the last look by device; what JAX does not tell is
        absent.
        """
        return {"devices": self._devices}

    def collect(self) -> list[Family]:
        """
        Return the figures of the last look.
        """
        return self._families

    def look(self) -> None:
        """
        Read everything now, on this thread.
        """
        if not self._jax._src.xla_bridge.backends_are_initialized():  # noqa: SLF001
            return
        devices = self._jax.local_devices()
        stats = {device: device.memory_stats() or {} for device in devices}
        live = self._live()
        self._families = [*_allocators(stats), *self._arrays(devices, live)]
        self._devices = [_summary(one, stats[one], live[one]) for one in devices]

    def _live(self) -> dict[Any, dict[str, list[int]]]:
        """
        Return how many arrays there are, and their bytes, by device and dtype.
        """
        found: defaultdict[Any, dict[str, list[int]]] = defaultdict(dict)
        totals: dict[Kind, list[list[int]]] = {}
        for kind in kinds(self._jax.live_arrays()):
            of_kind = totals.get(kind)
            if of_kind is None:
                dtype = self._dtype(kind.dtype)
                of_kind = totals[kind] = [
                    found[device].setdefault(dtype, [0, 0]) for device in kind.devices
                ]
            for total in of_kind:
                total[0] += 1
                total[1] += kind.shard_bytes
        return found

    def _dtype(self, dtype: Any) -> str:
        name = str(dtype)
        if name not in self._dtypes and len(self._dtypes) >= _MAX_DTYPES:
            name = "other"
        self._dtypes[name] = None
        return name

    def _arrays(
        self, devices: list[Any], live: dict[Any, dict[str, list[int]]]
    ) -> list[Family]:
        dtypes = list(self._dtypes)  # another look may add one
        return [
            Family(
                metric,
                [
                    (
                        series(metric, device.id, dtype),
                        live[device].get(dtype, (0, 0))[place],
                    )
                    for device in devices
                    for dtype in dtypes
                ],
            )
            for place, metric in enumerate(
                (catalog.LIVE_ARRAYS, catalog.LIVE_ARRAY_BYTES)
            )
        ]


def _allocators(stats_by_device: dict[Any, Any]) -> list[Family]:
    memory, allocations = catalog.DEVICE_MEMORY_BYTES, catalog.DEVICE_ALLOCATIONS
    sizes: list[Sample] = []
    counts: list[Sample] = []
    for device, stats in stats_by_device.items():
        sizes += [
            (series(memory, device.id, kind), value)
            for kind, value in _sizes(stats).items()
        ]
        if stats.get("num_allocs", -1) >= 0:
            counts.append((series(allocations, device.id), stats["num_allocs"]))
    return [Family(memory, sizes), Family(allocations, counts)]


def _sizes(stats: dict[str, int]) -> dict[str, int]:
    # Figures that an allocator does not keep are missing or negative.
    return {kind: stats[key] for kind, key in _KINDS.items() if stats.get(key, -1) >= 0}


def _summary(
    device: Any, stats: dict[str, int], live: dict[str, list[int]]
) -> dict[str, Any]:
    return {
        "device": str(device.id),
        "kind": device.device_kind,
        **_sizes(stats),
        "live_arrays": sum(count for count, _ in live.values()),
        "live_bytes": sum(size for _, size in live.values()),
        "dtypes": {
            dtype: {"arrays": count, "bytes": size}
            for dtype, (count, size) in live.items()
        },
    }
