"""The processes of a host."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon import catalog
from jaxmon.report.status.model import AgentSummary
from jaxmon.report.status.reading import Reading, in_order
from jaxmon.report.status.verdicts import ProcessVerdict


_UNKNOWN = ProcessVerdict()


def processes(
    now: Reading, verdicts: Mapping[str, ProcessVerdict]
) -> list[AgentSummary]:
    """
    Return the processes by slot.

    A slot whose process ended without finishing in a loop is one as well, until another
    takes it: what it ran is missing.
    """
    up = {worker: bool(value) for (worker,), value in now.of(catalog.AGENT_UP).items()}
    died = {
        worker
        for (worker, loop), value in now.of(catalog.AGENT_DIED).items()
        if value and (loop or worker in up)
    }
    runtimes = {row["worker"]: row for row, _ in now.rows(catalog.RUNTIME_INFO)}
    resident = now.of(catalog.PROCESS_RESIDENT_MEMORY_BYTES)
    compiling = now.of(catalog.COMPILES_IN_PROGRESS)
    oldest = now.of(catalog.COMPILE_OLDEST_SECONDS)
    found = []
    for worker in in_order(up.keys() | died):
        verdict = verdicts.get(worker, _UNKNOWN)
        runtime = runtimes.get(worker, {})
        started = now.started(worker)
        found.append(
            AgentSummary(
                worker=worker,
                up=up.get(worker, False),
                died=worker in died,
                jax=runtime.get("jax"),
                platform=runtime.get("platform"),
                started=started,
                age=None if started is None else max(now.time - started, 0.0),
                resident_bytes=resident.get((worker,)),
                compiles_in_progress=compiling.get((worker,)),
                compile_oldest=oldest.get((worker,)),
                pid=verdict.pid,
                program=verdict.program,
                observed_seconds=verdict.observed_seconds,
                findings=verdict.findings,
                verdict=verdict.verdict,
                trouble=verdict.trouble,
                notes=list(verdict.notes),
                doing=verdict.doing,
            )
        )
    return found
