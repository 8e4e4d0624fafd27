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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, labels_text
from jaxmon_exporter.polling import Collector


Figure: TypeAlias = tuple[Metric, float, tuple[object, ...]]

_GIB = 1 << 30
_MEGA = 1_000_000
# Bytes per second of a GPU that is busy all the time.
_PCIE, _NVLINK = 6e9, 1.4e11
_PCIE_GENERATION, _PCIE_LANES = 5, 16
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
)


def gpu_figures(
    elapsed: float, *, busy: float, worked: float, used: float, dusty: bool
) -> Iterator[Figure]:
    """
    Yield metric, value and labels after ``uuid`` of one GPU: *busy* is the fraction of
    time in which a kernel ran, *worked* its integral since the start, *used* the bytes
    of memory of 80 GiB; a *dusty* one is throttled by heat for a tenth of the time.
    """
    for metric, value in _HEALTHY:
        yield metric, value, ()
    yield catalog.GPU_INFO, 1, ("96.00.74.00.01", "13.0")
    reserved = _GIB // 2
    yield catalog.ACCELERATOR_MEMORY_RESERVED_BYTES, reserved, ()
    yield catalog.ACCELERATOR_MEMORY_FREE_BYTES, 80 * _GIB - reserved - round(used), ()
    heat = 38 + 30 * busy + (14 if dusty else 0)
    yield catalog.ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS, round(87 - heat), ()
    for clock, speed in _CLOCKS.items():
        slow = 0.88 if dusty and clock in ("graphics", "sm") else 1
        yield catalog.ACCELERATOR_CLOCK_HERTZ, round(speed * slow) * _MEGA, (clock,)
    yield catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO, round(0.6 * busy, 2), ()
    for engine in catalog.ENGINES:
        yield catalog.GPU_ENGINE_UTILIZATION_RATIO, 0, (engine,)
    yield from _held_down(elapsed, worked, dusty=dusty)
    for metric, share in _ACTIVITY:
        yield metric, round(share * busy, 3), ()
    yield from _errors()
    yield from _traffic(worked)


def _held_down(elapsed: float, worked: float, *, dusty: bool) -> Iterator[Figure]:
    seconds = {"power": 0.2 * worked, "hw_thermal": 0.12 * elapsed if dusty else 0}
    for reason in catalog.THROTTLE_REASONS:
        held = round(seconds.get(reason, 0), 3)
        yield catalog.GPU_THROTTLE_SECONDS, held, (reason,)
    active = {"sw_power_cap", "hw_thermal"} if dusty else {"sw_power_cap"}
    for event in catalog.CLOCK_EVENTS:
        yield catalog.GPU_CLOCK_EVENT_ACTIVE, float(event in active), (event,)


def _errors() -> Iterator[Figure]:
    for severity in catalog.SEVERITIES:
        corrected = severity == "corrected"
        for scope in catalog.ECC_SCOPES:
            count = 3 if corrected and scope == "aggregate" else 0
            yield catalog.GPU_ECC_ERRORS, count, (severity, scope)
            yield catalog.GPU_SRAM_ECC_ERRORS, 0, (severity, scope)
        yield catalog.GPU_REMAPPED_ROWS, 1 if corrected else 0, (severity,)
    for kind in catalog.PCIE_ERRORS:
        yield catalog.GPU_PCIE_ERRORS, 0, (kind,)
    for kind in catalog.NVLINK_ERRORS:
        yield catalog.GPU_NVLINK_ERRORS, 0, (kind,)


def _traffic(worked: float) -> Iterator[Figure]:
    yield catalog.GPU_PCIE_TRANSMIT_BYTES, round(0.2 * _PCIE * worked), ()
    yield catalog.GPU_PCIE_RECEIVE_BYTES, round(_PCIE * worked), ()
    yield catalog.GPU_NVLINK_TRANSMIT_BYTES, round(_NVLINK * worked), ()
    yield catalog.GPU_NVLINK_RECEIVE_BYTES, round(_NVLINK * worked), ()
    for kind in catalog.LINK_KINDS:
        yield catalog.GPU_PCIE_LINK_GENERATION, _PCIE_GENERATION, (kind,)
        yield catalog.GPU_PCIE_LINK_WIDTH, _PCIE_LANES, (kind,)


