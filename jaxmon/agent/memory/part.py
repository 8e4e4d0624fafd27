"""Device memory and live arrays, read outside the scrape path."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.memory import allocators
from jaxmon.agent.memory.live import count_buffers, group_arrays
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.exposition.families import Family, series


# JAX has about thirty, and programs cannot add their own for arrays.
_MAX_DTYPES = 64


class Memory(Part):
    """
    Reads allocator statistics and live arrays of the local devices.

    Never initialises JAX's backends: until the program does, there is nothing to read.
    Keeps a list of the live arrays only while summing them: 20 ms for 10,000 arrays.
    Data that cannot be read, or whose backend is gone, is no longer exported: a gap is
    better than a stale value.
    """

    name = "memory"

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._interval = context.settings.memory_interval
        self._families: list[Family] = []
        self._devices: list[dict[str, Any]] = []
        self._peaks: dict[str, int] = {}
        # A dtype without arrays stays at 0, and JAX's default dtype is exported from
        # the start: a series that ends or is missing is ambiguous.
        self._dtypes: dict[str, None] = {"float32": None}
        self._worker = Worker(
            "memory",
            context.scheduler,
            every=self._interval,
            routine=self.take_snapshot,
            gives_up=False,
        )

    def start(self) -> None:
        """Start the thread that takes snapshots, if enabled."""
        if self._interval:
            self._worker.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._worker.stop()

    def refresh(self, *, asked: bool) -> None:
        """Take a snapshot now."""
        if asked or self._interval:
            self.take_snapshot()

    def explain(self) -> Explanation:
        """Return the memory of the devices."""
        return Explanation({"memory": self.snapshot})

    def snapshot(self) -> dict[str, Any]:
        """Return the last snapshot by device; values unknown to JAX are absent."""
        return {"devices": self._devices}

    def collect(self) -> list[Family]:
        """Return the metrics of the last snapshot."""
        return self._families

    def take_snapshot(self) -> None:
        """Read everything now, on this thread."""
        families: list[Family] = []
        summaries: list[dict[str, Any]] = []
        try:
            if backends.initialised(self._jax):
                devices = self._jax.local_devices()
                stats = {device: self._stats(device) for device in devices}
                live, offloaded = self._live()
                families = [
                    *allocators.families(stats),
                    *self._arrays(devices, live),
                    _offloaded(devices, offloaded),
                ]
                summaries = [
                    self._summary(one, stats[one], live[one], offloaded[one])
                    for one in devices
                ]
        finally:
            self._families, self._devices = families, summaries

    def _stats(self, device: Any) -> dict[str, int]:
        """Return the allocator statistics of *device*; empty if it is lost."""
        try:
            found: dict[str, int] = device.memory_stats() or {}
        except Exception:  # noqa: BLE001 - contained: the other devices have figures
            self._guard.failed("memory_stats", stays_on=True)
            found = {}
        return found

    def _live(self) -> tuple[dict[Any, dict[str, list[int]]], dict[Any, int]]:
        """
        Return number and bytes of the buffers in device memory, by device and dtype,
        and the bytes of those offloaded to host memory.
        """
        found: defaultdict[Any, dict[str, list[int]]] = defaultdict(dict)
        offloaded: defaultdict[Any, int] = defaultdict(int)
        groups = Counter(group_arrays(self._jax.live_arrays()))
        for kind, device, count in count_buffers(self._jax, self._guard, groups):
            size = kind.shard_bytes * count
            if kind.offloaded:
                offloaded[device] += size
            else:
                total = found[device].setdefault(self._dtype(kind.dtype), [0, 0])
                total[0] += count
                total[1] += size
        return found, offloaded

    def _dtype(self, dtype: Any) -> str:
        name = str(dtype)
        if name not in self._dtypes and len(self._dtypes) >= _MAX_DTYPES:
            name = "other"
        self._dtypes[name] = None
        return name

    def _arrays(
        self, devices: list[Any], live: dict[Any, dict[str, list[int]]]
    ) -> list[Family]:
        dtypes = list(self._dtypes)  # another snapshot may add one
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

    def _summary(
        self,
        device: Any,
        stats: dict[str, int],
        live: dict[str, list[int]],
        offloaded: int,
    ) -> dict[str, Any]:
        name, size = str(device.id), sum(size for _, size in live.values())
        self._peaks[name] = max(size, self._peaks.get(name, 0))
        return {
            "device": name,
            "kind": device.device_kind,
            **allocators.sizes(stats),
            "live_arrays": sum(count for count, _ in live.values()),
            "live_bytes": size,
            "live_bytes_peak": self._peaks[name],
            "offloaded_bytes": offloaded,
            "dtypes": {
                dtype: {"arrays": count, "bytes": size}
                for dtype, (count, size) in live.items()
            },
        }


def _offloaded(devices: list[Any], sizes: dict[Any, int]) -> Family:
    metric = catalog.OFFLOADED_ARRAY_BYTES
    return Family(metric, [(series(metric, one.id), sizes[one]) for one in devices])
