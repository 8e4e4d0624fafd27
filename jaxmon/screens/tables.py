"""
The sections of a report that are tables of facts: programs, cache, memory, transfers.

Each is empty if there is nothing to report.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxmon.facts.memory import Device, Transfer
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import (
    UNKNOWN,
    Column,
    ago,
    counted,
    duration,
    ending,
    size,
)
from jaxmon.screens.section import Section, more


_MOST_FUNCTIONS = 12
_MOST_DEVICES = 8
_MOST_PLACES = 8
_MOST_REPORTS = 3
_WORTH_SECONDS = 0.001
_DIRECTIONS = {
    "device_to_host": "to host",
    "host_to_device": "to device",
    "sync": "sync",
}


def programs(snapshot: Snapshot, *, most: int = _MOST_FUNCTIONS) -> Section:
    """
    Return XLA's analysis of each function's latest program, and sampled call times.
    """
    known = [one for one in snapshot.functions if not one.internal]
    known = [one for one in known if one.program.programs or one.samples.samples]
    known.sort(key=lambda one: -(one.calls or one.misses))
    layout = [
        Column("FUNCTION", right=False),
        Column("PROGRAMS", 10),
        Column("TEMP MEMORY", 13),
        Column("DISPATCH", 10),
        Column("EXECUTION", 11),
    ]
    rows = [
        [
            one.name,
            _known(one.program.programs, _whole),
            _known(one.program.temporary_bytes, size),
            _known(one.samples.dispatch_seconds, duration),
            _known(one.samples.execution_seconds, duration),
        ]
        for one in known[:most]
    ]
    about = " (latest per function; median times of sampled calls)" if rows else ""
    places = [one.place for one in known[:most]]
    return Section("PROGRAMS", about, layout, rows, places)


def cache(snapshot: Snapshot) -> Section:
    """Return persistent cache statistics and obstacles."""
    found = snapshot.cache
    hits, misses = found.requests.hit, found.requests.miss
    if found.enabled is None and not hits and not misses:
        return Section("PERSISTENT CACHE")
    if not found.enabled or not found.directory:
        about = ": off"
    else:
        about = f": {counted(hits, 'hit')}, {misses:,} "
        about += "miss" if misses == 1 else "misses"
        if found.saved_seconds > 0:
            about += f", {duration(found.saved_seconds)} saved"
        elif (cost := -found.saved_seconds - hits) > 0:
            # Each compile took less than a second more than JAX has stored.
            about += f", loading took {duration(cost)} longer than compiling"
    below = []
    if found.directory:
        facts = [found.directory]
        if found.entries is not None:
            facts.append(f"{found.entries:,} entries")
        if found.size_bytes is not None:
            facts.append(size(found.size_bytes))
        if found.writes:
            facts.append(f"{counted(found.writes, 'write')}")
        below.append(", ".join(facts))
    below += [f"- {one.message} {one.advice}".strip() for one in found.obstacles]
    return Section("PERSISTENT CACHE", about, below=below)


def devices(snapshot: Snapshot, *, most: int = _MOST_DEVICES) -> Section:
    """Return device memory use."""
    layout = [
        Column("DEVICE", right=False),
        Column("IN USE", 11),
        Column("PEAK", 11),
        Column("LIMIT", 11),
        Column("LIVE ARRAYS", 13),
        Column("SIZE", 11),
    ]
    found = snapshot.memory.devices
    rows = [_device(one) for one in found[:most]]
    return Section(
        "DEVICE MEMORY", columns=layout, rows=rows, below=more(len(found) - most)
    )


def memory_lines(snapshot: Snapshot, *, most: int = _MOST_PLACES) -> Section:
    """Return the source lines that hold most device memory."""
    lines = [one for one in snapshot.allocations.lines if one.bytes]
    layout = [
        Column("SIZE", 9),
        Column("ARRAYS", 10),
        Column("GROWTH", 12),
        Column("", 2),
        Column("SOURCE LINE", right=False, cut=ending),
    ]
    found = snapshot.allocations
    looked_once = found.time is not None and not found.seconds
    rows = [
        [
            size(one.bytes),
            f"{one.arrays:,}",
            UNKNOWN if looked_once else _growth(one.growth_bytes),
            "",
            f"{one.place} {one.function}".strip(),
        ]
        for one in lines[:most]
    ]
    about = _age_of_memory(snapshot) if rows else ""
    return Section("MEMORY BY SOURCE LINE", about, layout, rows)


def transfers(snapshot: Snapshot, *, most: int = _MOST_PLACES) -> Section:
    """Return the source lines that block longest on transfers."""
    lines = [one for one in snapshot.transfers.lines if one.seconds >= _WORTH_SECONDS]
    layout = [
        Column("COUNT", 9),
        Column("SIZE", 11),
        Column("BLOCKED", 12),
        Column("", 2),
        Column("TRANSFER", 21, right=False),
        Column("SOURCE LINE", right=False, cut=ending),
    ]
    rows = [
        [
            f"{one.count:,}",
            size(one.bytes),
            duration(one.seconds),
            "",
            _movement(one),
            one.place or UNKNOWN,
        ]
        for one in lines[:most]
    ]
    return Section("TRANSFERS BETWEEN HOST AND DEVICE", columns=layout, rows=rows)


def errors(snapshot: Snapshot) -> Section:
    """Return errors and the locations of their reports."""
    found = []
    for one in snapshot.functions:
        if kinds := {kind: n for kind, n in one.errors.items() if n}:
            details = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
            found.append(f"{one.name}: {details}")
    reports = snapshot.errors.readable_reports[-_MOST_REPORTS:]
    return Section("ERRORS", below=[*found, *(f"report: {path}" for path in reports)])


def _age_of_memory(snapshot: Snapshot) -> str:
    """Return the age of the snapshot, in brackets, if it is known."""
    looks = snapshot.allocations
    if looks.time is None:
        return ""
    taken = f"snapshot {ago(snapshot.process.now - looks.time)}"
    if looks.seconds:
        taken += f"; growth over the preceding {duration(looks.seconds)}"
    return f" ({taken})"


def _growth(growth: float) -> str:
    return f"{'+' if growth > 0 else ''}{size(growth)}" if growth else "0"


def _movement(line: Transfer) -> str:
    direction = _DIRECTIONS.get(line.direction, line.direction)
    return f"{direction}, {line.how}" if line.how not in ("", "unknown") else direction


def _device(device: Device) -> list[str]:
    return [
        f"{device.device} {device.kind}".strip(),
        _known(device.in_use, size),
        _known(device.peak, size),
        _known(device.limit, size),
        _known(device.live_arrays, _whole),
        _known(device.live_bytes, size),
    ]


def _known(value: float | None, text: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else text(value)


def _whole(value: float) -> str:
    return f"{value:,.0f}"
