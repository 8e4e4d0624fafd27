"""Compiles that a cache would save: it misses, or processes compile the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jaxmon import catalog, promql
from jaxmon.facts.functions import Function
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration
from jaxmon.limits import Limits
from jaxmon.promql import eq, events, gauge
from jaxmon.symptoms.alert import PROCESS, TICKET, Alert
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.symptom import BUDGET, HINT, TIME, Symptom


NO_CACHE = (
    *("disabled", "no_directory", "below_threshold"),
    *("private_directory", "varying_flags"),
)
"""Obstacles of programs that do without the cache."""
TOPICS_OF_HOST = ("compiled_together",)
"""Topics of findings that each of several processes has."""
_MOST_EVIDENCE = 3
_BUDGET_BURN = "JaxmonCacheHitRateBudgetBurn"


def cache(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect what prevents persistent cache hits."""
    cache = snapshot.cache
    quick = snapshot.compile_time < seconds_in(snapshot.limits.cache_worth)
    for obstacle in cache.obstacles:
        # Most programs have no cache, and start quickly.
        if obstacle.reason in NO_CACHE and quick:
            continue
        yield Finding(
            "cache", obstacle.reason, _sentence(obstacle.message), (), obstacle.advice
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


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def compiled_together(
    snapshot: Snapshot, neighbours: Sequence[Snapshot]
) -> Iterator[Finding]:
    """
    Detect programs that other processes of the host compiled at the same time.

    The processes of a distributed program are left alone: each of them needs it.
    """
    others = [{one.name: one for one in found.functions} for found in neighbours]
    devices = max(len(snapshot.memory.devices), 1)
    found = [
        (one, others_too)
        for one in snapshot.functions
        if not one.internal
        and (one.program.devices or 1) <= devices
        and (others_too := sum(_same(one, of) for of in others))
    ]
    seconds = sum(_seconds(one) for one, _ in found)
    if seconds < seconds_in(snapshot.limits.together_slow):
        return
    found.sort(key=lambda one: -_seconds(one[0]))
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
        tuple(_compiled_by(*one) for one in found[1 : 1 + _MOST_EVIDENCE]),
        action,
        seconds=seconds,
        severity=TICKET if _are_many(first, count, len(others), snapshot) else None,
    )


def _are_many(function: Function, others: int, of: int, snapshot: Snapshot) -> bool:
    """Return whether *others*, of so many, and this one are enough for the alert."""
    limits, number = snapshot.limits, others + 1
    least = max(limits.thundering, limits.thundering_share * (of + 1))
    age = snapshot.process.now - function.program.finished
    lately = age < 2 * seconds_in(limits.thundering_window)
    spent = number * _seconds(function)
    return lately and number >= least and spent > limits.thundering_seconds


def compared(snapshot: Snapshot) -> Snapshot:
    """Return the part of *snapshot* that its comparison with others needs."""
    functions = tuple(one for one in snapshot.functions if _is_compiled(one))
    return Snapshot(
        functions=functions,
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
        for one in findings:
            if one.topic in TOPICS_OF_HOST:
                groups.setdefault(one.subject, []).append((process, one))
    worst = [
        (
            tuple(process for process, _ in group),
            max((one for _, one in group), key=lambda one: one.seconds),
        )
        for group in groups.values()
    ]
    return sorted(worst, key=lambda one: -one[1].seconds)


def is_worth_comparing(snapshot: Snapshot) -> bool:
    """Return whether the process compiled long enough to compare it with others."""
    own = [one for one in snapshot.functions if not one.internal and _is_compiled(one)]
    return sum(map(_seconds, own)) >= seconds_in(snapshot.limits.together_slow)


def _compiled_by(function: Function, others: int) -> str:
    took = duration(_seconds(function))
    return (
        f"{others + 1} processes of this host compiled {function.name}, each for {took}"
    )


def _same(function: Function, functions: Mapping[str, Function]) -> bool:
    """Return whether *functions* has the same program, compiled at the same time."""
    other = functions.get(function.name)
    if other is None or not _is_compiled(function) or not _is_compiled(other):
        return False
    if function.program.fingerprint != other.program.fingerprint:
        return False
    first, last = sorted((function, other), key=lambda one: one.program.finished)
    return last.program.finished - _seconds(last) < first.program.finished


def _is_compiled(function: Function) -> bool:
    """Return whether it is known what was compiled, not loaded, and when."""
    compiled, program = function.compiles, function.program
    built = compiled.get("compiled") and not compiled.get("cache_hit")
    return bool(built and program.fingerprint and program.finished)


def _seconds(function: Function) -> float:
    """Return how long a compile of *function* took on average."""
    backend = function.phases.get("backend_compile")
    compiled = function.compiles.get("compiled", 0)
    return backend.seconds / compiled if backend and compiled else 0.0


def thundering_compilation(limits: Limits) -> Alert:
    """Alert on replicas that each compile the same program."""
    window = limits.thundering_window
    by = (*PROCESS, "function")
    compiled = events.COMPILES.within(window, eq("outcome", "compiled"))
    # Ranks of one run compile together, at the price of one.
    alone = gauge(catalog.PROCESS_COUNT).max(*PROCESS).equals(1)
    replicas = compiled.sum(*by).and_(alone, *PROCESS)
    programs = gauge(catalog.PROGRAM_INFO).max(*by, "fingerprint")
    # No join: series that are pushed overlap with those that they replace.
    same = programs.and_(replicas, *by)
    # Of what compiles in a moment there is little to share.
    backend = eq("phase", "backend_compile")
    spent = events.COMPILE_SECONDS.within(window, backend).sum("job", "function")
    number = same.count("job", "function", "fingerprint").max("job", "function")
    processes = gauge(catalog.RUNTIME_INFO).max(*PROCESS).count("job")
    least = processes * limits.thundering_share
    many = promql.call("clamp_min", least, limits.thundering)
    return Alert(
        expr=number.reaching(many, "job").and_(spent > limits.thundering_seconds),
        keep_for=window,
        severity=TICKET,
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
        rule=("JaxmonThunderingCompilation", thundering_compilation),
        together=compiled_together,
        other_runbook="JaxmonColdStarts",
    ),
    Symptom(
        *("cache", "F6", "Something prevents hits of the persistent cache.", HINT),
        *(cache, catalog.PERSISTENT_CACHE_REQUESTS, "Debug: Persistent cache hit rate"),
        missing="an objective can say how often it must hit",
        other_runbook=_BUDGET_BURN,
    ),
    Symptom(
        *("cache_budget", "F6", "The persistent cache misses too often."),
        rule=(_BUDGET_BURN, None),
        missing=BUDGET,
    ),
)
