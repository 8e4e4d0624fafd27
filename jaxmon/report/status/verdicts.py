"""The findings on the processes of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ProcessVerdict(NamedTuple):
    """
    What is wrong with one process.

    Args:
        pid: of the process.
        program: its command line.
        observed_seconds: since its agent was started.
        findings: as in ``jaxmon explain --json``, `None` if unknown.
        verdict: what is said if nothing is to fix, else ``""``.
        trouble: why the findings are unknown, as the predicate of a sentence.
        notes: why findings may be missing or wrong, in sentences.
        doing: where its time goes lately, in a sentence; empty if unknown.
    """

    pid: int | None = None
    program: str = ""
    observed_seconds: float | None = None
    findings: list[dict[str, Any]] | None = None
    verdict: str = ""
    trouble: str = ""
    notes: Sequence[str] = ()
    doing: str = ""


class HostVerdict(NamedTuple):
    """
    What is wrong with the processes of a host.

    Args:
        processes: by worker.
        shared: the findings that several processes have in common, with a list of
            these as ``workers``.
        trouble: why there are none.
        age: seconds since the agents were queried; `None` if they were not.
    """

    processes: Mapping[str, ProcessVerdict] = {}
    shared: list[dict[str, Any]] = []  # noqa: RUF012 - never changed
    trouble: str = ""
    age: float | None = None

    def of(self, worker: str) -> HostVerdict:
        """Return what is wrong with the process *worker* alone."""
        known = self.processes.get(worker)
        alone = {} if known is None else {worker: known}
        return self._replace(processes=alone, shared=[])

    def current(self, uptimes: Mapping[str, float]) -> HostVerdict:
        """
        Return what is wrong with those processes that ran when the agents were queried:
        others, by their *uptimes*, are successors that are not judged yet.
        """
        age = self.age or 0.0
        gone = {worker for worker in self.processes if uptimes.get(worker, age) < age}
        return self._replace(
            processes={
                worker: one
                for worker, one in self.processes.items()
                if worker not in gone
            },
            shared=[one for one in self.shared if gone.isdisjoint(one["workers"])],
        )


UNREAD = HostVerdict()
"""Before anything was read."""
