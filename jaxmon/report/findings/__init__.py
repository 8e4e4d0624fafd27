"""
From facts to findings: what is wrong, the evidence, and what to do.

Each rule detects one mistake, by values that a healthy program does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from jaxmon.facts.process import Snapshot
from jaxmon.report.findings import (
    cache,
    compiles,
    errors,
    exports,
    memory,
    recompiles,
    runs,
    serving,
    slower,
    stalled,
    time,
    tracing,
    transfers,
    values,
    warm_starts,
)
from jaxmon.report.findings.finding import Finding, ranked
from jaxmon.report.findings.neighbours import compared, compiled_together


Rule: TypeAlias = Callable[[Snapshot], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    memory.out_of_memory,
    memory.memory_high,
    memory.leaks,
    memory.fragmentation,
    compiles.stuck,
    runs.no_progress,
    stalled.stalled,
    serving.hanging,
    errors.errors,
    errors.failed_requests,
    values.outputs,
    values.same_keys,
    values.quantities,
    errors.warned,
    errors.float64,
    errors.double,
    errors.determinism,
    serving.queues,
    serving.checkpoints,
    *tracing.RULES,
    recompiles.recompiles,
    recompiles.scattered,
    compiles.operations,
    compiles.effects,
    compiles.compile_dominated,
    slower.slower,
    serving.padding,
    serving.event_loops,
    runs.old_checkpoint,
    runs.restarts,
    time.eager,
    time.data_wait,
    time.host,
    time.fetches,
    time.copies,
    time.blocked,
    time.garbage,
    time.held_up,
    time.device,
    time.compiling,
    time.startup,
    time.idle,
    transfers.transfers,
    transfers.arguments,
    cache.cache,
    exports.metrics,
    exports.spans,
    warm_starts.cold_requests,
)
"""Within an urgency, findings that win back the same time keep this order."""


def find(snapshot: Snapshot, neighbours: Sequence[Snapshot] = ()) -> list[Finding]:
    """
    Return what to change, the most urgent first; empty if nothing stands out.

    Args:
        snapshot: what the agent of a process reports, and the limits.
        neighbours: what those of other processes of the host report, if known.
    """
    return ranked([*_alone(snapshot), *compiled_together(snapshot, neighbours)])


class HostFindings:
    """
    The findings of `find` for every process of a host, added one after the other: of
    each, only what the others are compared with is kept.
    """

    def __init__(self) -> None:
        self._alone: dict[str, list[Finding]] = {}
        self._kept: dict[str, Snapshot] = {}

    def add(self, process: str, snapshot: Snapshot) -> None:
        """Add what the agent of *process* reports."""
        self._alone[process] = _alone(snapshot)
        self._kept[process] = compared(snapshot)

    def of(self, process: str) -> list[Finding]:
        """Return the findings on *process*, the most urgent first."""
        others = [self._kept[one] for one in self._kept if one != process]
        together = compiled_together(self._kept[process], others)
        return ranked([*self._alone[process], *together])


def _alone(snapshot: Snapshot) -> list[Finding]:
    """Return the findings on one process, whatever others do."""
    return [finding for rule in RULES for finding in rule(snapshot)]
