"""
Metrics read as NVML field values, all in one call per device.

A new metric is a new row of `FIELDS`. If two rows provide the same value, the first
that a device supports is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon_exporter.collectors.nvidia.device import (
    INVALID_ARGUMENT,
    Figure,
    Nvml,
    NvmlDevice,
    Reading,
)


# In the order of NVML's value types.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
# Drivers' values for "not available".
_NOTHING = {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
_ALL_LINKS = 0xFFFFFFFF
_HOTTEST = 200


@dataclass(slots=True, eq=False, repr=False)
class Field:
    """
    A field value with NVML's ID, a *divisor* from its unit, and a *scope*: which link.
    Union *member* holds the value, whatever its type claims; above *highest*, and 0, it
    is invalid. *steady* ones change slowly: read every 30 seconds.
    """

    number: int
    figure: Figure
    divisor: float = 1
    scope: int = 0
    member: str = ""
    highest: float = 0
    steady: bool = False

    def value(self, result: Any) -> float | None:
        """Return the value in the unit of the metric, `None` if there is none."""
        kind = result.valueType
        if not self.member and not 0 <= kind < len(_MEMBERS):
            return None
        raw: float = getattr(result.value, self.member or _MEMBERS[kind])
        # No value here is ever negative; the comparison also rejects NaN.
        if raw in _NOTHING or not raw >= 0:
            return None
        if self.highest and not 0 < raw <= self.highest:
            return None
        return raw if self.divisor == 1 else raw / self.divisor


def read(nvml: Nvml, device: NvmlDevice, failures: Counter[str]) -> list[Reading]:
    """
    Return the values of all fields that *device* supports and that are due. Raises
    `DeviceLostError`: it does not respond; `NVMLError`: the driver as a whole failed.
    """
    fields = FIELDS if device.thorough else _LIVELY
    due = [field for field in fields if device.is_due(field)]
    found: list[Reading] = []
    if not due or not device.is_due(read):
        return found
    try:
        results = nvml.nvmlDeviceGetFieldValues(
            device.handle, [(field.number, field.scope) for field in due]
        )
    except nvml.NVMLError as error:
        device.on_failure(read, error, failures)
        return found
    for field, result in zip(due, results, strict=True):
        if code := result.nvmlReturn:
            # The argument is the number: an older driver does not know it.
            unknown = code == INVALID_ARGUMENT
            failed = nvml.NVMLError(code)
            device.on_failure(field, failed, failures, unsupported=unknown)
        else:
            into = device.steady if field.steady else found
            device.take(field, ((field.figure, field.value(result)),), into)
    return found


def _steady(metric: Metric, scope: int = 0, **numbers: int) -> Iterator[Field]:
    for label, number in numbers.items():
        yield Field(number, Figure(metric, (label,)), scope=scope, steady=True)


def _throttle(reason: str, number: int) -> Field:
    return Field(number, Figure(catalog.GPU_THROTTLE_SECONDS, (reason,)), 1e9)


def _ecc(severity: str, scope: str, number: int) -> Field:
    return Field(number, Figure(catalog.GPU_ECC_ERRORS, (severity, scope)), steady=True)


def _links(number: int, figure: Figure, divisor: float = 1) -> Field:
    return Field(number, figure, divisor, _ALL_LINKS)


_SENT = Figure(catalog.GPU_NVLINK_TRANSMIT_BYTES)
_RECEIVED = Figure(catalog.GPU_NVLINK_RECEIVE_BYTES)

FIELDS = (
    # Some drivers announce the wrong type, and give nonsense for no sensor.
    Field(
        82,
        Figure(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, ("memory",)),
        member="uiVal",
        highest=_HOTTEST,
    ),
    Field(186, Figure(catalog.GPU_POWER_INSTANT_WATTS), 1e3),
    Field(185, Figure(catalog.GPU_POWER_AVERAGE_WATTS), 1e3),
    _ecc("corrected", "volatile", 3),
    _ecc("uncorrected", "volatile", 4),
    _ecc("corrected", "aggregate", 5),
    _ecc("uncorrected", "aggregate", 6),
    *_steady(catalog.GPU_REMAPPED_ROWS, corrected=142, uncorrected=143),
    Field(144, Figure(catalog.GPU_ROW_REMAP_PENDING), steady=True),
    Field(145, Figure(catalog.GPU_ROW_REMAP_FAILURE), steady=True),
    *_steady(catalog.GPU_RETIRED_PAGES, corrected=29, uncorrected=30),
    Field(31, Figure(catalog.GPU_RETIRED_PAGES_PENDING), steady=True),
    *map(_throttle, catalog.THROTTLE_REASONS, (*range(74, 80), 269, 270, 271)),
    Field(197, Figure(catalog.GPU_PCIE_TRANSMIT_BYTES)),
    Field(198, Figure(catalog.GPU_PCIE_RECEIVE_BYTES)),
    Field(94, Figure(catalog.GPU_PCIE_REPLAYS), steady=True),
    *_steady(catalog.GPU_PCIE_ERRORS, correctable=173, non_fatal=179, fatal=180),
    _links(202, _SENT),
    _links(204, _RECEIVED),
    # Before Blackwell, in KiB.
    _links(138, _SENT, 1 / 1024),
    _links(139, _RECEIVED, 1 / 1024),
    *_steady(
        catalog.GPU_NVLINK_ERRORS,
        crc_flit=38,
        crc_data=45,
        replay=52,
        recovery=59,
        ecc_data=160,
    ),
    *_steady(
        catalog.GPU_NVLINK_ERRORS,
        _ALL_LINKS,
        malformed_packet=206,
        buffer_overrun=207,
        receive=208,
        receive_remote=209,
        link_integrity=211,
        transmit_discard=212,
        recovery_failed=214,
        effective=219,
        symbol=221,
    ),
    Field(230, Figure(catalog.GPU_RECOVERY_ACTION)),
)
_LIVELY = tuple(field for field in FIELDS if not field.steady)
