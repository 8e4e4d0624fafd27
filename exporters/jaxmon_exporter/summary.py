"""
The JSON summary behind the landing page.

`summarise` returns a `Summary`; ``/api/summary`` serves it. Seconds and bytes
throughout, ratios from 0 to 1, `None` for unknown values. Counts are since the
processes started.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, Sample
from jaxmon.exposition.parse import labels
from jaxmon.settings import RUNBOOKS
from jaxmon_exporter.polling import Status
from jaxmon_exporter.verdict import UNREAD, HostVerdict, ProcessVerdict


class Totals(TypedDict):
    """
    Calls and compiles.

    ``hits`` and ``hit_rate`` are `None`, and ``calls`` is 0, if calls are not counted:
    functions of JAX itself, or the call layer is off. ``compiles`` were built,
    ``loads`` came from the persistent cache, ``failed_compiles`` did neither;
    ``compile_seconds`` adds up all phases.
    """

    calls: float
    hits: float | None
    misses: float
    hit_rate: float | None
    compiles: float
    loads: float
    failed_compiles: float
    recompiles: float
    compile_seconds: float
    errors: float


class FunctionSummary(Totals):
    """
    A function, summed over workers; ``causes`` are those of its recompiles. Functions
    without activity are not listed.
    """

    name: str
    causes: dict[str, float]


class AgentSummary(TypedDict):
    """
    An instrumented process. An unresponsive one has only worker and ``up``.

    ``findings`` are those of ``jaxmon explain --json``, `None` if unknown; ``verdict``
    is what it prints if nothing is to fix, else empty; ``trouble`` says why the
    findings are unknown, empty if they have not been read yet; ``notes`` say why some
    may be missing or wrong. ``observed_seconds`` is what they are about.
    """

    worker: str
    up: bool
    jax: str | None
    platform: str | None
    started: float | None
    resident_bytes: float | None
    compiles_in_progress: float | None
    pid: int | None
    observed_seconds: float | None
    findings: list[dict[str, Any]] | None
    verdict: str
    trouble: str
    notes: list[str]


class FindingsSummary(TypedDict):
    """
    The findings of all processes.

    ``shared`` are those that several processes have in common, with a list of these as
    ``workers``; ``age`` is in seconds, `None` if nothing was read; ``trouble`` says
    why there are none; ``runbooks`` is where the runbooks are.
    """

    shared: list[dict[str, Any]]
    age: float | None
    trouble: str
    runbooks: str


class AcceleratorSummary(TypedDict):
    """
    A device as seen by its driver, for all processes together; ``up`` is `None` if it
    is unknown whether it responds to the driver.
    """

    uuid: str
    index: str
    model: str
    up: bool | None
    utilization: float | None
    memory_used: float | None
    memory_size: float | None
    temperature: float | None
    power: float | None
    power_limit: float | None


class DeviceSummary(TypedDict):
    """A device as one process sees it through JAX."""

    worker: str
    device: str
    platform: str
    kind: str
    uuid: str
    memory_in_use: float | None
    memory_limit: float | None
    live_arrays: float | None
    live_array_bytes: float | None


class CollectorSummary(TypedDict):
    """
    A collector; ``reason`` and ``message`` say why its last poll failed, ``absent``
    that it has nothing to read here, which is normal.
    """

    name: str
    success: bool
    polled: bool
    age: float | None
    duration: float | None
    reason: str
    message: str
    absent: bool
    errors: dict[str, int]


class Summary(TypedDict):
    """A complete snapshot."""

    version: str
    time: float
    run_dir: str
    totals: Totals
    functions: list[FunctionSummary]
    agents: list[AgentSummary]
    findings: FindingsSummary
    accelerators: list[AcceleratorSummary]
    devices: list[DeviceSummary]
    collectors: list[CollectorSummary]


Labels: TypeAlias = dict[str, str]
Rows: TypeAlias = list[tuple[Labels, float]]

_UNKNOWN = ProcessVerdict()
_COMPILE_SUM = f"{catalog.COMPILE_SECONDS.name}_sum"


def summarise(  # noqa: PLR0913 - what a summary consists of
    families: Iterable[Family],
    statuses: Sequence[Status],
    *,
    version: str,
    time: float,
    run_dir: Path,
    verdict: HostVerdict = UNREAD,
) -> Summary:
    """
    Return the summary of *families*; those that it does not need are skipped.

    Args:
        families: of all collectors.
        statuses: of all collectors.
        version: of jaxmon.
        time: Unix time.
        run_dir: where the agents are.
        verdict: the findings on them.
    """
    figures = _Figures(families)
    functions = _functions(figures)
    return Summary(
        version=version,
        time=time,
        run_dir=str(run_dir),
        totals=_totals(functions),
        functions=functions,
        agents=_agents(figures, verdict.processes),
        findings=FindingsSummary(
            shared=verdict.shared,
            age=verdict.age,
            trouble=verdict.trouble,
            runbooks=RUNBOOKS,
        ),
        accelerators=_accelerators(figures),
        devices=_devices(figures),
        collectors=[_collector(status) for status in statuses],
    )


class _Figures:
    """Samples by metric, their labels parsed on demand."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._samples: dict[str, list[Sample]] = defaultdict(list)
        for family in families:
            self._samples[family.metric.name] += family.samples

    def rows(self, metric: Metric, sample: str | None = None) -> Rows:
        """
        Return labels and value of each series of *metric*; JSON has no NaN.

        Args:
            metric: which one.
            sample: name of the series, where *metric* has several.
        """
        found = []
        for series, value in self._samples.get(metric.name, ()):
            name, _, text = series.partition("{")
            if math.isfinite(value) and name == (sample or metric.name):
                found.append((labels(text), value))
        return found

    def by(self, metric: Metric, *names: str, **only: str) -> dict[str, float]:
        """
        Return values by the joined values of the labels *names*, where *only* holds;
        over other labels they are added up.
        """
        found: dict[str, float] = defaultdict(float)
        for row, value in self.rows(metric):
            if all(row.get(label) == wanted for label, wanted in only.items()):
                found[_key(row, *names)] += value
        return found


