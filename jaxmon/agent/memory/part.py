"""Device memory and live arrays, read outside the scrape path."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from jaxmon import catalog, interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.arrays import device_bytes
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Worker
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family, family_of
from jaxmon.facts import memory as facts
from jaxmon.tuples import NamedTuple


class ArrayGroup(NamedTuple):
    """
    Live arrays of the same type and placement: the *shape* of a whole array, bytes on
    each of this process's devices, and whether that is in host memory.
    """

    dtype: Any
    shape: tuple[int, ...]
    devices: tuple[Any, ...]
    shard_bytes: int
    offloaded: bool


def group_arrays(arrays: list[Any]) -> Iterator[ArrayGroup]:
    """
    Yield the group of each of *arrays*, which are emptied meanwhile, so that none is
    kept alive. Costs 1 to 4 µs per array. Neither allocates on a device nor waits for
    one.
    """
    groups: dict[tuple[Any, ...], ArrayGroup] = {}
    while arrays:
        array = arrays.pop()
        try:
            if array.is_deleted():
                continue
            key = (array.sharding, array.shape, array.dtype, device_bytes(array))
        except RuntimeError as error:  # deleted or donated since
            interrupts.pass_on(error)
            continue
        del array
        kind = groups.get(key)
        if kind is None:
            sharding, shape, dtype, size = key
            devices = tuple(sharding.addressable_devices)
            size //= len(sharding.device_set)
            offloaded = _is_offloaded(sharding, devices)
            kind = groups[key] = ArrayGroup(dtype, shape, devices, size, offloaded)
        yield kind


def count_buffers(
    jax: Any, guard: Guard, groups: Mapping[ArrayGroup, int]
) -> Iterator[tuple[ArrayGroup, Any, int]]:
    """
    Yield each of *groups*, a device, and how many buffers its arrays have there;
    *groups* have the number of their arrays, counted just before.

    Arrays may share a buffer: an array, and what a jitted function that captures it
    holds. JAX's memory profile, 1 µs per live array, has each buffer once; without one,
    which is counted as a failure, each array counts. Pointers are not compared: reading
    one holds the buffer, and a call that donates it meanwhile would fail.
    """
    buffers = _buffers(jax, guard)
    alike: defaultdict[tuple[str, int], list[tuple[ArrayGroup, Any]]]
    alike = defaultdict(list)
    for kind in groups:
        for device in kind.devices:
            alike[str(device), kind.shard_bytes].append((kind, device))
    for key, kinds in alike.items():
        count = sum(groups[kind] for kind, _ in kinds)
        shared = 0 if buffers is None else count - buffers[key]
        types = set()
        for kind, device in kinds:
            # An array that is the only one of its type shares with none.
            most = groups[kind] - ((kind.dtype, kind.offloaded) not in types)
            types.add((kind.dtype, kind.offloaded))
            fewer = max(min(shared, most), 0)
            shared -= fewer
            yield kind, device, groups[kind] - fewer


def _buffers(jax: Any, guard: Guard) -> Counter[tuple[str, int]] | None:
    from jaxmon.agent.memory import profile as pprof  # noqa: PLC0415 - not before there are arrays

    found = Counter[tuple[str, int]]()
    try:
        for sample in pprof.samples_of(jax.profiler.device_memory_profile()).samples:
            if sample.kind == "buffer" and sample.allocations:
                found[sample.device, sample.size // sample.allocations] += (
                    sample.allocations
                )
    except Exception as error:  # noqa: BLE001 - contained: arrays are known without it
        interrupts.pass_on(error)
        if not isinstance(error, MemoryError):
            guard.failed("buffers", stays_on=True)
        return None
    return found


def _is_offloaded(sharding: Any, devices: tuple[Any, ...]) -> bool:
    kind = getattr(sharding, "memory_kind", None)
    # In older releases, a CPU's own memory has such a name too.
    return (
        kind is not None
        and kind.endswith("host")
        and all(device.default_memory().kind != kind for device in devices)
    )


_KINDS = {
    "in_use": "bytes_in_use",
    "peak": "peak_bytes_in_use",
    "limit": "bytes_limit",
    "reserved": "bytes_reserved",
    "largest_allocation": "largest_alloc_size",
    "pool": "pool_bytes",
    "largest_free_block": "largest_free_block_bytes",
}


def sizes(stats: Mapping[str, int]) -> dict[str, int]:
    """Return JAX's *stats* as `catalog.DEVICE_MEMORY_BYTES` names them, if known."""
    found = {
        kind: stats[key] for kind, key in _KINDS.items() if stats.get(key, -1) >= 0
    }
    if not found.get("largest_free_block"):
        # Allocators of older releases never compute it and return 0, which is correct
        # only if everything they hold is in use.
        held = found.get("pool", found.get("limit"))
        if held is None or held != found.get("in_use"):
            found.pop("largest_free_block", None)
    return found


