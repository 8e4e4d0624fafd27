"""
dcgm-exporter's metric names, for ``jaxmon exporter --compat dcgm``.

Every series duplicates one of ours, with dcgm-exporter's name, labels and unit. They
break our naming rules (a rate called BYTES, percent, MiB), so they are in the table
here and not in `jaxmon.catalog`, and no panel, rule or runbook of ours may use them.
`names` applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxmon import catalog
from jaxmon.catalog import Kind, Metric


_MEBIBYTE = 1 << 20

XID_TEXTS = {
    0: "No Error",
    48: "Double-bit ECC error",
    62: "Internal micro-controller halt",
    63: "Page retired or row remapped",
    64: "Page retirement or row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "High rate of single-bit ECC errors",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    119: "GSP RPC timeout",
    120: "GSP error",
}


def _same(value: float) -> float:
    return value


def _percent(value: float) -> float:
    return round(value * 100)


def _megahertz(value: float) -> float:
    return round(value / 1_000_000)


def _mebibytes(value: float) -> float:
    return value // _MEBIBYTE


def _kibibytes(value: float) -> float:
    return value // 1024


def _millijoules(value: float) -> float:
    return round(value * 1000)


@dataclass(frozen=True, slots=True)
class Row:
    """
    One metric of dcgm-exporter.

    Args:
        foreign: its name, kind and meaning.
        ours: our metrics; several are added up, and all must be present.
        labels: values of the labels after ``uuid`` of *ours*.
        convert: returns a value of *ours* in the unit of *foreign*.
    """

    foreign: Metric
    ours: tuple[Metric, ...]
    labels: tuple[str, ...]
    convert: Callable[[float], float]


def _row(
    name: str,
    meaning: str,
    *ours: Metric,
    of: tuple[str, ...] = (),
    kind: Kind = "gauge",
    convert: Callable[[float], float] = _same,
) -> Row:
    foreign = Metric(f"DCGM_FI_{name}", kind, meaning)
    return Row(foreign, ours, of, convert)


def _share(name: str, what: str, ours: Metric) -> Row:
    return _row(name, f"Fraction of time {what}.", ours)


def _count(name: str, what: str, *ours: Metric, of: tuple[str, ...] = ()) -> Row:
    return _row(name, f"{what} so far.", *ours, of=of, kind="counter")


_TEMPERATURE = catalog.ACCELERATOR_TEMPERATURE_CELSIUS
_ENGINE = catalog.GPU_ENGINE_UTILIZATION_RATIO
ROWS = (
    _row(
        "DEV_SM_CLOCK",
        "Clock of the SMs in MHz.",
        catalog.ACCELERATOR_CLOCK_HERTZ,
        of=("sm",),
        convert=_megahertz,
    ),
    _row(
        "DEV_MEM_CLOCK",
        "Clock of the memory in MHz.",
        catalog.ACCELERATOR_CLOCK_HERTZ,
        of=("memory",),
        convert=_megahertz,
    ),
    _row("DEV_MEMORY_TEMP", "Memory temperature in C.", _TEMPERATURE, of=("memory",)),
    _row("DEV_GPU_TEMP", "GPU temperature in C.", _TEMPERATURE, of=("gpu",)),
    _row("DEV_POWER_USAGE", "Power in W.", catalog.ACCELERATOR_POWER_WATTS),
    _row(
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "Energy in mJ since the driver was loaded.",
        catalog.ACCELERATOR_ENERGY_JOULES,
        kind="counter",
        convert=_millijoules,
    ),
    _count("DEV_PCIE_REPLAY_COUNTER", "PCIe replays", catalog.GPU_PCIE_REPLAYS),
    _row(
        "DEV_GPU_UTIL",
        "GPU utilization in %.",
        catalog.ACCELERATOR_UTILIZATION_RATIO,
        convert=_percent,
    ),
    _row(
        "DEV_MEM_COPY_UTIL",
        "Memory utilization in %.",
        catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO,
        convert=_percent,
    ),
    _row(
        "DEV_ENC_UTIL",
        "Encoder utilization in %.",
        _ENGINE,
        of=("encoder",),
        convert=_percent,
    ),
    _row(
        "DEV_DEC_UTIL",
        "Decoder utilization in %.",
        _ENGINE,
        of=("decoder",),
        convert=_percent,
    ),
    _row(
        "DEV_FB_FREE",
        "Free memory in MiB.",
        catalog.ACCELERATOR_MEMORY_FREE_BYTES,
        convert=_mebibytes,
    ),
    _row(
        "DEV_FB_USED",
        "Used memory in MiB.",
        catalog.ACCELERATOR_MEMORY_USED_BYTES,
        convert=_mebibytes,
    ),
    _row(
        "DEV_FB_USED",
        "Used memory in MiB.",
        catalog.GPU_MIG_MEMORY_USED_BYTES,
        convert=_mebibytes,
    ),
    _row(
        "DEV_FB_RESERVED",
        "Reserved memory in MiB.",
        catalog.ACCELERATOR_MEMORY_RESERVED_BYTES,
        convert=_mebibytes,
    ),
    _row(
        "DEV_NVLINK_BANDWIDTH_TOTAL",
        "NVLink traffic in KiB, both directions combined.",
        catalog.GPU_NVLINK_TRANSMIT_BYTES,
        catalog.GPU_NVLINK_RECEIVE_BYTES,
        kind="counter",
        convert=_kibibytes,
    ),
    _count(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Rows remapped for uncorrectable errors",
        catalog.GPU_REMAPPED_ROWS,
        of=("uncorrected",),
    ),
    _count(
        "DEV_CORRECTABLE_REMAPPED_ROWS",
        "Rows remapped for correctable errors",
        catalog.GPU_REMAPPED_ROWS,
        of=("corrected",),
    ),
    _row(
        "DEV_ROW_REMAP_FAILURE",
        "1 if a row remapping has failed.",
        catalog.GPU_ROW_REMAP_FAILURE,
    ),
    _share(
        "PROF_GR_ENGINE_ACTIVE",
        "graphics or compute ran",
        catalog.GPU_GRAPHICS_ACTIVE_RATIO,
    ),
    _share(
        "PROF_PIPE_TENSOR_ACTIVE",
        "tensor cores were busy",
        catalog.GPU_TENSOR_ACTIVE_RATIO,
    ),
    _share("PROF_DRAM_ACTIVE", "memory was busy", catalog.GPU_DRAM_ACTIVE_RATIO),
    _row(
        "PROF_PCIE_TX_BYTES",
        "Bytes per second sent over PCIe.",
        catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND,
    ),
    _row(
        "PROF_PCIE_RX_BYTES",
        "Bytes per second received over PCIe.",
        catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND,
    ),
    # Off by default there, and nearly always enabled.
    _share("PROF_SM_ACTIVE", "an SM had work", catalog.GPU_SM_ACTIVE_RATIO),
    _row(
        "PROF_SM_OCCUPANCY",
        "Resident warps as a fraction of the maximum.",
        catalog.GPU_SM_OCCUPANCY_RATIO,
    ),
    _share("PROF_PIPE_FP64_ACTIVE", "FP64 was busy", catalog.GPU_FP64_ACTIVE_RATIO),
    _share("PROF_PIPE_FP32_ACTIVE", "FP32 was busy", catalog.GPU_FP32_ACTIVE_RATIO),
    _share("PROF_PIPE_FP16_ACTIVE", "FP16 was busy", catalog.GPU_FP16_ACTIVE_RATIO),
    _count(
        "DEV_ECC_SBE_VOL_TOTAL",
        "Corrected ECC errors since the driver was loaded,",
        catalog.GPU_ECC_ERRORS,
        of=("corrected", "volatile"),
    ),
    _count(
        "DEV_ECC_DBE_VOL_TOTAL",
        "Uncorrected ECC errors since the driver was loaded,",
        catalog.GPU_ECC_ERRORS,
        of=("uncorrected", "volatile"),
    ),
)
XID = Metric("DCGM_FI_DEV_XID_ERRORS", "gauge", "Last Xid error, 0 for none.")
LICENSE = Metric(
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "gauge",
    "1 for a licensed virtual GPU, else 0.",
)

# All metrics that may be exported.
FOREIGN: dict[str, Metric] = {row.foreign.name: row.foreign for row in ROWS}
FOREIGN |= {XID.name: XID, LICENSE.name: LICENSE}