def _key(row: Labels, *names: str) -> str:
    return "\0".join(row.get(label, "") for label in names)


def _functions(figures: _Figures) -> list[FunctionSummary]:
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    causes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, metric in (
        ("calls", catalog.JIT_CALLS),
        ("hits", catalog.JIT_CACHE_HITS),
        ("misses", catalog.JIT_CACHE_MISSES),
        ("recompiles", catalog.RECOMPILES),
        ("errors", catalog.ERRORS),
    ):
        for row, value in figures.rows(metric):
            sums[row.get("function", "")][key] += value
    for row, value in figures.rows(catalog.COMPILES):
        sums[row.get("function", "")][row.get("outcome", "")] += value
    for row, value in figures.rows(catalog.COMPILE_SECONDS, _COMPILE_SUM):
        sums[row.get("function", "")]["seconds"] += value
    for row, value in figures.rows(catalog.RECOMPILES):
        if value:
            causes[row.get("function", "")][row.get("cause", "")] += value
    return [
        FunctionSummary(
            name=name,
            calls=of["calls"],
            hits=of.get("hits"),
            misses=of["misses"],
            hit_rate=_rate(of.get("hits"), of["calls"]),
            compiles=of["compiled"],
            loads=of["cache_hit"],
            failed_compiles=of["failed"],
            recompiles=of["recompiles"],
            compile_seconds=of["seconds"],
            errors=of["errors"],
            causes=dict(causes[name]),
        )
        for name, of in sorted(sums.items(), key=lambda item: -item[1]["seconds"])
        if any(of.values())
    ]


def _totals(functions: Sequence[FunctionSummary]) -> Totals:
    known = [function["hits"] for function in functions if function["hits"] is not None]
    hits = sum(known) if known else None
    calls = sum(function["calls"] for function in functions)
    return Totals(
        calls=calls,
        hits=hits,
        misses=sum(function["misses"] for function in functions),
        hit_rate=_rate(hits, calls),
        compiles=sum(function["compiles"] for function in functions),
        loads=sum(function["loads"] for function in functions),
        failed_compiles=sum(function["failed_compiles"] for function in functions),
        recompiles=sum(function["recompiles"] for function in functions),
        compile_seconds=sum(function["compile_seconds"] for function in functions),
        errors=sum(function["errors"] for function in functions),
    )


