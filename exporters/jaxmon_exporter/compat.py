"""Metrics once more under the names that dcgm-exporter gives them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, Sample, labels_text, samples_of
from jaxmon.exposition.parse import labels
from jaxmon_exporter.dcgm_fields import FIELDS, DcgmField


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
        """
        Return the families in *found* that have dcgm-exporter's names, under those: of
        NVIDIA's accelerators, and their instances (MIG). Thread-safe.
        """
        plan = self._plan
        identities = tuple(name for name, _ in samples_of(found, *_IDENTITIES))
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
            if len(parts) == len(row.metrics) and foreign not in seen:
                seen.add(foreign)
                sample = (foreign, row.unit.theirs(sum(parts)))
                pages[row.name].samples.append(sample)
        pages[XID.name].samples.extend(_xids(found, plan.devices))
        pages[LICENSE.name].samples.extend(_licenses(found, plan.devices))
        return [family for family in pages.values() if family.samples]


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """How values of one device map to dcgm-exporter's series *foreign*."""

    row: DcgmField
    foreign: str


class _MappingCache:
    """
    How series are mapped while the *identities* of devices stay the same; *devices* has
    the text of dcgm-exporter's labels by our UUID.
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
        place = _Place(row, f"{row.name}{{{labelled}}}")
        # Several of ours make up one of theirs, device by device.
        return self._of.setdefault((id(row), uuid), place)


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
