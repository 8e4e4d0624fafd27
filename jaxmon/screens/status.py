"""The status of a host, or of one process, out of its latest reading."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmon import catalog
from jaxmon.facts import status
from jaxmon.facts.reading import Key, Reading, in_order
from jaxmon.facts.recent import (
    TEN_MINUTES,
    YOUNG,
    HostFacts,
    Recent,
    batches,
    loops,
    queues,
    requests,
)
from jaxmon.limits import Limits
from jaxmon.settings import RUNBOOKS
from jaxmon.symptoms.answer import Onsets, answer


_UNKNOWN = status.ProcessVerdict()
_SUMMED = (
    *("calls", "misses", "compiles", "loads", "failed_compiles", "recompiles"),
    *("compile_seconds", "errors"),
)
# Of what is known of a host.
_SHOWN = ("requests", "loops", "agents", "accelerators", "devices")
MOST = 500
"""Functions in a summary: two and a half processes of 200 that share none."""
# What agents call JAX's own functions, one by one or all together.
_OF_JAX = ("jax", "jaxlib")


def summarise(  # noqa: PLR0913 - what a status consists of
    now: Reading,
    before: Reading | None = None,
    earlier: Reading | None = None,
    *,
    young: float = YOUNG,
    version: str = "",
    whole: bool = True,
    run_dir: str = "",
    verdict: status.HostVerdict = status.UNREAD,
    collectors: Sequence[status.CollectorSummary] = (),
    limits: Limits | None = None,
    onsets: Onsets | None = None,
) -> status.Summary:
    """
    Return the status as of *now*.

    Args:
        now: the latest reading.
        before: the one to compare it with, of about a minute ago; without it, nothing
            is known of the last minute of processes older than that.
        earlier: likewise, of about ten minutes ago.
        young: age in seconds up to which all that a process did is recent.
        version: of jaxmon.
        whole: whether it is of all processes of a host.
        run_dir: where the agents are.
        verdict: the findings on them.
        collectors: of the sidecar.
        limits: by which it is judged; the defaults if `None`.
        onsets: since when what is wrong is so, to be added to.
    """
    uptimes = now.of(catalog.UPTIME_SECONDS)
    verdict = verdict.current({worker: value for (worker,), value in uptimes.items()})
    recent = Recent(now, before, young=young)
    lately = Recent(now, earlier or before, young=max(young, TEN_MINUTES))
    every = functions(now)
    facts = HostFacts(
        now=now,
        recent=recent,
        lately=lately,
        requests=requests(now, recent),
        requests_lately={route.route: route for route in requests(now, lately)},
        loops=loops(now, recent),
        agents=_processes(now, verdict.processes),
        devices=_devices(now),
        accelerators=_accelerators(now),
        verdict=verdict,
        limits=limits or Limits(),
    )
    return status.Summary(
        version=version,
        time=now.time,
        whole=whole,
        run_dir=run_dir,
        limits=dict(facts.limits.changed),
        answer=answer(facts, onsets),
        queues=tuple(queues(now)),
        batches=tuple(batches(now, recent)),
        errors=tuple(errors(now)),
        totals=totals(every),
        functions=tuple(shown(every)),
        functions_omitted=max(len(every) - MOST, 0),
        findings=status.FindingsSummary(
            verdict.shared, verdict.age, verdict.trouble, RUNBOOKS
        ),
        collectors=tuple(collectors),
        **{name: tuple(getattr(facts, name)) for name in _SHOWN},
    )


def _processes(
    now: Reading, verdicts: Mapping[str, status.ProcessVerdict]
) -> list[status.AgentSummary]:
    """
    Return the processes by slot.

    A slot whose process ended without finishing in a loop is one as well, until another
    takes it: what it ran is missing. So is one that an exception has just ended.
    """
    up = {worker: bool(value) for (worker,), value in now.of(catalog.AGENT_UP).items()}
    died = {
        worker
        for (worker, loop), value in now.of(catalog.AGENT_DIED).items()
        if value and (loop or worker in up or _has_just_crashed(verdicts.get(worker)))
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
        read = {name: getattr(verdict, name) for name in status.ProcessVerdict.fields}
        read["release"] = verdict.release or runtime.get("release", "")
        found.append(
            status.AgentSummary(
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
                **read,
            )
        )
    return found


def _has_just_crashed(verdict: status.ProcessVerdict | None) -> bool:
    seconds = None if verdict is None else verdict.crashed_seconds
    return seconds is not None and seconds < TEN_MINUTES


def _accelerators(now: Reading) -> list[status.AcceleratorSummary]:
    """Return the accelerators of the host, in the order of the driver."""
    up = now.by(catalog.ACCELERATOR_UP, "uuid")
    found: dict[str, Mapping[Key, float]] = {
        "utilization": now.by(catalog.ACCELERATOR_UTILIZATION_RATIO, "uuid"),
        "memory_used": now.by(catalog.ACCELERATOR_MEMORY_USED_BYTES, "uuid"),
        "memory_size": now.by(catalog.ACCELERATOR_MEMORY_SIZE_BYTES, "uuid"),
        "temperature": now.by(
            catalog.ACCELERATOR_TEMPERATURE_CELSIUS, "uuid", sensor="gpu"
        ),
        "power": now.by(catalog.ACCELERATOR_POWER_WATTS, "uuid"),
        "power_limit": now.by(catalog.ACCELERATOR_POWER_LIMIT_WATTS, "uuid"),
    }
    return [
        status.AcceleratorSummary(
            uuid=row["uuid"],
            index=row["index"],
            model=row["model"],
            up=None if (value := up.get(key)) is None else bool(value),
            **_of(key, found),
        )
        for row, _ in now.rows(catalog.ACCELERATOR_INFO)
        for key in [(row["uuid"],)]
    ]


def _devices(now: Reading) -> list[status.DeviceSummary]:
    pair = ("worker", "device")
    found: dict[str, Mapping[Key, float]] = {
        "memory_in_use": now.by(catalog.DEVICE_MEMORY_BYTES, *pair, kind="in_use"),
        "memory_limit": now.by(catalog.DEVICE_MEMORY_BYTES, *pair, kind="limit"),
        "live_arrays": now.by(catalog.LIVE_ARRAYS, *pair),
        "live_array_bytes": now.by(catalog.LIVE_ARRAY_BYTES, *pair),
    }
    return [
        status.DeviceSummary(
            worker=row["worker"],
            device=row["device"],
            platform=row["platform"],
            uuid=row["uuid"],
            kind=row["device_kind"],
            **_of((row["worker"], row["device"]), found),
        )
        for row, _ in now.rows(catalog.DEVICE_INFO)
    ]


def _of(key: Key, found: Mapping[str, Mapping[Key, float]]) -> dict[str, Any]:
    return {name: values.get(key) for name, values in found.items()}


def shown(found: Sequence[status.FunctionSummary]) -> list[status.FunctionSummary]:
    """Return `MOST` of *found*: the program's before JAX's own, then in their order."""
    return sorted(found, key=lambda function: function.internal)[:MOST]


def functions(now: Reading) -> list[status.FunctionSummary]:
    """Return the functions that did anything, by compile time."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    causes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, metric in (
        ("calls", catalog.JIT_CALLS),
        ("hits", catalog.JIT_CACHE_HITS),
        ("misses", catalog.JIT_CACHE_MISSES),
        ("recompiles", catalog.RECOMPILES),
        ("errors", catalog.ERRORS),
        ("seconds", catalog.COMPILE_SECONDS),
    ):
        for labels, value in now.of(metric).items():
            if "cache_retrieval" not in labels[2:]:  # which is no compile
                sums[labels[1]][key] += value
    for (_, function, outcome), value in now.of(catalog.COMPILES).items():
        sums[function][outcome] += value
    for (_, function, cause), value in now.of(catalog.RECOMPILES).items():
        if value:
            causes[function][cause] += value
    return [
        status.FunctionSummary(
            name=name,
            internal=is_internal(name),
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


def errors(now: Reading) -> list[status.ErrorSummary]:
    """Return the errors by function and kind, the most frequent first."""
    counts: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (worker, function, kind), value in now.of(catalog.ERRORS).items():
        if value:
            counts[function, kind][worker] = value
    found = [
        status.ErrorSummary(
            function=function, kind=kind, workers=in_order(of), count=sum(of.values())
        )
        for (function, kind), of in counts.items()
    ]
    return sorted(found, key=lambda error: (-error.count, error.function))


def totals(found: Sequence[status.FunctionSummary]) -> status.Totals:
    """Return the sums of *found*, JAX's own functions included."""
    sums: dict[str, Any] = {
        name: sum(getattr(function, name) for function in found) for name in _SUMMED
    }
    hits = [function.hits for function in found if function.hits is not None]
    whole = sum(hits) if hits else None
    return status.Totals(**sums, hits=whole, hit_rate=_rate(whole, sums["calls"]))


def is_internal(name: str) -> bool:
    """Return whether *name*, as agents label functions, is of one of JAX's own."""
    return name.partition(".")[0] in _OF_JAX


def _rate(hits: float | None, calls: float) -> float | None:
    return hits / calls if hits is not None and calls else None
