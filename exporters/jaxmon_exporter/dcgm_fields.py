"""What DCGM calls our metrics, and its units: to read them, and to export them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, Sample, labels_text, samples_of
from jaxmon.exposition.parse import labels


class Conversion(NamedTuple):
    """Converts a value of DCGM's to the unit of our metric, and back, as it rounds."""

    ours: Callable[[float], float]
    theirs: Callable[[float], float]


_SAME = Conversion(lambda value: value, lambda value: value)
_PERCENT = Conversion(lambda value: value / 100, lambda value: round(value * 100))
_MHZ = Conversion(
    lambda value: value * 1_000_000, lambda value: round(value / 1_000_000)
)
_MIB = Conversion(lambda value: value * (1 << 20), lambda value: value // (1 << 20))
_KIB = Conversion(lambda value: value * 1024, lambda value: value // 1024)
_MJ = Conversion(lambda value: value / 1000, lambda value: round(value * 1000))


class DcgmField(NamedTuple):
    """
    A field of DCGM by its usual name, with its help if it is exported; *labels* are the
    values after ``uuid``. Several metrics are added up, must all be present, and not
    read.
    """

    name: str
    text: str
    metrics: tuple[Metric, ...]
    labels: tuple[str, ...]
    unit: Conversion


def _row(
    name: str, text: str, metric: Metric, of: str = "", unit: Conversion = _SAME
) -> DcgmField:
    return DcgmField(f"DCGM_FI_{name}", text, (metric,), tuple(of.split()), unit)


def _share(name: str, what: str, metric: Metric) -> DcgmField:
    return _row(name, f"Fraction of time {what}.", metric)


def _count(name: str, what: str, metric: Metric, of: str = "") -> DcgmField:
    return _row(name, f"{what} so far.", metric, of)


_CLOCK = catalog.ACCELERATOR_CLOCK_HERTZ
_HEAT = catalog.ACCELERATOR_TEMPERATURE_CELSIUS
_USE = catalog.ACCELERATOR_UTILIZATION_RATIO
_ENGINE = catalog.GPU_ENGINE_UTILIZATION_RATIO
_CONTROLLER = catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO
_NVLINK = (catalog.GPU_NVLINK_TRANSMIT_BYTES, catalog.GPU_NVLINK_RECEIVE_BYTES)
_FREE = catalog.ACCELERATOR_MEMORY_FREE_BYTES
_USED = catalog.ACCELERATOR_MEMORY_USED_BYTES
_OF_MIG = catalog.GPU_MIG_MEMORY_USED_BYTES
_RESERVED = catalog.ACCELERATOR_MEMORY_RESERVED_BYTES
_REMAPPED, _ECC = catalog.GPU_REMAPPED_ROWS, catalog.GPU_ECC_ERRORS
_SENT = catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND
_RECEIVED = catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND
_ENERGY = catalog.ACCELERATOR_ENERGY_JOULES
_DRIVEN = "ECC errors since the driver was loaded,"

# In the order in which they are exported. Of two with one name, the first is read.
FIELDS = (
    _row("DEV_SM_CLOCK", "Clock of the SMs in MHz.", _CLOCK, "sm", _MHZ),
    _row("DEV_MEM_CLOCK", "Clock of the memory in MHz.", _CLOCK, "memory", _MHZ),
    _row("DEV_VIDEO_CLOCK", "", _CLOCK, "video", _MHZ),
    _row("DEV_MEMORY_TEMP", "Memory temperature in C.", _HEAT, "memory"),
    _row("DEV_GPU_TEMP", "GPU temperature in C.", _HEAT, "gpu"),
    _row("DEV_POWER_USAGE", "Power in W.", catalog.ACCELERATOR_POWER_WATTS),
    _row("DEV_ENFORCED_POWER_LIMIT", "", catalog.ACCELERATOR_POWER_LIMIT_WATTS),
    _row(
        *("DEV_TOTAL_ENERGY_CONSUMPTION", "Energy in mJ since the driver was loaded."),
        _ENERGY,
        unit=_MJ,
    ),
    _count("DEV_PCIE_REPLAY_COUNTER", "PCIe replays", catalog.GPU_PCIE_REPLAYS),
    _row("DEV_GPU_UTIL", "GPU utilization in %.", _USE, "", _PERCENT),
    _row("DEV_MEM_COPY_UTIL", "Memory utilization in %.", _CONTROLLER, "", _PERCENT),
    _row("DEV_ENC_UTIL", "Encoder utilization in %.", _ENGINE, "encoder", _PERCENT),
    _row("DEV_DEC_UTIL", "Decoder utilization in %.", _ENGINE, "decoder", _PERCENT),
    _row("DEV_FB_FREE", "Free memory in MiB.", _FREE, "", _MIB),
    _row("DEV_FB_USED", "Used memory in MiB.", _USED, "", _MIB),
    _row("DEV_FB_USED", "Used memory in MiB.", _OF_MIG, "", _MIB),
    _row("DEV_FB_RESERVED", "Reserved memory in MiB.", _RESERVED, "", _MIB),
    _row("DEV_FB_TOTAL", "", catalog.ACCELERATOR_MEMORY_SIZE_BYTES, "", _MIB),
    DcgmField(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "NVLink traffic in KiB, both directions combined.",
        metrics=_NVLINK,
        labels=(),
        unit=_KIB,
    ),
    _count(
        *("DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrectable errors"),
        _REMAPPED,
        "uncorrected",
    ),
    _count(
        *("DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for correctable errors"),
        _REMAPPED,
        "corrected",
    ),
    _row("DEV_ROW_REMAP_PENDING", "", catalog.GPU_ROW_REMAP_PENDING),
    _row(
        *("DEV_ROW_REMAP_FAILURE", "1 if a row remapping has failed."),
        catalog.GPU_ROW_REMAP_FAILURE,
    ),
    _share(
        *("PROF_GR_ENGINE_ACTIVE", "graphics or compute ran"),
        catalog.GPU_GRAPHICS_ACTIVE_RATIO,
    ),
    _share(
        *("PROF_PIPE_TENSOR_ACTIVE", "tensor cores were busy"),
        catalog.GPU_TENSOR_ACTIVE_RATIO,
    ),
    _share("PROF_DRAM_ACTIVE", "memory was busy", catalog.GPU_DRAM_ACTIVE_RATIO),
    # Rates, whatever their names say.
    _row("PROF_PCIE_TX_BYTES", "Bytes per second sent over PCIe.", _SENT),
    _row("PROF_PCIE_RX_BYTES", "Bytes per second received over PCIe.", _RECEIVED),
    _row("PROF_NVLINK_TX_BYTES", "", catalog.GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND),
    _row("PROF_NVLINK_RX_BYTES", "", catalog.GPU_NVLINK_RECEIVE_BYTES_PER_SECOND),
    # Off by default there, and nearly always enabled.
    _share("PROF_SM_ACTIVE", "an SM had work", catalog.GPU_SM_ACTIVE_RATIO),
    _row(
        *("PROF_SM_OCCUPANCY", "Resident warps as a fraction of the maximum."),
        catalog.GPU_SM_OCCUPANCY_RATIO,
    ),
    _share("PROF_PIPE_FP64_ACTIVE", "FP64 was busy", catalog.GPU_FP64_ACTIVE_RATIO),
    _share("PROF_PIPE_FP32_ACTIVE", "FP32 was busy", catalog.GPU_FP32_ACTIVE_RATIO),
    _share("PROF_PIPE_FP16_ACTIVE", "FP16 was busy", catalog.GPU_FP16_ACTIVE_RATIO),
    _count("DEV_ECC_SBE_VOL_TOTAL", f"Corrected {_DRIVEN}", _ECC, "corrected volatile"),
    _count(
        *("DEV_ECC_DBE_VOL_TOTAL", f"Uncorrected {_DRIVEN}"),
        _ECC,
        "uncorrected volatile",
    ),
    _row("DEV_ECC_SBE_AGG_TOTAL", "", _ECC, "corrected aggregate"),
    _row("DEV_ECC_DBE_AGG_TOTAL", "", _ECC, "uncorrected aggregate"),
)

_SPELLED_NOW = {
    "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": "DEV_ENFORCED_POWER_LIMIT",
    "DEV_BOARD_POWER_WATTS": "DEV_POWER_USAGE",
    "DEV_GPU_TEMP_CELSIUS": "DEV_GPU_TEMP",
    "DEV_GPU_UTIL_RATIO": "DEV_GPU_UTIL",
    "DEV_MEMORY_TEMP_CELSIUS": "DEV_MEMORY_TEMP",
    "DEV_PCIE_REPLAY_TOTAL": "DEV_PCIE_REPLAY_COUNTER",
    "DEV_ROW_REMAP_CORRECTABLE_TOTAL": "DEV_CORRECTABLE_REMAPPED_ROWS",
    "DEV_ROW_REMAP_FAILED": "DEV_ROW_REMAP_FAILURE",
    "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": "DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "PROF_DRAM_UTIL_RATIO": "PROF_DRAM_ACTIVE",
    "PROF_FP16_UTIL_RATIO": "PROF_PIPE_FP16_ACTIVE",
    "PROF_FP32_UTIL_RATIO": "PROF_PIPE_FP32_ACTIVE",
    "PROF_FP64_UTIL_RATIO": "PROF_PIPE_FP64_ACTIVE",
    "PROF_GR_ENGINE_UTIL_RATIO": "PROF_GR_ENGINE_ACTIVE",
    "PROF_SM_OCCUPANCY_RATIO": "PROF_SM_OCCUPANCY",
    "PROF_SM_UTIL_RATIO": "PROF_SM_ACTIVE",
    "PROF_TENSOR_UTIL_RATIO": "PROF_PIPE_TENSOR_ACTIVE",
}
READ = {row.name: row for row in reversed(FIELDS) if len(row.metrics) == 1}
READ |= {
    f"DCGM_FI_{new}": READ[f"DCGM_FI_{usual}"] for new, usual in _SPELLED_NOW.items()
}
"""Fields that are read, by all of their names."""


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


_ROWS = [row for row in FIELDS if row.text]
XID = Metric("DCGM_FI_DEV_XID_ERRORS", "gauge", "Last Xid error, 0 for none.")
LICENSE = Metric(
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gauge", "1 for a licensed virtual GPU, else 0."
)

# All metrics that may be exported.
FOREIGN: dict[str, Metric] = {
    row.name: Metric(row.name, row.metrics[0].kind, row.text) for row in _ROWS
} | {XID.name: XID, LICENSE.name: LICENSE}


_DRIVER = "DCGM_FI_DRIVER_VERSION"
_VALUES = re.compile(r'="((?:[^"\\]|\\.)*)"')
_WANTED = {(ours.name, row.labels): row for row in _ROWS for ours in row.metrics}
_METRICS = {name for name, _ in _WANTED}
# Far more than a host has; invalid devices must not fill memory.
_MOST_PLACES = 1 << 14
_IDENTITIES = catalog.ACCELERATOR_INFO, catalog.GPU_MIG_INFO


class DcgmNames:
    """Re-exports series under dcgm-exporter's names, with *hostname* as a label."""

    def __init__(self, hostname: str | None = None) -> None:
        self._hostname = hostname or socket.gethostname()
        self._plan = _MappingCache((), {})

    def families(self, found: Sequence[Family]) -> list[Family]:
        """Return those in *found* with dcgm-exporter's names. Thread-safe."""
        plan = self._plan
        identities = tuple(name for name, _ in samples_of(found, *_IDENTITIES))
        if identities != plan.identities:
            plan = _MappingCache(identities, _devices(found, self._hostname))
            self._plan = plan
        # By series and device: several of ours make up one of theirs, device by device.
        sums: dict[tuple[str, str], tuple[DcgmField, list[float]]] = {}
        for family in found:
            if family.metric.name in _METRICS:
                for name, value in family.samples:
                    if (place := plan.place(family.metric.name, name)) is not None:
                        row, foreign, uuid = place
                        sums.setdefault((foreign, uuid), (row, []))[1].append(value)
        pages = {name: Family(metric, []) for name, metric in FOREIGN.items()}
        seen: set[str] = set()
        for (foreign, _), (row, parts) in sums.items():
            # Devices of one instance share its values.
            if len(parts) == len(row.metrics) and foreign not in seen:
                seen.add(foreign)
                sample = (foreign, row.unit.theirs(sum(parts)))
                pages[row.name].samples.append(sample)
        pages[XID.name].samples.extend(_xids(found, plan.devices))
        pages[LICENSE.name].samples.extend(_licenses(found, plan.devices))
        return [family for family in pages.values() if family.samples]


class _MappingCache:
    """How series are mapped while the *identities* of devices stay the same."""

    def __init__(self, identities: tuple[str, ...], devices: Mapping[str, str]) -> None:
        self.identities = identities
        self.devices = devices
        self.place = lru_cache(maxsize=_MOST_PLACES)(self._found)

    def _found(self, metric: str, name: str) -> tuple[DcgmField, str, str] | None:
        uuid, *rest = _VALUES.findall(name) or ("",)
        row = _WANTED.get((metric, tuple(rest)))
        if row is None or (labelled := self.devices.get(uuid)) is None:
            return None
        return row, f"{row.name}{{{labelled}}}", uuid


def _devices(found: Iterable[Family], hostname: str) -> dict[str, str]:
    gpus: dict[str, dict[str, str]] = {}
    for name, _ in samples_of(found, catalog.ACCELERATOR_INFO):
        gpu = labels(name)
        if gpu.get("vendor") == "nvidia":
            gpus.setdefault(gpu["uuid"], gpu)
    texts = {uuid: _text(gpu, hostname) for uuid, gpu in gpus.items()}
    for name, _ in samples_of(found, catalog.GPU_MIG_INFO):
        part = labels(name)
        if part["parent"] in gpus:
            texts[part["uuid"]] = _text(gpus[part["parent"]], hostname, part)
    return texts


def _text(
    gpu: Mapping[str, str], hostname: str, part: Mapping[str, str] | None = None
) -> str:
    domain, colon, rest = gpu["pci_bus_id"].upper().partition(":")
    fields = {
        "gpu": gpu["index"],
        "UUID": gpu["uuid"],
        "pci_bus_id": f"{domain:0>8}{colon}{rest}",
        "device": f"nvidia{gpu['index']}",
        "modelName": gpu["model"],
    }
    if part is not None:
        fields |= {"GPU_I_PROFILE": part["profile"], "GPU_I_ID": part["gpu_instance"]}
    fields |= {"Hostname": hostname, _DRIVER: gpu["driver"]}
    return labels_text(tuple(fields), fields.values())


def _xids(found: Iterable[Family], devices: Mapping[str, str]) -> list[Sample]:
    last: dict[str, tuple[float, int]] = {}
    for name, _ in samples_of(found, catalog.GPU_XID_ERRORS):
        last.setdefault(_VALUES.findall(name)[0], (0.0, 0))
    for name, time in samples_of(found, catalog.GPU_XID_LAST_TIMESTAMP_SECONDS):
        uuid, xid = _VALUES.findall(name)
        if xid.isdecimal():
            last[uuid] = max(last.get(uuid, (0.0, 0)), (time, int(xid)))
    samples = []
    for uuid, (_, xid) in last.items():
        if uuid in devices:
            text = XID_TEXTS.get(xid, "Unknown Error")
            more = labels_text(("err_code", "err_msg"), (xid, text))
            samples.append((f"{XID.name}{{{devices[uuid]},{more}}}", float(xid)))
    return samples


def _licenses(found: Iterable[Family], devices: Mapping[str, str]) -> list[Sample]:
    """Return which responding GPUs hold a licence; 0 also for those that need none."""
    up = samples_of(found, catalog.ACCELERATOR_UP)
    held = {_VALUES.findall(name)[0]: 0.0 for name, value in up if value}
    for name, value in samples_of(found, catalog.GPU_VGPU_LICENSED):
        held[_VALUES.findall(name)[0]] = value
    return [
        (f"{LICENSE.name}{{{devices[uuid]}}}", value)
        for uuid, value in held.items()
        if uuid in devices
    ]