_COMMUNICATORS = 3
_EVERY = 15.0
# By collective and size of its message: how many a second, bytes of each, bytes on the
# bus by seconds, and by bytes of the message on eight ranks. A training step gathers
# parameters and scatters gradients.
_GATHERED = "under_256MiB"
_COLLECTIVES = (
    ("AllGather", _GATHERED, 576.0, 26 << 20, 310e9, 7 / 8),
    ("ReduceScatter", _GATHERED, 288.0, 52 << 20, 295e9, 7 / 8),
    ("AllReduce", "under_1MiB", 27.0, 65_536, 4e9, 7 / 4),
)


def nccl_figures(elapsed: float, processes: int, gpus: int) -> Iterator[Figure]:
    """Return what RAS says *elapsed* seconds after the start of the fleet."""
    yield catalog.NCCL_INFO, 1, ("2.28.9", "13.0", "13.0")
    for state in catalog.NCCL_PROCESS_STATES:
        yield catalog.NCCL_PROCESSES, processes * (state == "responding"), (state,)
    yield catalog.NCCL_GPUS, gpus, ()
    yield catalog.NCCL_NODES, 1, ()
    for state in catalog.NCCL_COMMUNICATOR_STATES:
        running = _COMMUNICATORS * (state == "running")
        yield catalog.NCCL_COMMUNICATORS, running, (state,)
    # Now and then the ranks are read between two collectives.
    between = elapsed // _EVERY % 4 == 0
    for kind in catalog.NCCL_FAULTS:
        uneven = int(between and kind == "mismatch")
        yield catalog.NCCL_FAULTY_COMMUNICATORS, uneven, (kind,)
    yield catalog.NCCL_LAGGING_RANKS, 0, ()
    yield catalog.NCCL_REPLY_AGE_SECONDS, elapsed % _EVERY, ()
    yield catalog.NCCL_COLLECTION_SECONDS, 0.002, ()
    yield catalog.NCCL_COLLECTION_TIMEOUTS, 0, ()
    for worker in range(processes):
        yield from _inspected(elapsed, worker)


def _inspected(elapsed: float, worker: int) -> Iterator[Figure]:
    for collective, size, rate, message, bandwidth, factor in _COLLECTIVES:
        labels = (worker, collective, size)
        number = int(rate * elapsed)
        yield catalog.NCCL_COLLECTIVES_RECORDED, number, labels
        yield catalog.NCCL_MESSAGE_BYTES, number * message, labels
        moved = number * message * factor
        yield catalog.NCCL_BUS_BYTES, moved, labels
        seconds = moved / bandwidth
        yield catalog.NCCL_COLLECTIVE_SECONDS, seconds, labels
        yield catalog.NCCL_UNRECORDED_COLLECTIVES, 0, (worker, collective)


ACCELERATORS = 8
WORKERS = 4
_MEMORY_BYTES = 80 * _GIB
# Fraction of the arrays, and of the memory in use, by dtype.
_DTYPES = (("bfloat16", 0.72, 0.6), ("float32", 0.2, 0.28), ("int32", 0.08, 0.02))
_POWER_LIMIT = 700.0
_IDLE_POWER = 85.0


