"""
Rules about compiles: what is recompiled, takes long, or is compiled one by one.

The constants here are the thresholds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jaxmon.report.advice.words import WHY, recompile_advice
from jaxmon.report.layout import counted, duration, share, times
from jaxmon.report.model import Advice, Function, Recompile, Snapshot


STORM = 5
"""Recompiles of one function for one cause that may be no accident."""

_LATELY_SECONDS = 600.0
_STORM_OF_CALLS = 0.01
_STORM_OF_TIME = 0.005
_SCATTERED = 20
_SCATTERED_OF_TIME = 0.05
_STUCK_SECONDS = 300.0
_OPERATIONS_SECONDS = 5.0
_CACHE_WORTH_SECONDS = 10.0
_NO_CACHE = ("disabled", "no_directory", "below_threshold")
_COMPILE_SHARE = 0.2
_SETTLED_SECONDS = 60.0
_EFFECT_MISSES = 100
_MOST_EVIDENCE = 3


def recompiles(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect functions that keep recompiling."""
    for function in snapshot.functions:
        for cause, count in _by_count(function):
            if function.internal or not _is_storm(function, cause, snapshot):
                continue
            why = WHY.get(cause)
            yield Advice(
                "recompile",
                function.name,
                f"{function.name} was recompiled {times(count)}"
                + _how_many_lately(function, cause, snapshot)
                + (f" because {why}" if why else "; the cause is unknown")
                + f". Compiling it took {duration(function.compile_time)}.",
                _differences(snapshot, function.name, cause),
                recompile_advice(cause),
            )


