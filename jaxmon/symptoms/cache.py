"""Compiles that a cache would save: it misses, or processes compile the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jaxmon import catalog, promql
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration
from jaxmon.limits import Limits
from jaxmon.promql import eq, events, gauge
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import PROCESS, TICKET, Alert
from jaxmon.symptoms.symptom import HINT, TIME, Finding, Symptom, ended


_MOST_EVIDENCE = 3
NO_CACHE = (
    *("disabled", "no_directory", "below_threshold"),
    *("private_directory", "varying_flags"),
)
"""Obstacles of programs that do without the cache."""


TOPICS_OF_HOST = ("compiled_together",)
"""Topics of findings that each of several processes has."""


def cache(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect what prevents persistent cache hits."""
    cache, limits, took = snapshot.cache, snapshot.limits, snapshot.compile_time
    observed = snapshot.process.observed_seconds
    # A small program takes long, too, while others hold the processors.
    alone = took * (1 - (snapshot.usual.waiting or 0.0))
    quick = alone < seconds_in(limits.cache_worth)
    short = observed < seconds_in(limits.compile_settled)
    # A directory was prepared, and stays empty: that is not what was meant.
    part = took >= limits.time_worth * observed
    in_vain = part and not cache.writes and not cache.requests.hit
    for obstacle in cache.obstacles:
        of = obstacle.reason
        # Most programs have no cache, and start quickly, or compile as they begin.
        if of in NO_CACHE and quick and not (of == "below_threshold" and in_vain):
            continue
        if of == "no_directory" and short:
            continue
        yield Finding(
            "cache",
            of,
            ended(obstacle.message),
            (f"set at {obstacle.where}",) if obstacle.where else (),
            obstacle.advice,
            obstacle.where,
        )
    if broken := {kind: n for kind, n in cache.errors.items() if n}:
        counts = " and ".join(
            f"{counted(n, f'{kind} error')}" for kind, n in broken.items()
        )
        failed = [e for e in snapshot.of_kind("cache") if e.details.get("operation")]
        yield Finding(
            "cache",
            "errors",
            f"The persistent cache had {counts}.",
            tuple(event.message for event in failed[-1:]),
            f"Check space and permissions of {cache.directory or 'its directory'}.",
        )


def _compiled_together(
    snapshot: Snapshot, neighbours: Sequence[Snapshot]
) -> Iterator[Finding]:
    """
    Detect programs that other processes of the host compiled at the same time.

    The processes of a distributed program are left alone: each of them needs it.
    """
    others = [
        {function.name: function for function in found.functions}
        for found in neighbours
    ]
    devices = max(len(snapshot.memory.devices), 1)
    found = [
        (function, others_too)
        for function in snapshot.users
        if (function.program.devices or 1) <= devices
        and (others_too := sum(_same(function, of) for of in others))
    ]
    seconds = sum(_seconds(function) for function, _ in found)
    if seconds < seconds_in(snapshot.limits.together_slow):
        return
    found.sort(key=lambda pair: -_seconds(pair[0]))
    first, count = found[0]
    action = "Start one process before the others: they load what it has compiled"
    if snapshot.cache.enabled and snapshot.cache.directory:
        action += " from the persistent cache."
    else:
        action += ", if JAX_COMPILATION_CACHE_DIR is the same directory for all."
    yield Finding(
        "compiled_together",
        first.name,
        f"{_compiled_by(first, count)} at the same time.",
        tuple(_compiled_by(*pair) for pair in found[1 : 1 + _MOST_EVIDENCE]),
        action,
        seconds=seconds,
        severity=TICKET if _are_many(first, count, len(others), snapshot) else None,
    )


def _are_many(function: FunctionFact, others: int, of: int, snapshot: Snapshot) -> bool:
    """Return whether *others*, of so many, and this one are enough for the alert."""
    limits, number = snapshot.limits, others + 1
    least = max(limits.thundering, limits.thundering_share * (of + 1))
    age = snapshot.process.now - function.program.finished
    lately = age < 2 * seconds_in(limits.thundering_window)
    spent = number * _seconds(function)
    return lately and number >= least and spent > limits.thundering_seconds


def compared(snapshot: Snapshot) -> Snapshot:
    """Return the part of *snapshot* that its comparison with others needs."""
    return Snapshot(
        functions=tuple(filter(_is_compiled, snapshot.functions)),
        process=snapshot.process,
        memory=snapshot.memory,
        cache=snapshot.cache,
        limits=snapshot.limits,
    )


