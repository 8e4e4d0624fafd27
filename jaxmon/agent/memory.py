"""
Device memory and live arrays, looked at off the scrape path.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import ModuleType
from typing import Any

from jaxmon import catalog
from jaxmon.agent.guard import Guard
from jaxmon.exposition.families import Family, Sample, series


SITE = "memory"

_KINDS = {
    "in_use": "bytes_in_use",
    "peak": "peak_bytes_in_use",
    "limit": "bytes_limit",
    "reserved": "bytes_reserved",
    "largest_allocation": "largest_alloc_size",
}
# A look takes at most this share of the time: with many arrays it is made less often.
_SHARE = 0.01


class Memory:
    """
    Reads allocator figures and live arrays of the local devices.

    JAX's backends are never started by us: until the program does, there is
    nothing to read. Holds a list of the live arrays only while it adds them up:
    15 ms for 10,000 arrays.

    Args:
        interval: seconds between two looks.
    """

    def __init__(self, jax: ModuleType, guard: Guard, *, interval: float) -> None:
        self._jax: Any = jax
        self._guard = guard
        self._interval = interval
        self._families: list[Family] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """
        Start the thread that looks.
        """
        self._thread = threading.Thread(
            target=self._run, name="jaxmon-memory", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """
        Stop the thread and wait for it.
        """
        self._stop.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout=5)

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
        self._families = [*_allocators(devices), *self._live(devices)]

    def _run(self) -> None:
        pause = self._interval
        while not self._stop.wait(pause) and self._guard.on(SITE):
            before = time.thread_time()
            try:
                self.look()
            except Exception:  # noqa: BLE001 - contained: our own thread goes on
                self._guard.failed(SITE)
            pause = max(self._interval, (time.thread_time() - before) / _SHARE)

    def _live(self, devices: list[Any]) -> list[Family]:
        count, size = Counter[Any](), Counter[Any]()
        arrays = self._jax.live_arrays()
        while arrays:
            # Popped, so that an array the program drops meanwhile is not kept.
            array = arrays.pop()
            try:
                shard = array.sharding.shard_shape(array.shape)
                held = array.sharding.addressable_devices
                nbytes = _product(shard) * array.dtype.itemsize
            except RuntimeError:  # deleted or donated since
                continue
            for device in held:
                count[device] += 1
                size[device] += nbytes
        return [
            Family(metric, [(series(metric, d.id), found[d]) for d in devices])
            for metric, found in (
                (catalog.LIVE_ARRAYS, count),
                (catalog.LIVE_ARRAY_BYTES, size),
            )
        ]


def _allocators(devices: list[Any]) -> list[Family]:
    memory, allocations = catalog.DEVICE_MEMORY_BYTES, catalog.DEVICE_ALLOCATIONS
    sizes: list[Sample] = []
    counts: list[Sample] = []
    for device in devices:
        stats = device.memory_stats() or {}
        # Figures that an allocator does not keep are missing or negative.
        sizes += [
            (series(memory, device.id, kind), stats[key])
            for kind, key in _KINDS.items()
            if stats.get(key, -1) >= 0
        ]
        if stats.get("num_allocs", -1) >= 0:
            counts.append((series(allocations, device.id), stats["num_allocs"]))
    return [Family(memory, sizes), Family(allocations, counts)]


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total