def scattered(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect many functions that recompile a few times each."""
    few = [
        one
        for one in snapshot.functions
        if one.recompiles
        and not one.internal
        and not any(_is_storm(one, cause, snapshot) for cause in one.recompiles)
    ]
    causes = Counter[str]()
    for one in few:
        causes.update(one.recompiles)
    count, took = causes.total(), sum(one.compile_time for one in few)
    observed = snapshot.process.observed_seconds
    if count < _SCATTERED or took < _SCATTERED_OF_TIME * observed:
        return
    cause = causes.most_common(1)[0][0]
    why = f", mostly because {WHY[cause]}" if cause in WHY else ""
    yield Advice(
        "recompiles",
        "",
        f"{counted(len(few), 'function')} were recompiled, {count:,} times in "
        f"all{why}. Their compiles took {duration(took)}.",
        (),
        recompile_advice(cause),
    )


def stuck(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect a stuck compile."""
    longest = snapshot.compiling.oldest_seconds
    if snapshot.compiling.count and longest >= _STUCK_SECONDS:
        yield Advice(
            "compile_stuck",
            "",
            f"A compile has been running for {duration(longest)}.",
            (),
            "Large unrolled loops compile slowly: use jax.lax.scan. If other "
            "processes are waiting too, check which rank runs a different program.",
        )


def operations(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect time spent compiling eager operations."""
    inside = [one for one in snapshot.functions if one.internal and one.built]
    took = sum(one.compile_time for one in inside)
    causes = Counter[str]()
    for one in inside:
        causes.update(one.recompiles)
    recompiled = causes.total()
    most = took >= _COMPILE_SHARE * snapshot.compile_time
    slow = took >= _OPERATIONS_SECONDS and most
    observed = snapshot.process.observed_seconds
    often = recompiled >= _SCATTERED and took >= _SCATTERED_OF_TIME * observed
    if not slow and not often:
        return
    built = sum(one.built for one in inside)
    finding = (
        f"Eager operations were compiled one by one: "
        f"{counted(built, 'program')} in {duration(took)}"
    )
    if often:
        cause = causes.most_common(1)[0][0]
        # JAX creates a new function for each set of options of an operation.
        told = cause in WHY and cause != "new_function"
        why = f", mostly because {WHY[cause]}" if told else ""
        finding += f", {recompiled:,} of them recompiles{why}"
    short = (f"{_short(one.name)} {one.built}" for one in inside[:_MOST_EVIDENCE])
    yield Advice(
        "operations",
        "",
        f"{finding}.",
        (", ".join(short),),
        "Move them into a jitted function; for set-up code and post-processing, "
        "NumPy works too.",
    )


def effects(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect functions that leave the fast path on every call."""
    missed = {
        event.function
        for event in snapshot.of_kind("miss")
        if event.details.get("reason") == "effects"
    }
    for function in snapshot.functions:
        if function.name in missed and function.misses >= _EFFECT_MISSES:
            yield Advice(
                "effects",
                function.name,
                f"{function.name} left the fast path {times(function.misses)}, because "
                "it has an effect, such as jax.debug.print or io_callback.",
                (),
                "Each such call costs about half a millisecond on the host; "
                "remove the effect where time matters.",
            )


def cache(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect what prevents persistent cache hits."""
    cache, quick = snapshot.cache, snapshot.compile_time < _CACHE_WORTH_SECONDS
    for obstacle in cache.obstacles:
        # Most programs have no cache, and start quickly.
        if obstacle.reason in _NO_CACHE and quick:
            continue
        yield Advice(
            "cache", obstacle.reason, _sentence(obstacle.message), (), obstacle.advice
        )
    if broken := {kind: n for kind, n in cache.errors.items() if n}:
        told = " and ".join(
            f"{counted(n, f'{kind} error')}" for kind, n in broken.items()
        )
        failed = [e for e in snapshot.of_kind("cache") if e.details.get("operation")]
        yield Advice(
            "cache",
            "errors",
            f"The persistent cache had {told}.",
            tuple(event.message for event in failed[-1:]),
            f"Check space and permissions of {cache.directory or 'its directory'}.",
        )


def compile_dominated(snapshot: Snapshot) -> Iterator[Advice]:
    """Detect programs that mostly compile."""
    observed, took = snapshot.process.observed_seconds, snapshot.compile_time
    known = any(one.reason in _NO_CACHE for one in snapshot.cache.obstacles)
    if observed < _SETTLED_SECONDS or took < _COMPILE_SHARE * observed or known:
        return
    yield Advice(
        "compile_share",
        "",
        f"Compiles took {share(took, observed)} of the time: {duration(took)} of "
        f"{duration(observed)}.",
        (),
        "Warm up before the work starts, or reuse compiled programs between runs: "
        "set JAX_COMPILATION_CACHE_DIR.",
    )


def _is_storm(function: Function, cause: str, snapshot: Snapshot) -> bool:
    """
    Return whether recompiles for that *cause* matter: relative to all calls and the
    whole run, so that a few sizes at startup do not count, or relative to recent time,
    because any fraction becomes small in a long run.
    """
    count, observed = function.recompiles[cause], snapshot.process.observed_seconds
    often = function.calls is None or count >= _STORM_OF_CALLS * function.calls
    long = function.compile_time >= _STORM_OF_TIME * observed
    if count >= STORM and (often or long):
        return True
    lately = _lately(function, cause, snapshot)
    took = sum(one.seconds or 0.0 for one in lately)
    return len(lately) >= STORM and took >= _STORM_OF_TIME * _LATELY_SECONDS


def _lately(function: Function, cause: str, snapshot: Snapshot) -> list[Recompile]:
    since = snapshot.process.now - _LATELY_SECONDS
    return [
        one
        for one in snapshot.recompiles
        if one.function == function.name and one.cause == cause and one.time >= since
    ]


def _how_many_lately(function: Function, cause: str, snapshot: Snapshot) -> str:
    """Return how many of the recompiles are recent, where not all can be."""
    count = len(_lately(function, cause, snapshot))
    if not count or snapshot.process.observed_seconds <= _LATELY_SECONDS:
        return ""
    return f" ({count:,} of them in the last {duration(_LATELY_SECONDS)})"


def _by_count(function: Function) -> list[tuple[str, int]]:
    return sorted(function.recompiles.items(), key=lambda one: -one[1])


def _differences(snapshot: Snapshot, function: str, cause: str) -> tuple[str, ...]:
    """Return the latest distinct differences as text."""
    found: dict[str, None] = {}
    for one in reversed(snapshot.recompiles):
        if one.function == function and one.cause == cause and one.texts:
            found.setdefault(one.texts[0])
            if len(found) == _MOST_EVIDENCE:
                break
    return tuple(found)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
