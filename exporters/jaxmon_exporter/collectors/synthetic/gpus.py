"""
Metrics of the synthetic fleet's GPUs beyond load, memory and power.

All but the last are healthy; the last one overheats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from jaxmon import catalog
from jaxmon.catalog import Metric


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


def figures(
    elapsed: float, *, busy: float, worked: float, used: float, dusty: bool
) -> Iterator[Figure]:
    """
    Yield metric, value and labels after ``uuid`` of one GPU.

    Args:
        elapsed: seconds since the fleet started.
        busy: fraction of time in which a kernel ran.
        worked: seconds in which kernels ran, the integral of *busy*.
        used: bytes of memory in use, of 80 GiB.
        dusty: throttled by heat for a tenth of the time.
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
