"""
From facts to findings: what is wrong, the evidence, and what to do.

Each rule detects one mistake, by values that a healthy program does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from jaxmon.report.findings import (
    cache,
    compiles,
    errors,
    memory,
    recompiles,
    serving,
    slower,
    stalled,
    time,
    tracing,
    transfers,
    values,
)
from jaxmon.report.findings.finding import Finding, ranked
from jaxmon.report.findings.neighbours import compiled_together
from jaxmon.report.model import Snapshot


Rule: TypeAlias = Callable[[Snapshot], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    memory.out_of_memory,
    memory.memory_high,
    memory.leaks,
    memory.fragmentation,
    compiles.stuck,
    stalled.stalled,
    errors.errors,
    errors.failed_requests,
    values.outputs,
    values.quantities,
    errors.warned,
    errors.float64,
    errors.determinism,
    serving.queues,
    *tracing.RULES,
    recompiles.recompiles,
    recompiles.scattered,
    compiles.operations,
    compiles.effects,
    compiles.compile_dominated,
    slower.slower,
    serving.padding,
    time.eager,
    time.data_wait,
    time.host,
    time.fetches,
    time.copies,
    time.blocked,
    time.garbage,
    time.device,
    time.compiling,
    time.idle,
    transfers.transfers,
    transfers.arguments,
    cache.cache,
)
"""Within an urgency, findings that win back the same time keep this order."""


def find(snapshot: Snapshot, neighbours: Sequence[Snapshot] = ()) -> list[Finding]:
    """
    Return what to change, the most urgent first; empty if nothing stands out.

    Args:
        snapshot: what the agent of a process reports.
        neighbours: what those of other processes of the host report, if known.
    """
    found = [finding for rule in RULES for finding in rule(snapshot)]
    return ranked([*found, *compiled_together(snapshot, neighbours)])
