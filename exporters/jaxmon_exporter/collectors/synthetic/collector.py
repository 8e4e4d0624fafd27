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
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jaxmon import catalog
from jaxmon.catalog import (
    ACCELERATOR_ENERGY_JOULES,
    ACCELERATOR_INFO,
    ACCELERATOR_MEMORY_SIZE_BYTES,
    ACCELERATOR_MEMORY_USED_BYTES,
    ACCELERATOR_POWER_LIMIT_WATTS,
    ACCELERATOR_POWER_WATTS,
    ACCELERATOR_TEMPERATURE_CELSIUS,
    ACCELERATOR_UP,
    ACCELERATOR_UTILIZATION_RATIO,
    AGENT_CRASHES,
    AGENT_DIED,
    AGENT_STARTS,
    AGENT_UP,
    Metric,
)
from jaxmon.exposition.families import Family, labels_text
from jaxmon_exporter.collectors.synthetic import gpus as demo_gpus
from jaxmon_exporter.collectors.synthetic import nccl as demo_nccl


ACCELERATORS = 8
WORKERS = 4
_GIB = 1 << 30
_MEMORY_BYTES = 80 * _GIB
# Fraction of the arrays, and of the memory in use, by dtype.
_DTYPES = (("bfloat16", 0.72, 0.6), ("float32", 0.2, 0.28), ("int32", 0.08, 0.02))
_POWER_LIMIT = 700.0
_IDLE_POWER = 85.0


@dataclass(frozen=True, slots=True)
class _Function:
    """
    A jitted function of the synthetic program.

    Args:
        rate: calls per second and worker.
        shapes: programs compiled at startup.
        recompiles_per_hour: further programs, by cause.
        compile_seconds: backend compile time of one program.
        of_peak: fraction of the peak that its products reach.
    """

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


class Demo:
    """
    Generates the metrics of the synthetic fleet.

    Args:
        seed: a different seed yields a different fleet.
        clock: seconds since the epoch.
    """

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
        for metric, value, labels in demo_nccl.figures(elapsed, WORKERS, ACCELERATORS):
            page.add(metric, value, *labels)
        return page.families

    def close(self) -> None:
        """Nothing is held."""

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
        page.add(ACCELERATOR_INFO, 1, uuid, index, "nvidia", model, "580.65.06", bus)
        page.add(ACCELERATOR_UP, 1, uuid)
        page.add(ACCELERATOR_UTILIZATION_RATIO, round(busy, 2), uuid)
        page.add(ACCELERATOR_MEMORY_USED_BYTES, round(used), uuid)
        page.add(ACCELERATOR_MEMORY_SIZE_BYTES, _MEMORY_BYTES, uuid)
        page.add(ACCELERATOR_POWER_WATTS, round(power, 1), uuid)
        page.add(ACCELERATOR_POWER_LIMIT_WATTS, _POWER_LIMIT, uuid)
        page.add(ACCELERATOR_ENERGY_JOULES, round(joules, 1), uuid)
        page.add(ACCELERATOR_TEMPERATURE_CELSIUS, round(38 + 30 * busy), uuid, "gpu")
        page.add(ACCELERATOR_TEMPERATURE_CELSIUS, round(47 + 35 * busy), uuid, "memory")
        for xid in catalog.CRITICAL_XIDS:
            page.add(catalog.GPU_XID_ERRORS, 0, uuid, xid)
        page.add(catalog.GPU_POWER_INSTANT_WATTS, round(power * 1.02, 1), uuid)
        page.add(catalog.GPU_POWER_AVERAGE_WATTS, round(power, 1), uuid)
        page.add(catalog.ACCELERATOR_NUMA_NODE, index // 4, uuid)
        more = demo_gpus.figures(
            elapsed,
            busy=busy,
            worked=energy,
            used=used,
            dusty=index == ACCELERATORS - 1,
        )
        for metric, value, labels in more:
            page.add(metric, value, uuid, *labels)

    def _agent(self, page: _Page, worker: int, elapsed: float, now: float) -> None:
        # Not a number: the synthetic workers never collide with real slots.
        name = f"demo-{worker}"
        page.worker = name
        page.add(catalog.PROCESS_START_TIME_SECONDS, now - elapsed)
        page.add(catalog.UPTIME_SECONDS, elapsed)
        page.add(
            catalog.PROCESS_RESIDENT_MEMORY_BYTES,
            round(_wave(elapsed, worker, mean=6.1, swing=0.2) * _GIB),
        )
        page.add(catalog.BUILD_INFO, 1, "demo")
        page.add(
            catalog.RUNTIME_INFO, 1, "0.10.2", "0.10.2", "3.12.8", "gpu", "cuda 13"
        )
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
        page.add(AGENT_UP, 1, name)
        page.add(AGENT_STARTS, 1, name)
        page.add(AGENT_CRASHES, 0, name)
        page.add(AGENT_DIED, 0, name, "train")

    def _device(self, page: _Page, worker: int, local: int, elapsed: float) -> None:
        index = worker * (ACCELERATORS // WORKERS) + local
        phase = self._phases[index]
        used = _wave(elapsed, phase + 1, mean=0.55, swing=0.06) * _MEMORY_BYTES
        arrays = round(_wave(elapsed, phase, mean=412, swing=9))
        bus = f"0000:{0x17 + 0x10 * index:02x}:00.0"
        kind = "NVIDIA H100 80GB HBM3"
        uuid = self._uuids[index]
        page.add(catalog.DEVICE_INFO, 1, local, "gpu", kind, worker, uuid, bus)
        page.add(catalog.DEVICE_MEMORY_BYTES, round(used), local, "in_use")
        page.add(
            catalog.DEVICE_MEMORY_BYTES, round(0.74 * _MEMORY_BYTES), local, "peak"
        )
        page.add(
            catalog.DEVICE_MEMORY_BYTES, round(0.75 * _MEMORY_BYTES), local, "limit"
        )
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
    page.add(catalog.COMPILES, programs, name, "compiled")
    page.add(catalog.COMPILES, 0, name, "cache_hit")
    page.add(catalog.COMPILES, 0, name, "failed")
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