@dataclass(frozen=True, slots=True)
class _Function:
    """A jitted function of the synthetic program."""

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
    _Function(
        "serving.generate", 14.0, 6, 40.0, "shape", 6.5, 0.012, 0.06, errors_per_hour=3
    ),
    _Function("serving.prefill", 3.0, 4, 6.0, "weak_type", 4.2, 0.02, 0.41),
    _Function("data.augment", 18.0, 1, 1.0, "dtype", 0.7, 0.001),
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
        page = _Page()
        for index in range(ACCELERATORS):
            self._accelerator(page, index, elapsed)
        for worker in range(WORKERS):
            self._agent(page, worker, elapsed, now)
        for metric, value, labels in nccl_figures(elapsed, WORKERS, ACCELERATORS):
            page.add(metric, value, *labels)
        return page.families

    def _accelerator(self, page: _Page, index: int, elapsed: float) -> None:
        uuid, phase = self._uuids[index], self._phases[index]
        busy = _wave(elapsed, phase, mean=0.86, swing=0.09)
        power = _IDLE_POWER + busy * (_POWER_LIMIT - _IDLE_POWER) * 0.93
        # The integral of the power above, so that rate() shows the power.
        energy = _integral(elapsed, phase, mean=0.86, swing=0.09)
        joules = _IDLE_POWER * elapsed + energy * (_POWER_LIMIT - _IDLE_POWER) * 0.93
        used = _wave(elapsed, phase + 1, mean=0.71, swing=0.05) * _MEMORY_BYTES
        bus = f"0000:{0x17 + 0x10 * index:02x}:00.0"
        model = "NVIDIA H100 80GB HBM3"
        page.add(
            catalog.ACCELERATOR_INFO, 1, uuid, index, "nvidia", model, "580.65.06", bus
        )
        page.add(catalog.ACCELERATOR_UP, 1, uuid)
        page.add(catalog.ACCELERATOR_UTILIZATION_RATIO, round(busy, 2), uuid)
        page.add(catalog.ACCELERATOR_MEMORY_USED_BYTES, round(used), uuid)
        page.add(catalog.ACCELERATOR_MEMORY_SIZE_BYTES, _MEMORY_BYTES, uuid)
        page.add(catalog.ACCELERATOR_POWER_WATTS, round(power, 1), uuid)
        page.add(catalog.ACCELERATOR_POWER_LIMIT_WATTS, _POWER_LIMIT, uuid)
        page.add(catalog.ACCELERATOR_ENERGY_JOULES, round(joules, 1), uuid)
        for sensor, heat in (("gpu", 38 + 30 * busy), ("memory", 47 + 35 * busy)):
            page.add(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, round(heat), uuid, sensor)
        for xid in catalog.CRITICAL_XIDS:
            page.add(catalog.GPU_XID_ERRORS, 0, uuid, xid)
        page.add(catalog.GPU_POWER_INSTANT_WATTS, round(power * 1.02, 1), uuid)
        page.add(catalog.GPU_POWER_AVERAGE_WATTS, round(power, 1), uuid)
        page.add(catalog.ACCELERATOR_NUMA_NODE, index // 4, uuid)
        dusty = index == ACCELERATORS - 1
        for metric, value, labels in gpu_figures(
            elapsed, busy=busy, worked=energy, used=used, dusty=dusty
        ):
            page.add(metric, value, uuid, *labels)

    def _agent(self, page: _Page, worker: int, elapsed: float, now: float) -> None:
        # Not a number: the synthetic workers never collide with real slots.
        name = f"demo-{worker}"
        page.worker = name
        page.add(catalog.PROCESS_START_TIME_SECONDS, now - elapsed)
        page.add(catalog.UPTIME_SECONDS, elapsed)
        resident = _wave(elapsed, worker, mean=6.1, swing=0.2) * _GIB
        page.add(catalog.PROCESS_RESIDENT_MEMORY_BYTES, round(resident))
        page.add(catalog.BUILD_INFO, 1, "demo")
        versions = ("0.10.2", "0.10.2", "3.12.8", "gpu", "cuda 13")
        page.add(catalog.RUNTIME_INFO, 1, *versions)
        page.add(catalog.PROCESS_INDEX, worker)
        page.add(catalog.PROCESS_COUNT, WORKERS)
        for local in range(ACCELERATORS // WORKERS):
            self._device(page, worker, local, elapsed)
        for function in FUNCTIONS:
            _function(page, function, elapsed + 7 * worker)
        hits, misses = 16 + worker, 5
        page.add(catalog.PERSISTENT_CACHE_REQUESTS, hits, "hit")
        page.add(catalog.PERSISTENT_CACHE_REQUESTS, misses, "miss")
        page.add(catalog.PERSISTENT_CACHE_WRITES, misses if worker == 0 else 0)
        for operation in catalog.PERSISTENT_CACHE_OPERATIONS:
            page.add(catalog.PERSISTENT_CACHE_ERRORS, 0, operation)
        page.add(catalog.PERSISTENT_CACHE_SAVED_SECONDS, hits * 11)
        page.add(catalog.PERSISTENT_CACHE_SIZE_BYTES, 190 * 2**20)
        page.add(catalog.PERSISTENT_CACHE_ENTRIES, 21)
        for reason in catalog.PERSISTENT_CACHE_OBSTACLES:
            here = reason == "not_writer" and worker > 0
            page.add(catalog.PERSISTENT_CACHE_OBSTACLE, int(here), reason)
        # A batch into each step, a loss out of every tenth.
        steps = round(elapsed * 3)
        for direction, count, size in (
            ("device_to_host", steps // 10, 4),
            ("host_to_device", steps, 3 * 2**20),
        ):
            page.add(catalog.HOST_TRANSFERS, count, direction)
            page.add(catalog.HOST_TRANSFER_BYTES, count * size, direction)
            page.add(catalog.HOST_TRANSFER_SECONDS, count * 0.002, direction)
        page.add(catalog.STEPS, steps, "train")
        page.add(catalog.STEP_AGE_SECONDS, elapsed % (1 / 3), "train")
        page.add(catalog.HOST_SYNCS, steps // 100)
        page.add(catalog.HOST_SYNC_SECONDS, steps // 100 * 0.3)
        page.add(catalog.COMPILES_IN_PROGRESS, 0)
        page.add(catalog.COMPILE_OLDEST_SECONDS, 0)
        page.worker = None
        page.add(catalog.AGENT_UP, 1, name)
        page.add(catalog.AGENT_STARTS, 1, name)
        page.add(catalog.AGENT_CRASHES, 0, name)
        page.add(catalog.AGENT_DIED, 0, name, "train")

    def _device(self, page: _Page, worker: int, local: int, elapsed: float) -> None:
        index = worker * (ACCELERATORS // WORKERS) + local
        phase = self._phases[index]
        used = _wave(elapsed, phase + 1, mean=0.55, swing=0.06) * _MEMORY_BYTES
        arrays = round(_wave(elapsed, phase, mean=412, swing=9))
        bus = f"0000:{0x17 + 0x10 * index:02x}:00.0"
        kind = "NVIDIA H100 80GB HBM3"
        uuid = self._uuids[index]
        page.add(catalog.DEVICE_INFO, 1, local, "gpu", kind, worker, uuid, bus)
        peak, limit = 0.74 * _MEMORY_BYTES, 0.75 * _MEMORY_BYTES
        for state, size in (("in_use", used), ("peak", peak), ("limit", limit)):
            page.add(catalog.DEVICE_MEMORY_BYTES, round(size), local, state)
        for dtype, count_share, bytes_share in _DTYPES:
            count = round(arrays * count_share)
            page.add(catalog.LIVE_ARRAYS, count, local, dtype)
            size = round(used * bytes_share)
            page.add(catalog.LIVE_ARRAY_BYTES, size, local, dtype)
        page.add(catalog.LEAK_GROWTH_BYTES, 0, local)


class _Page:
    """Collects families; samples carry a worker label while `worker` is set."""

    def __init__(self) -> None:
        self.families: list[Family] = []
        self.worker: str | None = None

    def add(self, metric: Metric, value: float, *labels: object) -> None:
        """Add one sample of *metric*."""
        self.add_named(metric, metric.name, value, metric.labels, labels)

    def add_named(
        self,
        metric: Metric,
        name: str,
        value: float,
        names: tuple[str, ...],
        labels: tuple[object, ...],
    ) -> None:
        """Add one sample under a *name* such as that of a histogram's sum."""
        if self.worker is not None:
            names, labels = ("worker", *names), (self.worker, *labels)
        text = labels_text(names, labels)
        self.families.append(
            Family(metric, [(f"{name}{{{text}}}" if text else name, value)])
        )


def _function(page: _Page, function: _Function, elapsed: float) -> None:
    name, hours = function.name, elapsed / 3600
    recompiles = math.floor(function.recompiles_per_hour * hours)
    programs = function.shapes + recompiles
    calls = math.floor(function.rate * elapsed)
    misses = min(calls, programs)
    page.add(catalog.JIT_CALLS, calls, name)
    page.add(catalog.JIT_CACHE_HITS, calls - misses, name)
    page.add(catalog.JIT_CACHE_MISSES, misses, name)
    for outcome in ("compiled", "cache_hit", "failed"):
        page.add(catalog.COMPILES, programs * (outcome == "compiled"), name, outcome)
    page.add(catalog.RECOMPILES, recompiles, name, function.cause)
    page.add(catalog.RECOMPILES, function.shapes - 1, name, "new_function")
    size = round(function.compile_seconds * 1e6)
    page.add(catalog.PROGRAMS, programs, name)
    page.add(catalog.PROGRAM_INFO, 1, name, f"{size * 2654435761 % 2**64:016x}")
    if ideal := function.execution_seconds * function.of_peak:
        flops = round(ideal * _PEAK_FLOPS)
        page.add(catalog.FLOPS, calls * flops, name, "model")
        page.add(catalog.IDEAL_SECONDS, calls * ideal, name, "model")
        page.add(catalog.PROGRAM_MATRIX_FLOPS, flops, name, "model")
    for metric, factor in (
        (catalog.PROGRAM_FLOPS, 90_000),
        (catalog.PROGRAM_ACCESSED_BYTES, 700),
        (catalog.PROGRAM_ARGUMENT_BYTES, 300),
        (catalog.PROGRAM_OUTPUT_BYTES, 290),
        (catalog.PROGRAM_TEMPORARY_BYTES, 120),
        (catalog.PROGRAM_PEAK_BYTES, 480),
    ):
        page.add(metric, size * factor, name)
    page.add(catalog.PROGRAM_FUSIONS, size // 40_000 + 3, name)
    page.add(catalog.PROGRAM_INSTRUCTIONS, size // 2_000 + 60, name)
    failures = math.floor(function.errors_per_hour * hours)
    page.add(catalog.ERRORS, failures, name, "oom")
    shares = {"trace": 0.04, "lower": 0.02, "backend_compile": 1.0}
    for phase, share in shares.items():
        seconds = function.compile_seconds * share
        _histogram(page, catalog.COMPILE_SECONDS, programs, seconds, name, phase)
    # A call in three is sampled.
    seconds = function.execution_seconds
    _histogram(page, catalog.EXECUTION_SECONDS, calls // 3, seconds, name)


def _histogram(
    page: _Page, metric: Metric, count: int, typical: float, *labels: str
) -> None:
    """Add *count* observations that are all *typical*."""
    name, names = metric.name, metric.labels
    for bound in (*metric.buckets, math.inf):
        edge = "+Inf" if math.isinf(bound) else str(float(bound))
        below = count if typical <= bound else 0
        page.add_named(metric, f"{name}_bucket", below, (*names, "le"), (*labels, edge))
    page.add_named(metric, f"{name}_sum", count * typical, names, labels)
    page.add_named(metric, f"{name}_count", count, names, labels)


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
