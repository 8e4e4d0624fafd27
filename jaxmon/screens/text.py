"""A report as text: complete for `jaxmon explain`, one screen for the exit report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxmon.facts.memory import Device
from jaxmon.facts.process import Process, Snapshot
from jaxmon.host.formats.layout import (
    INDENT,
    columns,
    duration,
    ending,
    shortened,
    size,
)
from jaxmon.screens import marked, sections, tables
from jaxmon.screens.goodput import goodput
from jaxmon.screens.notes import notes
from jaxmon.screens.time_table import time_table
from jaxmon.screens.utilization import flops
from jaxmon.symptoms.symptom import Finding


WIDTH = 80
MOST_LINES = 40
"""Most lines of the exit report."""

_MOST_FUNCTIONS = 5
_MOST_STATES = 4


def explanation(
    snapshot: Snapshot, findings: Sequence[Finding], *, worker: str, width: int = WIDTH
) -> list[str]:
    """Return the full report on a running process in lines of *width* columns."""
    return _joined(
        [
            _head(snapshot, worker, width),
            sections.findings(
                findings, width, observed=snapshot.process.observed_seconds
            ),
            time_table(snapshot).lines(width),
            goodput(snapshot.run).lines(width),
            marked.requests(snapshot).lines(width),
            marked.steps(snapshot).lines(width),
            marked.queues(snapshot).lines(width),
            sections.functions(snapshot).lines(width),
            sections.recompiles(snapshot, findings, width),
            tables.programs(snapshot).lines(width),
            flops(snapshot).lines(width),
            tables.cache(snapshot).lines(width),
            tables.devices(snapshot).lines(width),
            tables.memory_lines(snapshot).lines(width),
            tables.transfers(snapshot).lines(width),
            tables.errors(snapshot).lines(width),
            notes(snapshot, width),
        ]
    )


def screen(
    snapshot: Snapshot,
    findings: Sequence[Finding],
    *,
    worker: str,
    width: int = WIDTH,
    height: int = MOST_LINES,
) -> list[str]:
    """Return the process and its findings in at most *height* lines."""
    head = [*_head(snapshot, worker, width), ""]
    observed = snapshot.process.observed_seconds
    room = height - len(head)
    return [*head, *sections.findings(findings, width, observed=observed, room=room)]


def summary(
    snapshot: Snapshot, findings: Sequence[Finding], *, width: int = WIDTH
) -> list[str]:
    """Return the exit report in at most `MOST_LINES` lines."""
    title = f"── {shortened(f'jaxmon: {snapshot.process.program}', width - 8)} "
    facts = [
        [title + "─" * (width - columns(title))],
        time_table(snapshot, most=_MOST_STATES).lines(width),
        sections.functions(snapshot, most=_MOST_FUNCTIONS).lines(width),
        _memory(snapshot, width),
    ]
    above = _joined(facts)
    room = MOST_LINES - len(above) - 2
    observed = snapshot.process.observed_seconds
    below = sections.findings(findings, width, observed=observed, room=room, over=True)
    return [*_joined([above, below]), "─" * width]


def heading(process: Process, worker: str, width: int) -> str:
    """Return the line identifying the process."""
    pid = f"pid {process.pid}" if process.pid else ""
    who = [f"worker {worker}", pid, process.program]
    return shortened(" · ".join(filter(None, who)), width)


def _head(snapshot: Snapshot, worker: str, width: int) -> list[str]:
    process = snapshot.process
    since = [
        f"observed for {duration(process.observed_seconds)}",
        f"JAX {process.jax}" if process.jax else "",
        f"Python {process.python}" if process.python else "",
    ]
    if snapshot.compiling.count:
        since.append(
            f"compiling now, for {duration(snapshot.compiling.oldest_seconds)}"
        )
    return [
        heading(process, worker, width),
        shortened(" · ".join(filter(None, since)), width),
    ]


def _memory(snapshot: Snapshot, width: int) -> list[str]:
    """Return a line on the fullest device, at its peak: at exit, little is left."""
    known = [(_peak(one, snapshot), one) for one in snapshot.memory.devices]
    held, device = max(known, key=lambda one: one[0], default=(0.0, Device()))
    if not held:
        return []
    if device.peak:
        details = f"peak {size(held)}"
        details += f" of {size(device.limit)}" if device.limit else ""
    else:
        details = f"peak of the snapshots {size(held)} in live arrays"
    lines = [f"DEVICE MEMORY: {details}, on device {device.device}"]
    for top in snapshot.allocations.peak_of(device.device).lines[:1]:
        text = f"{INDENT}largest: {size(top.bytes)} from "
        lines.append(text + ending(top.place, width - columns(text)))
    return [shortened(one, width) for one in lines]


def _peak(device: Device, snapshot: Snapshot) -> float:
    """Return the most bytes on *device*: of its allocator, or in any snapshot."""
    seen = snapshot.allocations.peak_of(device.device).bytes
    return device.peak or max(device.live_bytes_peak or 0.0, seen)


def _joined(parts: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of the *parts* that have any, an empty line between two."""
    lines: list[str] = []
    for part in parts:
        if part:
            lines += ["", *part] if lines else part
    return lines
