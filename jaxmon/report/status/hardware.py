"""Accelerators as their driver sees them, and devices as JAX does."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.report.status.model import AcceleratorSummary, DeviceSummary
from jaxmon.report.status.reading import Reading


def accelerators(now: Reading) -> list[AcceleratorSummary]:
    """Return the accelerators of the host, in the order of the driver."""
    up = now.by(catalog.ACCELERATOR_UP, "uuid")
    used = now.by(catalog.ACCELERATOR_MEMORY_USED_BYTES, "uuid")
    size = now.by(catalog.ACCELERATOR_MEMORY_SIZE_BYTES, "uuid")
    busy = now.by(catalog.ACCELERATOR_UTILIZATION_RATIO, "uuid")
    power = now.by(catalog.ACCELERATOR_POWER_WATTS, "uuid")
    limit = now.by(catalog.ACCELERATOR_POWER_LIMIT_WATTS, "uuid")
    heat = now.by(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, "uuid", sensor="gpu")
    return [
        AcceleratorSummary(
            uuid=row["uuid"],
            index=row["index"],
            model=row["model"],
            up=_flag(up.get(key)),
            utilization=busy.get(key),
            memory_used=used.get(key),
            memory_size=size.get(key),
            temperature=heat.get(key),
            power=power.get(key),
            power_limit=limit.get(key),
        )
        for row, _ in now.rows(catalog.ACCELERATOR_INFO)
        for key in [(row["uuid"],)]
    ]


def devices(now: Reading) -> list[DeviceSummary]:
    """Return the devices of each process."""
    pair = ("worker", "device")
    in_use = now.by(catalog.DEVICE_MEMORY_BYTES, *pair, kind="in_use")
    limit = now.by(catalog.DEVICE_MEMORY_BYTES, *pair, kind="limit")
    arrays = now.by(catalog.LIVE_ARRAYS, *pair)
    array_bytes = now.by(catalog.LIVE_ARRAY_BYTES, *pair)
    return [
        DeviceSummary(
            worker=row["worker"],
            device=row["device"],
            platform=row["platform"],
            kind=row["device_kind"],
            uuid=row["uuid"],
            memory_in_use=in_use.get(key),
            memory_limit=limit.get(key),
            live_arrays=arrays.get(key),
            live_array_bytes=array_bytes.get(key),
        )
        for row, _ in now.rows(catalog.DEVICE_INFO)
        for key in [(row["worker"], row["device"])]
    ]


def _flag(value: float | None) -> bool | None:
    return None if value is None else bool(value)
