"""Compiles: stuck, failed, slow, one by one, most of the time, on every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.facts.process import Snapshot
from jaxmon.facts.status import HostFacts, Reason
from jaxmon.host.formats import durations
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration, share_of_time, times
from jaxmon.limits import Limits
from jaxmon.promql import eq, events, gauge, histogram
from jaxmon.symptoms.alert import COUNT, DEPLOY_NOISE, PROCESS, TICKET, Alert
from jaxmon.symptoms.cache import NO_CACHE
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.reason import reason
from jaxmon.symptoms.recompiles import WHY
from jaxmon.symptoms.requests import cold_requests
from jaxmon.symptoms.symptom import FAILURE, NO_SCREEN, TIME, TOO_LITTLE, Symptom


_EFFECT_SECONDS = 0.0005
_MOST_EVIDENCE = 3
_WORTH_A_LINE = 0.1
_SLOW_SECONDS = 1.0
"""What typical kernels take at most to compile; a bound of the histogram."""


def stuck(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect a stuck compile."""
    compiling = snapshot.compiling
    text = _stuck(compiling.oldest_seconds, snapshot.limits)
    if compiling.count and text:
        yield Finding(
            "compile_stuck",
            "",
            f"A {text}",
            (),
            "Large unrolled loops compile slowly: use jax.lax.scan. If other "
            "processes are waiting too, check which rank runs a different program.",
        )


def running_long(facts: HostFacts) -> Iterator[Reason]:
    """Yield processes whose compile does not finish."""
    for one in facts.agents:
        if text := _stuck(one.compile_oldest or 0.0, facts.limits):
            yield reason("compile_stuck", TICKET, f"a {text}", [one.worker])


def _stuck(age: float, limits: Limits) -> str:
    late = age > seconds_in(limits.stuck_after)
    return f"compile has been running for {duration(age)}." if late else ""


def compile_stuck(limits: Limits) -> Alert:
    """Alert on a compile that does not finish."""
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS).max(*PROCESS)
    return Alert(
        expr=oldest > durations.seconds(limits.stuck_after),
        severity=TICKET,
        description="A compile is stuck.",
        summary=(
            "A process of job {{ $labels.job }} on {{ $labels.instance }} "
            "{{ with $labels.worker }}(worker {{ . }}) {{ end }}has been compiling one "
            "program for {{ $value | humanizeDuration }}."
        ),
    )


def compile_failed(limits: Limits) -> Alert:
    """Alert on a function whose compiles fail."""
    window = limits.compile_window
    failed = events.COMPILES.within(window, eq("outcome", "failed"))
    return Alert(
        expr=failed.sum("job", "function") >= limits.compile_failures,
        severity=TICKET,
        description="Compiles of a function fail; calls that need them raise.",
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} failed to "
            f"compile {COUNT} times in {window}."
        ),
    )


def dominated(snapshot: Snapshot) -> Iterator[Finding]:
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


def compile_slow(limits: Limits) -> Alert:
    """Alert on a service whose compiles take long; requests wait for them."""
    window = limits.compile_window
    compiles = histogram(
        catalog.COMPILE_SECONDS, eq("phase", "backend_compile"), rare=True
    )
    # A program of a training run may compile for minutes, once, and a server compiles
    # what it starts with.
    serving = gauge(catalog.REQUESTS_IN_PROGRESS).max("job")
    warm = gauge(catalog.UPTIME_SECONDS) > 2 * durations.seconds(window)
    number, quick = (
        one.increase(window).and_(warm, *PROCESS).sum("job")
        for one in (compiles.count, compiles.at_most(_SLOW_SECONDS))
    )
    # Two series of each function, where a quantile would read every bucket. Of a warm
    # process, the one compile with which a series begins does not matter.
    slow = promql.ratio(number - quick.or_(number * 0), number)
    return Alert(
        expr=(slow > limits.compile_slow).and_(number >= limits.compiles).and_(serving),
        severity=TICKET,
        description="Compiles of a service are many and slow; requests wait for them.",
        summary=(
            "{{ $value | humanizePercentage }} of the compiles of job "
            f"{{{{ $labels.job }}}} in the last {window} took longer than "
            f"{_SLOW_SECONDS:g} s."
        ),
        labels=DEPLOY_NOISE,
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


def _short(name: str) -> str:
    return name.rpartition(".")[2]


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


SYMPTOMS = (
    Symptom(
        *("compile_stuck", "F1", "A compile does not finish.", FAILURE),
        *(stuck, catalog.COMPILE_OLDEST_SECONDS, "On-call: Oldest compile in progress"),
        rule=("JaxmonCompileStuck", compile_stuck),
        reason=running_long,
    ),
    Symptom(
        *("operations", "F1", "Eager operations are compiled one by one.", TIME),
        *(operations, catalog.COMPILE_SECONDS, "Debug: Compile time by function"),
        missing="what it costs is in JaxmonCompileSlow",
        other_runbook="JaxmonColdStarts",
    ),
    Symptom(
        *("effects", "F1", "Calls leave the fast path for an effect.", TIME),
        *(effects, catalog.JIT_CACHE_MISSES, "Debug: Cache misses by function"),
        missing=TOO_LITTLE,
    ),
    Symptom(
        *("compile_share", "F1", "Compiles take much of the time.", TIME),
        *(dominated, catalog.COMPILE_SECONDS, "Debug: Compile time by function"),
        missing="what it costs is in JaxmonCompileSlow",
        other_runbook="JaxmonColdStarts",
    ),
    Symptom(
        *("compile_slow", "F1", "Compiles of a service are many and slow."),
        rule=("JaxmonCompileSlow", compile_slow),
        missing="screens have the sum of compiles, not each of them",
    ),
    Symptom(
        *("compile_failed", "F1", "Compiles of a function fail."),
        rule=("JaxmonCompileFailed", compile_failed),
        missing=NO_SCREEN,
    ),
)