def allocator_families(
    stats_by_device: Mapping[Any, Mapping[str, int]],
) -> list[Family]:
    """Return the metrics of each device; a CPU has none."""
    held: list[tuple[Any, ...]] = []
    counts = []
    for device, stats in stats_by_device.items():
        held += [(device.id, *size) for size in sizes(stats).items()]
        if stats.get("num_allocs", -1) >= 0:
            counts.append((device.id, stats["num_allocs"]))
    return [
        family_of(catalog.DEVICE_MEMORY_BYTES, held),
        family_of(catalog.DEVICE_ALLOCATIONS, counts),
    ]


# JAX has about thirty, and programs cannot add their own for arrays.
_MAX_DTYPES = 64


# Number and bytes, by dtype.
_Totals: TypeAlias = dict[str, list[int]]


class MemoryPart(Part):
    """
    Reads allocator statistics and live arrays of the local devices, once there are
    some. Keeps a list of these only while summing them: 20 ms for 10,000 arrays. What
    cannot be read is no longer exported: a gap is better than a stale value.
    """

    name = "memory"

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._interval = context.settings.memory_interval
        self._families: list[Family] = []
        self._snapshot = facts.Memory()
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

    def snapshot(self) -> facts.Memory:
        """Return the last snapshot by device; values unknown to JAX are absent."""
        return self._snapshot

    def collect(self) -> list[Family]:
        """Return the metrics of the last snapshot."""
        return self._families

    def take_snapshot(self) -> None:
        """Read everything now, on this thread, unless disabled."""
        if not self._guard.on(self.name):
            self._families, self._snapshot = [], facts.Memory()
            return
        families: list[Family] = []
        snapshot = facts.Memory()
        try:
            if backends.initialised(self._jax):
                devices = self._jax.local_devices()
                stats = {device: self._stats(device) for device in devices}
                live, offloaded = self._live()
                rows = [(device.id, offloaded[device]) for device in devices]
                families = [
                    *allocator_families(stats),
                    *self._arrays(devices, live),
                    family_of(catalog.OFFLOADED_ARRAY_BYTES, rows),
                ]
                summaries = [
                    self._summary(d, stats[d], live[d], offloaded[d]) for d in devices
                ]
                snapshot = facts.Memory(tuple(summaries), wall_time())
        finally:
            self._families, self._snapshot = families, snapshot

    def _stats(self, device: Any) -> dict[str, int]:
        try:
            found: dict[str, int] = device.memory_stats() or {}
        except Exception:  # noqa: BLE001 - contained: the other devices have figures
            self._guard.failed("memory_stats", stays_on=True)
            found = {}
        return found

    def _live(self) -> tuple[dict[Any, _Totals], dict[Any, int]]:
        """Return number and bytes by device and dtype, and bytes offloaded."""
        found: defaultdict[Any, _Totals] = defaultdict(dict)
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

    def _arrays(self, devices: list[Any], live: dict[Any, _Totals]) -> list[Family]:
        dtypes = list(self._dtypes)  # another snapshot may add one
        rows = [
            (device.id, dtype, *live[device].get(dtype, (0, 0)))
            for device in devices
            for dtype in dtypes
        ]
        return [
            family_of(catalog.LIVE_ARRAYS, [(*of, number) for *of, number, _ in rows]),
            family_of(catalog.LIVE_ARRAY_BYTES, [(*of, size) for *of, _, size in rows]),
        ]

    def _summary(
        self, device: Any, stats: dict[str, int], live: _Totals, offloaded: int
    ) -> facts.Device:
        name, size = str(device.id), sum(size for _, size in live.values())
        self._peaks[name] = max(size, self._peaks.get(name, 0))
        return facts.Device(
            device=name,
            kind=device.device_kind,
            **sizes(stats),
            live_arrays=sum(count for count, _ in live.values()),
            live_bytes=size,
            live_bytes_peak=self._peaks[name],
            offloaded_bytes=offloaded,
            dtypes={dtype: facts.Arrays(*held) for dtype, held in live.items()},
        )
