"""Findings on device memory."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.memory import Device
from jaxmon.facts.process import Snapshot
from jaxmon.formats.layout import counted, duration, share, size, times
from jaxmon.limits import Limits
from jaxmon.report.findings.finding import Finding, quoted


_DAY = 86_400.0
_MOST_EVIDENCE = 3


def out_of_memory(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect out-of-memory errors."""
    failures = sum(one.errors.get("oom", 0) for one in snapshot.functions)
    reports = snapshot.errors.readable_reports
    if failures or reports:
        known, now = snapshot.of_kind("error"), snapshot.process.now
        latest = [one for one in known if one.details.get("error_kind") == "oom"][-1:]
        yield Finding(
            "oom",
            "",
            f"The device ran out of memory {times(failures or len(reports))}.",
            (
                *(f"in {one.function}, {quoted(one, now)}" for one in latest),
                *(f"report: {path}" for path in reports[-_MOST_EVIDENCE:]),
            ),
            "The report names the program that requested memory and the lines "
            "that held it: free those first, donate arguments, or reduce the "
            "batch size.",
            where="".join(str(one.details.get("where") or "") for one in latest),
        )


def memory_high(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect devices that are, or were, nearly full."""
    for device in snapshot.memory.devices:
        if (finding := _nearly_full(device, snapshot.limits)) is not None:
            held = snapshot.allocations.peak_of(device.device)
            yield Finding(
                "memory",
                device.device,
                finding,
                tuple(
                    f"{line.place} held {size(line.bytes)} of it"
                    for line in held.lines[:_MOST_EVIDENCE]
                ),
                "Free what these lines hold, donate arguments (donate_argnums) or "
                "reduce the batch size before memory runs out.",
            )


def fragmentation(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect devices on which what was allocated once would not fit again."""
    limits = snapshot.limits
    for device in snapshot.memory.devices:
        free, block = _free(device), _largest_block(device)
        most = device.largest_allocation
        if free is None or block is None or most is None:
            continue
        much = free >= limits.fragmented_free * (device.limit or 0)
        if much and block < min(most, limits.fragmented_block * free):
            yield Finding(
                "fragmentation",
                device.device,
                f"{size(free)} of device {device.device} are free, but in blocks of "
                f"{size(block)} at most.",
                (f"the largest allocation so far took {size(most)}",),
                "Allocate the large arrays first and keep them, donate arguments, and "
                "use few shapes. XLA_PYTHON_CLIENT_PREALLOCATE=false fragments more.",
            )


def _free(device: Device) -> float | None:
    """Return the bytes that the allocator has left: its limit may be a fraction."""
    if not device.limit or device.in_use is None:
        return None
    return device.limit - device.in_use


def _largest_block(device: Device) -> float | None:
    """
    Return the largest array that fits: in a block of the pool, or in what the allocator
    may still add to its pool. `None` if unknown, as for a CPU or TPU.
    """
    if not device.limit or device.largest_free_block is None or device.pool is None:
        return None
    return max(device.largest_free_block, device.limit - device.pool)


def leaks(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect steadily growing memory."""
    for leak in snapshot.allocations.leaks:
        yield Finding(
            "leak",
            leak.device,
            f"Memory of device {leak.device} grew steadily by "
            f"{size(leak.growth_bytes)} in {duration(leak.seconds)}"
            + (
                f". At that pace it is full in {duration(left)}."
                if (left := leak.full_in_seconds) is not None and left <= _DAY
                else "."
            ),
            tuple(
                f"{line.place} grew by {size(line.growth_bytes)}, to "
                f"{counted(line.arrays, 'array')}"
                for line in leak.lines[:_MOST_EVIDENCE]
            ),
            "Find what keeps references to the arrays allocated on that line: "
            "often a list of losses or metrics; store float(x) instead of the "
            "array. A cache that is still filling looks the same.",
        )


def _nearly_full(device: Device, limits: Limits) -> str | None:
    if not device.limit:
        return None
    for figure, high, verb in (
        (device.in_use, limits.device_memory, "uses"),
        (device.peak, limits.device_memory_peak, "has used"),
    ):
        if figure is not None and figure > high * device.limit:
            part = share(figure, device.limit)
            return f"Device {device.device} {verb} {part} of its {size(device.limit)}."
    return None
