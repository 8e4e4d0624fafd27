"""
DCGM fields by dcgm-exporter's names, with our names.

DCGM 4.6 renamed many fields. Both names mean the same value; a percentage stays one,
although its new name ends in RATIO: only those of the profiler, PROF, are ratios.
Omitted: the last Xid error, which is not a count; throttling times, whose unit differs
between releases; NVLink's bytes of both directions together, which cannot be separated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxmon import catalog
from jaxmon.catalog import Metric


def _as_it_is(value: float) -> float:
    return value


def _percent(value: float) -> float:
    return value / 100


def _mebibytes(value: float) -> float:
    return value * (1 << 20)


def _megahertz(value: float) -> float:
    return value * 1_000_000


def _millijoules(value: float) -> float:
    return value / 1000


@dataclass(frozen=True, slots=True)
class Field:
    """
    How a DCGM field maps to a metric.

    Args:
        metric: its first label is ``uuid``.
        labels: values of the labels after ``uuid``.
        convert: returns DCGM's value in the metric's unit.
    """

    metric: Metric
    labels: tuple[str, ...] = ()
    convert: Callable[[float], float] = _as_it_is


def _fields() -> dict[str, Field]:
    known: dict[str, Field] = {}

    def add(
        names: str, metric: Metric, *labels: str, convert: Callable[..., float]
    ) -> None:
        field = Field(metric, labels, convert)
        known.update({f"DCGM_FI_{name}": field for name in names.split()})

    clock = catalog.ACCELERATOR_CLOCK_HERTZ
    add("DEV_SM_CLOCK", clock, "sm", convert=_megahertz)
    add("DEV_MEM_CLOCK", clock, "memory", convert=_megahertz)
    add("DEV_VIDEO_CLOCK", clock, "video", convert=_megahertz)
    energy = catalog.ACCELERATOR_ENERGY_JOULES
    add("DEV_TOTAL_ENERGY_CONSUMPTION", energy, convert=_millijoules)
    engine = catalog.GPU_ENGINE_UTILIZATION_RATIO
    add(
        "DEV_GPU_UTIL DEV_GPU_UTIL_RATIO",
        catalog.ACCELERATOR_UTILIZATION_RATIO,
        convert=_percent,
    )
    add(
        "DEV_MEM_COPY_UTIL",
        catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO,
        convert=_percent,
    )
    add("DEV_ENC_UTIL", engine, "encoder", convert=_percent)
    add("DEV_DEC_UTIL", engine, "decoder", convert=_percent)
    for name, metric in (
        ("DEV_FB_USED", catalog.ACCELERATOR_MEMORY_USED_BYTES),
        ("DEV_FB_FREE", catalog.ACCELERATOR_MEMORY_FREE_BYTES),
        ("DEV_FB_RESERVED", catalog.ACCELERATOR_MEMORY_RESERVED_BYTES),
        ("DEV_FB_TOTAL", catalog.ACCELERATOR_MEMORY_SIZE_BYTES),
    ):
        add(name, metric, convert=_mebibytes)
    temperature = catalog.ACCELERATOR_TEMPERATURE_CELSIUS
    ecc = catalog.GPU_ECC_ERRORS
    rows = catalog.GPU_REMAPPED_ROWS
    for names, metric, *labels in (
        ("DEV_GPU_TEMP DEV_GPU_TEMP_CELSIUS", temperature, "gpu"),
        ("DEV_MEMORY_TEMP DEV_MEMORY_TEMP_CELSIUS", temperature, "memory"),
        (
            "DEV_POWER_USAGE DEV_BOARD_POWER_WATTS",
            catalog.ACCELERATOR_POWER_WATTS,
        ),
        (
            "DEV_ENFORCED_POWER_LIMIT DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
            catalog.ACCELERATOR_POWER_LIMIT_WATTS,
        ),
        ("DEV_PCIE_REPLAY_COUNTER DEV_PCIE_REPLAY_TOTAL", catalog.GPU_PCIE_REPLAYS),
        ("DEV_ECC_SBE_VOL_TOTAL", ecc, "corrected", "volatile"),
        ("DEV_ECC_DBE_VOL_TOTAL", ecc, "uncorrected", "volatile"),
        ("DEV_ECC_SBE_AGG_TOTAL", ecc, "corrected", "aggregate"),
        ("DEV_ECC_DBE_AGG_TOTAL", ecc, "uncorrected", "aggregate"),
        (
            "DEV_CORRECTABLE_REMAPPED_ROWS DEV_ROW_REMAP_CORRECTABLE_TOTAL",
            rows,
            "corrected",
        ),
        (
            "DEV_UNCORRECTABLE_REMAPPED_ROWS DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
            rows,
            "uncorrected",
        ),
        ("DEV_ROW_REMAP_PENDING", catalog.GPU_ROW_REMAP_PENDING),
        (
            "DEV_ROW_REMAP_FAILURE DEV_ROW_REMAP_FAILED",
            catalog.GPU_ROW_REMAP_FAILURE,
        ),
        (
            "PROF_GR_ENGINE_ACTIVE PROF_GR_ENGINE_UTIL_RATIO",
            catalog.GPU_GRAPHICS_ACTIVE_RATIO,
        ),
        ("PROF_SM_ACTIVE PROF_SM_UTIL_RATIO", catalog.GPU_SM_ACTIVE_RATIO),
        (
            "PROF_SM_OCCUPANCY PROF_SM_OCCUPANCY_RATIO",
            catalog.GPU_SM_OCCUPANCY_RATIO,
        ),
        (
            "PROF_PIPE_TENSOR_ACTIVE PROF_TENSOR_UTIL_RATIO",
            catalog.GPU_TENSOR_ACTIVE_RATIO,
        ),
        ("PROF_DRAM_ACTIVE PROF_DRAM_UTIL_RATIO", catalog.GPU_DRAM_ACTIVE_RATIO),
        ("PROF_PIPE_FP16_ACTIVE PROF_FP16_UTIL_RATIO", catalog.GPU_FP16_ACTIVE_RATIO),
        ("PROF_PIPE_FP32_ACTIVE PROF_FP32_UTIL_RATIO", catalog.GPU_FP32_ACTIVE_RATIO),
        ("PROF_PIPE_FP64_ACTIVE PROF_FP64_UTIL_RATIO", catalog.GPU_FP64_ACTIVE_RATIO),
        # Rates, whatever their names say.
        ("PROF_PCIE_TX_BYTES", catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND),
        ("PROF_PCIE_RX_BYTES", catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND),
        ("PROF_NVLINK_TX_BYTES", catalog.GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND),
        ("PROF_NVLINK_RX_BYTES", catalog.GPU_NVLINK_RECEIVE_BYTES_PER_SECOND),
    ):
        add(names, metric, *labels, convert=_as_it_is)
    return known


FIELDS = _fields()