def shared(
    found: Mapping[str, Sequence[Finding]],
) -> list[tuple[tuple[str, ...], Finding]]:
    """
    Return the findings that concern several processes, once each with its processes,
    most seconds first.

    Args:
        found: findings by process.
    """
    groups: dict[str, list[tuple[str, Finding]]] = {}
    for process, findings in found.items():
        for finding in findings:
            if finding.topic in TOPICS_OF_HOST:
                groups.setdefault(finding.subject, []).append((process, finding))
    worst = []
    for group in groups.values():
        processes, same = zip(*group, strict=True)
        worst.append((processes, max(same, key=lambda finding: finding.seconds)))
    return sorted(worst, key=lambda group: -group[1].seconds)


def is_worth_comparing(snapshot: Snapshot) -> bool:
    """Return whether the process compiled long enough to compare it with others."""
    took = sum(map(_seconds, filter(_is_compiled, snapshot.users)))
    return took >= seconds_in(snapshot.limits.together_slow)


def _compiled_by(function: FunctionFact, others: int) -> str:
    took = duration(_seconds(function))
    return (
        f"{others + 1} processes of this host compiled {function.name}, each for {took}"
    )


def _same(function: FunctionFact, functions: Mapping[str, FunctionFact]) -> bool:
    other = functions.get(function.name)
    if other is None or not _is_compiled(function) or not _is_compiled(other):
        return False
    if function.program.fingerprint != other.program.fingerprint:
        return False
    first, last = sorted((function, other), key=lambda of: of.program.finished)
    return last.program.finished - _seconds(last) < first.program.finished


def _is_compiled(function: FunctionFact) -> bool:
    """Return whether it is known what was compiled, not loaded, and when."""
    compiled, program = function.compiles, function.program
    built = compiled.get("compiled") and not compiled.get("cache_hit")
    return bool(built and program.fingerprint and program.finished)


def _seconds(function: FunctionFact) -> float:
    backend = function.phases.get("backend_compile")
    compiled = function.compiles.get("compiled", 0)
    return backend.seconds / compiled if backend and compiled else 0.0


def _thundering_compilation(limits: Limits) -> Alert:
    window = limits.thundering_window
    by = (*PROCESS, "function")
    compiled = events.COMPILES.within(window, eq("outcome", "compiled"))
    # Ranks of one run compile together, at the price of one.
    alone = gauge(catalog.PROCESS_COUNT).max(*PROCESS).equals(1)
    replicas = compiled.sum(*by).and_(alone, *PROCESS)
    replicas = replicas.record(
        *("function", catalog.COMPILES, f"alone{window}"),
        f"Compiles of a function within {window} by a process without other ranks.",
    )
    programs = gauge(catalog.PROGRAM_INFO).max(*by, "fingerprint")
    # No join: series that are pushed overlap with those that they replace.
    same = programs.and_(replicas, *by).count("job", "function", "fingerprint")
    number = same.max("job", "function").record(
        *("function", catalog.PROGRAM_INFO, f"compiled{window}"),
        f"Processes that compiled the same program within {window}, each for itself.",
    )
    # Of what compiles in a moment there is little to share.
    backend = eq("phase", "backend_compile")
    spent = events.COMPILE_SECONDS.within(window, backend).sum("job", "function")
    spent = spent.record(
        *("function", catalog.COMPILE_SECONDS, f"backend{window}"),
        f"Seconds that the processes of a job compiled a function within {window}.",
    )
    least = recorded.running() * limits.thundering_share
    many = promql.call("clamp_min", least, limits.thundering)
    return Alert(
        expr=number.reaching(many, "job").and_(spent > limits.thundering_seconds),
        keep_for=window,
        description=(
            "Replicas compile the same program, each for itself; a shared persistent "
            "cache would let one do it for all."
        ),
        summary=(
            "{{ $value }} processes of job {{ $labels.job }} compiled the same program "
            f"of function {{{{ $labels.function }}}} within {window}."
        ),
    )


SYMPTOMS = (
    Symptom(
        *("compiled_together", "F6", "Processes compile the same program.", TIME),
        *(None, catalog.COMPILE_SECONDS, "Debug: Compile time by function"),
        rule=("JaxmonThunderingCompilation", _thundering_compilation),
        together=_compiled_together,
        other_runbook="JaxmonColdStartBudgetBurn",
    ),
    Symptom(
        *("cache", "F6", "Something prevents hits of the persistent cache.", HINT),
        *(cache, catalog.PERSISTENT_CACHE_REQUESTS, "Debug: Persistent cache hit rate"),
        missing="an objective can say how often it must hit",
        other_runbook="JaxmonThunderingCompilation",
    ),
)
