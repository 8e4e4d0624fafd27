"""
A realistic synthetic fleet for dashboards, documentation and screenshots.

Eight accelerators and four JAX workers that train and serve. Every value is a function
of seed and clock only, so two exporters with one seed agree, counters never decrease,
and a test can choose any moment. Off by default.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, TypeAlias

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, Sample, gauge, series
from jaxmon_exporter.polling import Collector


Row: TypeAlias = tuple[Any, ...]
"""A metric, its value, and labels after ``uuid`` or ``worker``."""

ACCELERATORS = 8
WORKERS = 4
_GIB = 1 << 30
_MEMORY_BYTES = 80 * _GIB
_POWER_LIMIT, _IDLE_POWER = 700.0, 85.0
_MODEL = "NVIDIA H100 80GB HBM3"
# Bytes per second of a GPU that is busy all the time.
_PCIE, _NVLINK = 6e9, 1.4e11
# In MHz.
_CLOCKS = {"graphics": 1980, "sm": 1980, "memory": 2619, "video": 1545}
# Of the time in which a kernel runs: training in bfloat16.
_ACTIVITY = (
    (catalog.GPU_GRAPHICS_ACTIVE_RATIO, 1),
    (catalog.GPU_SM_ACTIVE_RATIO, 0.93),
    (catalog.GPU_SM_OCCUPANCY_RATIO, 0.31),
    (catalog.GPU_TENSOR_ACTIVE_RATIO, 0.44),
    (catalog.GPU_DRAM_ACTIVE_RATIO, 0.52),
    (catalog.GPU_FP16_ACTIVE_RATIO, 0.04),
    (catalog.GPU_FP32_ACTIVE_RATIO, 0.12),
    (catalog.GPU_FP64_ACTIVE_RATIO, 0),
    (catalog.GPU_INTEGER_ACTIVE_RATIO, 0.09),
)
_HEALTHY = (
    (catalog.GPU_INFO, 1, "96.00.74.00.01", "13.0"),
    (catalog.ACCELERATOR_UP, 1),
    (catalog.ACCELERATOR_MEMORY_SIZE_BYTES, _MEMORY_BYTES),
    (catalog.ACCELERATOR_MEMORY_RESERVED_BYTES, _GIB // 2),
    (catalog.ACCELERATOR_POWER_LIMIT_WATTS, _POWER_LIMIT),
    (catalog.GPU_RECOVERY_ACTION, 0),
    (catalog.GPU_SRAM_ECC_THRESHOLD_EXCEEDED, 0),
    (catalog.GPU_ROW_REMAP_PENDING, 0),
    (catalog.GPU_ROW_REMAP_FAILURE, 0),
    (catalog.GPU_PERFORMANCE_STATE, 0),
    (catalog.GPU_PERSISTENCE_MODE, 1),
    (catalog.GPU_PCIE_REPLAYS, 2),
    (catalog.GPU_FABRIC_STATE, 3),
    (catalog.GPU_MIG_MODE, 0),
    (catalog.GPU_BAR1_USED_BYTES, 2 << 20),
    (catalog.GPU_BAR1_SIZE_BYTES, 128 * _GIB),
    *((catalog.GPU_XID_ERRORS, 0, xid) for xid in catalog.CRITICAL_XIDS),
)
# By collective and size of its message: how many a second, bytes of each, bytes on the
# bus by seconds, and by bytes of the message on eight ranks. A training step gathers
# parameters and scatters gradients.
_GATHERED = "under_256MiB"
_COLLECTIVES = (
    ("AllGather", _GATHERED, 576.0, 26 << 20, 310e9, 7 / 8),
    ("ReduceScatter", _GATHERED, 288.0, 52 << 20, 295e9, 7 / 8),
    ("AllReduce", "under_1MiB", 27.0, 65_536, 4e9, 7 / 4),
)
_REPLIES_EVERY = 15.0
# Fraction of the arrays, and of the memory in use, by dtype.
_DTYPES = (("bfloat16", 0.72, 0.6), ("float32", 0.2, 0.28), ("int32", 0.08, 0.02))


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    rate: float
    shapes: int
    recompiles_per_hour: float
    cause: str
    compile_seconds: float
    execution_seconds: float
    of_peak: float = 0.0
    errors_per_hour: float = 0.0


# Of an H100, in bfloat16.
_PEAK_FLOPS = 989.4e12

FUNCTIONS = (
    _Function("trainer.train_step", 9.0, 1, 0.0, "shape", 41.0, 0.071, 0.46),
    _Function("trainer.eval_step", 0.6, 2, 0.5, "shape", 12.0, 0.05, 0.38),
    _Function("serving.generate", 14.0, 6, 40.0, "shape", 6.5, 0.012, 0.06, 3),
    _Function("serving.prefill", 3.0, 4, 6.0, "weak_type", 4.2, 0.02, 0.41),
    _Function("data.augment", 18.0, 1, 1.0, "dtype", 0.7, 0.001),
)
# By compile time.
_SIZES = (
    (catalog.PROGRAM_FLOPS, 90_000),
    (catalog.PROGRAM_ACCESSED_BYTES, 700),
    (catalog.PROGRAM_ARGUMENT_BYTES, 300),
    (catalog.PROGRAM_OUTPUT_BYTES, 290),
    (catalog.PROGRAM_TEMPORARY_BYTES, 120),
    (catalog.PROGRAM_PEAK_BYTES, 480),
)


class Demo(Collector):
    """Generates the metrics of the synthetic fleet; each *seed* yields another."""

    name = "demo"
    deadline = 5.0

    def __init__(
        self,
        *,
        interval: float = 1.0,
        seed: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.interval = interval
        self._clock = clock
        self._began = clock()
        chance = random.Random(seed)  # noqa: S311 - synthetic figures, no secret
        self._phases = [chance.uniform(0, 2 * math.pi) for _ in range(ACCELERATORS)]
        self._uuids = [
            "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}".format(
                *(chance.getrandbits(bits) for bits in (32, 16, 16, 16, 48))
            )
            for _ in range(ACCELERATORS)
        ]

    def collect(self) -> Iterable[Family]:
        """Return the fleet as it is now."""
        now = self._clock()
        # As if the fleet had been running for an hour when the exporter started.
        elapsed = max(0.0, now - self._began) + 3600.0
        for index, uuid in enumerate(self._uuids):
            for metric, value, *labels in _gpu(elapsed, index, self._phases[index]):
                yield gauge(metric, value, uuid, *labels)
        for worker in range(WORKERS):
            # Not a number: the synthetic workers never collide with real slots.
            name = f"demo-{worker}"
            for row in (
                (catalog.PROCESS_START_TIME_SECONDS, now - elapsed),
                *_process(worker, elapsed),
                *self._devices(worker, elapsed),
                *(row for of in FUNCTIONS for row in _called(of, elapsed + 7 * worker)),
            ):
                yield _of_worker(name, *row)
            for function in FUNCTIONS:
                yield from _histograms(name, function, elapsed + 7 * worker)
            yield gauge(catalog.AGENT_UP, 1, name)
            yield gauge(catalog.AGENT_STARTS, 1, name)
            yield gauge(catalog.AGENT_CRASHES, 0, name)
            yield gauge(catalog.AGENT_DIED, 0, name, "train")
        for metric, value, *labels in _nccl(elapsed):
            yield gauge(metric, value, *labels)

    def _devices(self, worker: int, elapsed: float) -> Iterator[Row]:
        number = ACCELERATORS // WORKERS
        for local in range(number):
            index = worker * number + local
            phase, uuid = self._phases[index], self._uuids[index]
            used = _wave(elapsed, phase + 1, mean=0.55, swing=0.06) * _MEMORY_BYTES
            arrays = round(_wave(elapsed, phase, mean=412, swing=9))
            labels = (local, "gpu", _MODEL, worker, uuid, _bus(index))
            yield catalog.DEVICE_INFO, 1, *labels
            peak, limit = 0.74 * _MEMORY_BYTES, 0.75 * _MEMORY_BYTES
            for state, size in (("in_use", used), ("peak", peak), ("limit", limit)):
                yield catalog.DEVICE_MEMORY_BYTES, round(size), local, state
            for dtype, of_arrays, of_bytes in _DTYPES:
                yield catalog.LIVE_ARRAYS, round(arrays * of_arrays), local, dtype
                yield catalog.LIVE_ARRAY_BYTES, round(used * of_bytes), local, dtype
            yield catalog.LEAK_GROWTH_BYTES, 0, local


def _gpu(elapsed: float, index: int, phase: float) -> Iterator[Row]:
    """Yield the rows of a GPU; heat throttles the last for a tenth of the time."""
    dusty = index == ACCELERATORS - 1
    # The fraction of time in which a kernel ran, and its integral since the start, so
    # that rate() of what is counted shows it.
    busy = _wave(elapsed, phase, mean=0.86, swing=0.09)
    worked = _integral(elapsed, phase, mean=0.86, swing=0.09)
    dynamic = (_POWER_LIMIT - _IDLE_POWER) * 0.93
    power = _IDLE_POWER + busy * dynamic
    joules = _IDLE_POWER * elapsed + worked * dynamic
    used = round(_wave(elapsed, phase + 1, mean=0.71, swing=0.05) * _MEMORY_BYTES)
    labels = (index, "nvidia", _MODEL, "580.65.06", _bus(index))
    yield catalog.ACCELERATOR_INFO, 1, *labels
    yield from _HEALTHY
    yield catalog.ACCELERATOR_UTILIZATION_RATIO, round(busy, 2)
    yield catalog.ACCELERATOR_MEMORY_USED_BYTES, used
    yield catalog.ACCELERATOR_MEMORY_FREE_BYTES, _MEMORY_BYTES - _GIB // 2 - used
    yield catalog.ACCELERATOR_POWER_WATTS, round(power, 1)
    yield catalog.GPU_POWER_INSTANT_WATTS, round(power * 1.02, 1)
    yield catalog.GPU_POWER_AVERAGE_WATTS, round(power, 1)
    yield catalog.ACCELERATOR_ENERGY_JOULES, round(joules, 1)
    yield catalog.ACCELERATOR_NUMA_NODE, index // 4
    for sensor, heat in (("gpu", 38 + 30 * busy), ("memory", 47 + 35 * busy)):
        yield catalog.ACCELERATOR_TEMPERATURE_CELSIUS, round(heat), sensor
    margin = 87 - (38 + 30 * busy + (14 if dusty else 0))
    yield catalog.ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS, round(margin)
    for clock, speed in _CLOCKS.items():
        slow = 0.88 if dusty and clock in ("graphics", "sm") else 1
        hertz = round(speed * slow) * 1_000_000
        yield catalog.ACCELERATOR_CLOCK_HERTZ, hertz, clock
    yield catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO, round(0.6 * busy, 2)
    for metric, share in _ACTIVITY:
        yield metric, round(share * busy, 3)
    heat = round(0.12 * elapsed, 3) if dusty else 0
    held = {"power": round(0.2 * worked, 3), "hw_thermal": heat}
    yield from _filled(catalog.GPU_THROTTLE_SECONDS, held)
    events = {"sw_power_cap": 1, "hw_thermal": int(dusty)}
    yield from _filled(catalog.GPU_CLOCK_EVENT_ACTIVE, events)
    yield from _filled(catalog.GPU_ECC_ERRORS, {("corrected", "aggregate"): 3})
    yield from _filled(catalog.GPU_REMAPPED_ROWS, {"corrected": 1})
    for metric in (
        *(catalog.GPU_ENGINE_UTILIZATION_RATIO, catalog.GPU_SRAM_ECC_ERRORS),
        *(catalog.GPU_PCIE_ERRORS, catalog.GPU_NVLINK_ERRORS),
    ):
        yield from _filled(metric)
    yield catalog.GPU_PCIE_TRANSMIT_BYTES, round(0.2 * _PCIE * worked)
    yield catalog.GPU_PCIE_RECEIVE_BYTES, round(_PCIE * worked)
    yield catalog.GPU_NVLINK_TRANSMIT_BYTES, round(_NVLINK * worked)
    yield catalog.GPU_NVLINK_RECEIVE_BYTES, round(_NVLINK * worked)
    yield from _filled(catalog.GPU_PCIE_LINK_GENERATION, otherwise=5)
    yield from _filled(catalog.GPU_PCIE_LINK_WIDTH, otherwise=16)


def _nccl(elapsed: float) -> Iterator[Row]:
    """Yield what RAS and Inspector say *elapsed* seconds after the fleet's start."""
    yield catalog.NCCL_INFO, 1, "2.28.9", "13.0", "13.0"
    yield from _filled(catalog.NCCL_PROCESSES, {"responding": WORKERS})
    yield catalog.NCCL_GPUS, ACCELERATORS
    yield catalog.NCCL_NODES, 1
    yield from _filled(catalog.NCCL_COMMUNICATORS, {"running": 3})
    # Now and then the ranks are read between two collectives.
    between = int(elapsed // _REPLIES_EVERY % 4 == 0)
    yield from _filled(catalog.NCCL_FAULTY_COMMUNICATORS, {"mismatch": between})
    yield catalog.NCCL_LAGGING_RANKS, 0
    yield catalog.NCCL_REPLY_AGE_SECONDS, elapsed % _REPLIES_EVERY
    yield catalog.NCCL_COLLECTION_SECONDS, 0.002
    yield catalog.NCCL_COLLECTION_TIMEOUTS, 0
    for worker in range(WORKERS):
        for collective, size, rate, message, bandwidth, factor in _COLLECTIVES:
            labels, number = (worker, collective, size), int(rate * elapsed)
            moved = number * message * factor
            yield catalog.NCCL_COLLECTIVES_RECORDED, number, *labels
            yield catalog.NCCL_MESSAGE_BYTES, number * message, *labels
            yield catalog.NCCL_BUS_BYTES, moved, *labels
            yield catalog.NCCL_COLLECTIVE_SECONDS, moved / bandwidth, *labels
            yield catalog.NCCL_UNRECORDED_COLLECTIVES, 0, worker, collective


_RUNTIME = ("v2.1", "0.10.2", "0.10.2", "3.12.8", "gpu", "cuda 13")


def _process(worker: int, elapsed: float) -> Iterator[Row]:
    hits, misses, steps = 16 + worker, 5, round(elapsed * 3)
    yield catalog.UPTIME_SECONDS, elapsed
    resident = _wave(elapsed, worker, mean=6.1, swing=0.2) * _GIB
    yield catalog.PROCESS_RESIDENT_MEMORY_BYTES, round(resident)
    yield catalog.BUILD_INFO, 1, "demo"
    yield catalog.RUNTIME_INFO, 1, *_RUNTIME
    yield catalog.PROCESS_INDEX, worker
    yield catalog.PROCESS_COUNT, WORKERS
    results = {"hit": hits, "miss": misses}
    yield from _filled(catalog.PERSISTENT_CACHE_REQUESTS, results)
    yield catalog.PERSISTENT_CACHE_WRITES, misses if worker == 0 else 0
    yield from _filled(catalog.PERSISTENT_CACHE_ERRORS)
    yield catalog.PERSISTENT_CACHE_SAVED_SECONDS, hits * 11
    yield catalog.PERSISTENT_CACHE_SIZE_BYTES, 190 * 2**20
    yield catalog.PERSISTENT_CACHE_ENTRIES, 21
    here = {"not_writer": int(worker > 0)}
    yield from _filled(catalog.PERSISTENT_CACHE_OBSTACLE, here)
    # A batch into each step, a loss out of every tenth.
    for direction, count, size in (
        ("device_to_host", steps // 10, 4),
        ("host_to_device", steps, 3 * 2**20),
    ):
        yield catalog.HOST_TRANSFERS, count, direction
        yield catalog.HOST_TRANSFER_BYTES, count * size, direction
        yield catalog.HOST_TRANSFER_SECONDS, count * 0.002, direction
    yield catalog.STEPS, steps, "train"
    yield catalog.STEP_AGE_SECONDS, elapsed % (1 / 3), "train"
    yield catalog.HOST_SYNCS, steps // 100
    yield catalog.HOST_SYNC_SECONDS, steps // 100 * 0.3
    yield catalog.COMPILES_IN_PROGRESS, 0
    yield catalog.COMPILE_OLDEST_SECONDS, 0


def _counts(function: _Function, elapsed: float) -> tuple[int, int, int]:
    recompiles = math.floor(function.recompiles_per_hour * elapsed / 3600)
    calls = math.floor(function.rate * elapsed)
    return calls, recompiles, function.shapes + recompiles


def _called(function: _Function, elapsed: float) -> Iterator[Row]:
    name = function.name
    calls, recompiles, programs = _counts(function, elapsed)
    misses = min(calls, programs)
    yield catalog.JIT_CALLS, calls, name
    yield catalog.JIT_CACHE_HITS, calls - misses, name
    yield catalog.JIT_CACHE_MISSES, misses, name
    for _, value, outcome in _filled(catalog.COMPILES, {"compiled": programs}):
        yield catalog.COMPILES, value, name, outcome
    yield catalog.RECOMPILES, recompiles, name, function.cause
    yield catalog.RECOMPILES, function.shapes - 1, name, "new_function"
    size = round(function.compile_seconds * 1e6)
    yield catalog.PROGRAMS, programs, name
    yield catalog.PROGRAM_INFO, 1, name, f"{size * 2654435761 % 2**64:016x}"
    if ideal := function.execution_seconds * function.of_peak:
        flops = round(ideal * _PEAK_FLOPS)
        yield catalog.FLOPS, calls * flops, name, "model"
        yield catalog.IDEAL_SECONDS, calls * ideal, name, "model"
        yield catalog.PROGRAM_MATRIX_FLOPS, flops, name, "model"
    for metric, factor in _SIZES:
        yield metric, size * factor, name
    yield catalog.PROGRAM_FUSIONS, size // 40_000 + 3, name
    yield catalog.PROGRAM_INSTRUCTIONS, size // 2_000 + 60, name
    failures = math.floor(function.errors_per_hour * elapsed / 3600)
    yield catalog.ERRORS, failures, name, "oom"


def _histograms(worker: str, function: _Function, elapsed: float) -> Iterator[Family]:
    calls, _, programs = _counts(function, elapsed)
    for phase, share in (("trace", 0.04), ("lower", 0.02), ("backend_compile", 1.0)):
        labels, seconds = (function.name, phase), function.compile_seconds * share
        yield _histogram(catalog.COMPILE_SECONDS, programs, seconds, worker, *labels)
    # A call in three is sampled.
    names, spent = (worker, function.name), function.execution_seconds
    yield _histogram(catalog.EXECUTION_SECONDS, calls // 3, spent, *names)


def _filled(
    metric: Metric,
    values: Mapping[Any, float] = MappingProxyType({}),
    otherwise: float = 0,
) -> Iterator[Row]:
    """Yield a row for each value of the closed labels of *metric*."""
    for labels in product(*(allowed for _, allowed in metric.values)):
        key = labels[0] if len(labels) == 1 else labels
        yield metric, values.get(key, otherwise), *labels


def _of_worker(worker: str, metric: Metric, value: float, *labels: object) -> Family:
    named = metric._replace(labels=("worker", *metric.labels))
    return Family(metric, [(series(named, worker, *labels), value)])


def _histogram(metric: Metric, count: int, typical: float, *labels: str) -> Family:
    """Return *count* observations that are all *typical*."""
    names = ("worker", *metric.labels)
    samples: list[Sample] = []

    def add(suffix: str, value: float, *bound: str) -> None:
        allowed = (*names, "le") if bound else names
        made = metric._replace(name=f"{metric.name}_{suffix}", labels=allowed)
        samples.append((series(made, *labels, *bound), value))

    for bound in metric.buckets:
        add("bucket", count if typical <= bound else 0, str(float(bound)))
    add("bucket", count, "+Inf")
    add("sum", count * typical)
    add("count", count)
    return Family(metric, samples)


def _bus(index: int) -> str:
    return f"0000:{0x17 + 0x10 * index:02x}:00.0"


_SLOW, _FAST = 2 * math.pi / 600, 2 * math.pi / 47


def _wave(elapsed: float, phase: float, *, mean: float, swing: float) -> float:
    """Return a slow and a quicker wave around *mean*, never further than *swing*."""
    slow = math.sin(_SLOW * elapsed + phase)
    fast = math.sin(_FAST * elapsed + 3 * phase)
    return mean + swing * (0.7 * slow + 0.3 * fast)


def _integral(elapsed: float, phase: float, *, mean: float, swing: float) -> float:
    """Return the integral of `_wave` from 0 to *elapsed*."""
    slow = (math.cos(phase) - math.cos(_SLOW * elapsed + phase)) / _SLOW
    fast = (math.cos(3 * phase) - math.cos(_FAST * elapsed + 3 * phase)) / _FAST
    return mean * elapsed + swing * (0.7 * slow + 0.3 * fast)