def _rate(hits: float | None, calls: float) -> float | None:
    return hits / calls if hits is not None and calls else None


def _agents(
    figures: _Figures, verdicts: Mapping[str, ProcessVerdict]
) -> list[AgentSummary]:
    runtimes = {
        row.get("worker", ""): row for row, _ in figures.rows(catalog.RUNTIME_INFO)
    }
    started = figures.by(catalog.PROCESS_START_TIME_SECONDS, "worker")
    resident = figures.by(catalog.PROCESS_RESIDENT_MEMORY_BYTES, "worker")
    compiling = figures.by(catalog.COMPILES_IN_PROGRESS, "worker")
    return [
        AgentSummary(
            worker=worker,
            up=bool(up),
            jax=runtimes.get(worker, {}).get("jax"),
            platform=runtimes.get(worker, {}).get("platform"),
            started=started.get(worker),
            resident_bytes=resident.get(worker),
            compiles_in_progress=compiling.get(worker),
            pid=verdict.pid,
            observed_seconds=verdict.observed_seconds,
            findings=verdict.findings,
            verdict=verdict.verdict,
            trouble=verdict.trouble,
            notes=list(verdict.notes),
        )
        for worker, up in figures.by(catalog.AGENT_UP, "worker").items()
        for verdict in [verdicts.get(worker, _UNKNOWN)]
    ]


def _accelerators(figures: _Figures) -> list[AcceleratorSummary]:
    up = figures.by(catalog.ACCELERATOR_UP, "uuid")
    used = figures.by(catalog.ACCELERATOR_MEMORY_USED_BYTES, "uuid")
    size = figures.by(catalog.ACCELERATOR_MEMORY_SIZE_BYTES, "uuid")
    busy = figures.by(catalog.ACCELERATOR_UTILIZATION_RATIO, "uuid")
    power = figures.by(catalog.ACCELERATOR_POWER_WATTS, "uuid")
    limit = figures.by(catalog.ACCELERATOR_POWER_LIMIT_WATTS, "uuid")
    heat = figures.by(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, "uuid", sensor="gpu")
    return [
        AcceleratorSummary(
            uuid=row["uuid"],
            index=row["index"],
            model=row["model"],
            up=_flag(up.get(row["uuid"])),
            utilization=busy.get(row["uuid"]),
            memory_used=used.get(row["uuid"]),
            memory_size=size.get(row["uuid"]),
            temperature=heat.get(row["uuid"]),
            power=power.get(row["uuid"]),
            power_limit=limit.get(row["uuid"]),
        )
        for row, _ in figures.rows(catalog.ACCELERATOR_INFO)
    ]


def _flag(value: float | None) -> bool | None:
    return None if value is None else bool(value)


def _devices(figures: _Figures) -> list[DeviceSummary]:
    pair = ("worker", "device")
    in_use = figures.by(catalog.DEVICE_MEMORY_BYTES, *pair, kind="in_use")
    limit = figures.by(catalog.DEVICE_MEMORY_BYTES, *pair, kind="limit")
    arrays = figures.by(catalog.LIVE_ARRAYS, *pair)
    array_bytes = figures.by(catalog.LIVE_ARRAY_BYTES, *pair)
    return [
        DeviceSummary(
            worker=row.get("worker", ""),
            device=row.get("device", ""),
            platform=row.get("platform", ""),
            kind=row.get("device_kind", ""),
            uuid=row.get("uuid", ""),
            memory_in_use=in_use.get(_key(row, *pair)),
            memory_limit=limit.get(_key(row, *pair)),
            live_arrays=arrays.get(_key(row, *pair)),
            live_array_bytes=array_bytes.get(_key(row, *pair)),
        )
        for row, _ in figures.rows(catalog.DEVICE_INFO)
    ]


def _collector(status: Status) -> CollectorSummary:
    return CollectorSummary(
        name=status.name,
        success=status.success,
        polled=status.polled,
        age=status.age,
        duration=status.duration,
        reason=status.reason,
        message=status.message,
        absent=status.absent,
        errors={reason: count for reason, count in status.errors.items() if count},
    )
