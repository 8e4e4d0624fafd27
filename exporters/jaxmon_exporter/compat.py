"""Metrics once more under the names that dcgm-exporter gives them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jaxmon import catalog
from jaxmon.catalog import Kind, Metric
from jaxmon.exposition.families import Family, Sample, labels_text
from jaxmon.exposition.parse import labels


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
class CompatMetric:
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
) -> CompatMetric:
    foreign = Metric(f"DCGM_FI_{name}", kind, meaning)
    return CompatMetric(foreign, ours, of, convert)


def _share(name: str, what: str, ours: Metric) -> CompatMetric:
    return _row(name, f"Fraction of time {what}.", ours)


def _count(
    name: str, what: str, *ours: Metric, of: tuple[str, ...] = ()
) -> CompatMetric:
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


_DRIVER = "DCGM_FI_DRIVER_VERSION"
_VALUES = re.compile(r'="((?:[^"\\]|\\.)*)"')
_WANTED = {(ours.name, row.labels): row for row in ROWS for ours in row.ours}
_METRICS = {ours.name for row in ROWS for ours in row.ours}
# Far more than a host has; invalid devices must not fill memory.
_MOST_PLACES = 1 << 14
_IDENTITIES = {catalog.ACCELERATOR_INFO.name, catalog.GPU_MIG_INFO.name}


class DcgmNames:
    """
    Re-exports series under dcgm-exporter's names.

    Args:
        hostname: for the label ``Hostname``.
    """

    def __init__(self, hostname: str | None = None) -> None:
        self._hostname = hostname or socket.gethostname()
        self._plan = _MappingCache((), {})

    def families(self, found: Sequence[Family]) -> list[Family]:
        """
        Return the families in *found* that have dcgm-exporter's names, under those.

        Of the accelerators only NVIDIA's have such names; instances of one (MIG) have
        its labels, and their own. Thread-safe.
        """
        plan = self._plan
        identities = tuple(
            name
            for family in found
            if family.metric.name in _IDENTITIES
            for name, _ in family.samples
        )
        if identities != plan.identities:
            plan = _MappingCache(identities, _devices(found, self._hostname))
            self._plan = plan
        sums: dict[_Place, list[float]] = {}
        for family in found:
            if family.metric.name in _METRICS:
                for name, value in family.samples:
                    if (place := plan.place(family.metric.name, name)) is not None:
                        sums.setdefault(place, []).append(value)
        pages = {name: Family(metric, []) for name, metric in FOREIGN.items()}
        seen: set[str] = set()
        for place, parts in sums.items():
            row, foreign = place.row, place.foreign
            # Devices of one instance share its values.
            if len(parts) == len(row.ours) and foreign not in seen:
                seen.add(foreign)
                sample = (foreign, row.convert(sum(parts)))
                pages[row.foreign.name].samples.append(sample)
        pages[XID.name].samples.extend(_xids(found, plan.devices))
        pages[LICENSE.name].samples.extend(_licenses(found, plan.devices))
        return [family for family in pages.values() if family.samples]


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """
    How values of one device map to a metric of dcgm-exporter.

    Args:
        foreign: dcgm-exporter's series.
    """

    row: CompatMetric
    foreign: str


class _MappingCache:
    """
    How series are mapped as long as the devices stay the same.

    Args:
        identities: series that name the devices.
        devices: text of dcgm-exporter's labels, by our UUID.
    """

    def __init__(self, identities: tuple[str, ...], devices: Mapping[str, str]) -> None:
        self.identities = identities
        self.devices = devices
        self._places: dict[str, _Place | None] = {}
        self._of: dict[tuple[int, str], _Place] = {}

    def place(self, metric: str, name: str) -> _Place | None:
        """Return the place of our series *name*, `None` when it has none."""
        try:
            return self._places[name]
        except KeyError:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            return self._places.setdefault(name, self._found(metric, name))

    def _found(self, metric: str, name: str) -> _Place | None:
        uuid, *rest = _VALUES.findall(name) or ("",)
        row = _WANTED.get((metric, tuple(rest)))
        labelled = self.devices.get(uuid)
        if row is None or labelled is None:
            return None
        place = _Place(row, f"{row.foreign.name}{{{labelled}}}")
        # Several of ours make up one of theirs, device by device.
        return self._of.setdefault((id(row), uuid), place)


def _devices(found: Iterable[Family], hostname: str) -> dict[str, str]:
    """Return the text of dcgm-exporter's labels for each device, by our UUID."""
    gpus: dict[str, dict[str, str]] = {}
    parts: list[dict[str, str]] = []
    for family in found:
        if family.metric.name == catalog.ACCELERATOR_INFO.name:
            for name, _ in family.samples:
                known = labels(name)
                if known.get("vendor") == "nvidia":
                    gpus.setdefault(known["uuid"], known)
        elif family.metric.name == catalog.GPU_MIG_INFO.name:
            parts += [labels(name) for name, _ in family.samples]
    texts = {uuid: _text(known, hostname) for uuid, known in gpus.items()}
    for part in parts:
        if part["parent"] in gpus:
            texts[part["uuid"]] = _text(gpus[part["parent"]], hostname, part)
    return texts


def _text(
    gpu: Mapping[str, str], hostname: str, part: Mapping[str, str] | None = None
) -> str:
    domain, colon, rest = gpu["pci_bus_id"].upper().partition(":")
    known = {
        "gpu": gpu["index"],
        "UUID": gpu["uuid"],
        "pci_bus_id": f"{domain:0>8}{colon}{rest}",
        "device": f"nvidia{gpu['index']}",
        "modelName": gpu["model"],
    }
    if part is not None:
        known |= {"GPU_I_PROFILE": part["profile"], "GPU_I_ID": part["gpu_instance"]}
    known |= {"Hostname": hostname, _DRIVER: gpu["driver"]}
    return labels_text(tuple(known), known.values())


def _xids(found: Iterable[Family], devices: Mapping[str, str]) -> list[Sample]:
    """Return the last Xid error of each GPU that can report one."""
    last: dict[str, tuple[float, int]] = {}
    for family in found:
        if family.metric.name == catalog.GPU_XID_ERRORS.name:
            for name, _ in family.samples:
                last.setdefault(_VALUES.findall(name)[0], (0.0, 0))
        elif family.metric.name == catalog.GPU_XID_LAST_TIMESTAMP_SECONDS.name:
            for name, time in family.samples:
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
    held: dict[str, float] = {}
    for family in found:
        if family.metric.name == catalog.ACCELERATOR_UP.name:
            for name, up in family.samples:
                if up:
                    held.setdefault(_VALUES.findall(name)[0], 0.0)
        elif family.metric.name == catalog.GPU_VGPU_LICENSED.name:
            held |= {_VALUES.findall(name)[0]: value for name, value in family.samples}
    return [
        (f"{LICENSE.name}{{{devices[uuid]}}}", value)
        for uuid, value in held.items()
        if uuid in devices
    ]
