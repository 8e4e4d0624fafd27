"""Findings on compiles: stuck, one by one, on every call, most of the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.formats.durations import seconds as seconds_in
from jaxmon.formats.layout import counted, duration, share_of_time, times
from jaxmon.report.findings.cache import NO_CACHE
from jaxmon.report.findings.finding import Finding
from jaxmon.report.findings.warm_starts import cold_requests
from jaxmon.report.findings.words import WHY


_EFFECT_SECONDS = 0.0005
_MOST_EVIDENCE = 3
_WORTH_A_LINE = 0.1


def stuck(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect a stuck compile."""
    longest = snapshot.compiling.oldest_seconds
    late = longest > seconds_in(snapshot.limits.stuck_after)
    if snapshot.compiling.count and late:
        yield Finding(
            "compile_stuck",
            "",
            f"A compile has been running for {duration(longest)}.",
            (),
            "Large unrolled loops compile slowly: use jax.lax.scan. If other "
            "processes are waiting too, check which rank runs a different program.",
        )


def operations(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect time spent compiling eager operations."""
    limits = snapshot.limits
    inside = [one for one in snapshot.functions if one.internal and one.built]
    took = sum(one.compile_time for one in inside)
    causes = Counter[str]()
    for one in inside:
        causes.update(one.recompiles)
    recompiled = causes.total()
    most = took >= limits.compile_share * snapshot.compile_time
    slow = took >= seconds_in(limits.operations_slow) and most
    observed = snapshot.process.observed_seconds
    often = (
        recompiled >= limits.recompile_scattered and took >= limits.time_part * observed
    )
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
        known = cause in WHY and cause != "new_function"
        why = f", mostly because {WHY[cause]}" if known else ""
        finding += f", {recompiled:,} of them recompiles{why}"
    short = (f"{_short(one.name)} {one.built}" for one in inside[:_MOST_EVIDENCE])
    lines = _lines(snapshot, took)
    yield Finding(
        "operations",
        "",
        f"{finding}.",
        (
            ", ".join(short),
            *(f"{line}: {duration(seconds)}" for line, seconds in lines),
        ),
        "Move them into a jitted function; for set-up code and post-processing, "
        "NumPy works too.",
        where=lines[0][0] if lines else "",
        seconds=took,
    )


def _lines(snapshot: Snapshot, took: float) -> list[tuple[str, float]]:
    """Return the lines that compile much of *took*, other than calls of functions."""
    period = snapshot.time.period
    users = {one.name for one in snapshot.functions if not one.internal}
    calls = {one.place for one in period.places if one.function}
    # A library may call the function, as equinox.filter_jit does.
    calls |= {one.place for one in snapshot.recompiles if one.function in users}
    return [
        (line, min(seconds, took))
        for line, seconds in period.lines("compile")[:_MOST_EVIDENCE]
        if line not in calls and seconds >= _WORTH_A_LINE * took
    ]


def effects(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect functions that leave the fast path on every call."""
    missed = {
        event.function
        for event in snapshot.of_kind("miss")
        if event.details.get("reason") == "effects"
    }
    for function in snapshot.functions:
        if function.name in missed and function.misses >= snapshot.limits.effect_misses:
            yield Finding(
                "effects",
                function.name,
                f"{function.name} left the fast path {times(function.misses)}, because "
                "it has an effect, such as jax.debug.print or io_callback.",
                (),
                "Each such call costs half a millisecond on the host, and what the "
                "callback takes; remove the effect where time matters.",
                where=snapshot.time.period.calls(function.name),
                seconds=min(
                    function.misses * _EFFECT_SECONDS,
                    snapshot.process.observed_seconds,
                ),
            )


def compile_dominated(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect programs that mostly compile. The finding on requests that wait for that says
    more.
    """
    observed, took = snapshot.process.observed_seconds, snapshot.compile_time
    known = any(one.reason in NO_CACHE for one in snapshot.cache.obstacles)
    rest = took - sum(one.seconds for one in cold_requests(snapshot))
    limits = snapshot.limits
    if observed < seconds_in(limits.compile_settled) or known:
        return
    if rest < limits.compile_share * observed:
        return
    recompiling = sum(
        one.recompile_time(cause)
        for one in snapshot.functions
        for cause in one.recompiles
    )
    yield Finding(
        "compile_share",
        "",
        f"Compiles took {duration(took)}, {share_of_time(took, observed)}.",
        (),
        "Warm up before the work starts, or reuse compiled programs between runs: "
        "set JAX_COMPILATION_CACHE_DIR.",
        seconds=max(rest - recompiling, 0.0),
    )


def _short(name: str) -> str:
    return name.rpartition(".")[2]
