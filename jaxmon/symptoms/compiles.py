"""Compiles: stuck, failed, slow, one by one, most of the time, on every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from jaxmon import catalog
from jaxmon.facts.contents import Folded
from jaxmon.facts.events import Compiling
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.facts.record import summed
from jaxmon.facts.status import Reason
from jaxmon.facts.walltime import PlaceTime
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import counted, duration, share_of_time, times
from jaxmon.limits import Limits
from jaxmon.promql import eq, events, gauge
from jaxmon.symptoms.alert import A_FUNCTION, A_PROCESS, COUNT, PROCESS, TICKET, Alert
from jaxmon.symptoms.cache import NO_CACHE
from jaxmon.symptoms.reason import reason
from jaxmon.symptoms.recompiles import (
    EVICTED,
    WHY,
    every_recompile_time,
    latest_texts,
    most_often_at,
    recompile_advice,
    recompile_time,
)
from jaxmon.symptoms.starts import cold_requests
from jaxmon.symptoms.symptom import (
    FAILURE,
    LINES,
    NO_SCREEN,
    TIME,
    TOO_LITTLE,
    Finding,
    ProcessJudge,
    Symptom,
)


_MOST_EVIDENCE = 3
# Causes that a warm-up of more signatures does not avoid.
_NOT_BY_CALL = frozenset(("new_function", "evicted", "options"))
_WARM = (
    "What the calls had is recorded: add it to the warm-up (`jaxmon signatures export`)"
    ", and check the next release by `jaxmon warmup check`."
)


_CONTROL_FLOW = ("scan", "while", "cond")
_EFFECT_SECONDS = 0.0005
_WORTH_A_LINE = 0.1
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
            tuple(filter(None, (program_size(compiling),))),
            "Large unrolled loops compile slowly: use jax.lax.scan. If other "
            "processes are waiting too, check which rank runs a different program.",
        )


def program_size(of: Compiling) -> str:
    """Return what XLA compiles, and where most of that comes from; empty if unknown."""
    if not of.equations:
        return ""
    most = f", {of.most:,} of them from {of.where}" if of.where else ""
    return f"XLA compiles {of.function}: {of.equations:,} equations{most}."


def _running_long(facts: HostFacts) -> Iterator[Reason]:
    for agent in facts.agents:
        if text := _stuck(agent.compile_oldest or 0.0, facts.limits):
            yield reason("compile_stuck", TICKET, f"a {text}", [agent.worker])


def _stuck(age: float, limits: Limits) -> str:
    late = age > seconds_in(limits.stuck_after)
    return f"compile has been running for {duration(age)}." if late else ""


def _compile_stuck(limits: Limits) -> Alert:
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS).max(*PROCESS)
    return Alert(
        expr=oldest > seconds_in(limits.stuck_after),
        summary=A_PROCESS
        + "has been compiling one program for {{ $value | humanizeDuration }}.",
    )


def _compile_failed(limits: Limits) -> Alert:
    window = limits.compile_window
    failed = events.COMPILES.within(window, eq("outcome", "failed"))
    failed = failed.sum("job", "function").record(
        *("function", catalog.COMPILES, f"failed{window}"),
        f"Compiles of a function that failed within {window}.",
    )
    return Alert(
        expr=failed >= limits.compile_failures,
        description="Compiles of a function fail; calls that need them raise.",
        summary=f"{A_FUNCTION}failed to compile {COUNT} times in {window}.",
    )


def _dominated(snapshot: Snapshot) -> Iterator[Finding]:
    """
    Detect programs that mostly compile. The finding on requests that wait for that says
    more.
    """
    observed, took = snapshot.process.observed_seconds, snapshot.compile_time
    lacks_cache = any(of.reason in NO_CACHE for of in snapshot.cache.obstacles)
    rest = took - sum(finding.seconds for finding in cold_requests(snapshot))
    limits = snapshot.limits
    if observed < seconds_in(limits.compile_settled) or lacks_cache:
        return
    if rest < limits.compile_share * observed:
        return
    recompiling = every_recompile_time(snapshot.users, snapshot)
    yield Finding(
        "compile_share",
        "",
        f"Compiles took {duration(took)}, {share_of_time(took, observed)}: first "
        f"compiles {duration(took - recompiling)}, recompiles {duration(recompiling)}.",
        (),
        "Warm up before the work starts, or reuse compiled programs between runs: "
        "set JAX_COMPILATION_CACHE_DIR.",
        seconds=max(rest - recompiling, 0.0),
    )


def _folded(snapshot: Snapshot) -> Iterator[Finding]:
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    part = max(limits.time_worth * observed, seconds_in(limits.recompile_noticed))
    now = snapshot.compiling
    age, found = now.oldest_seconds, now.folded
    if found and part <= age <= found.steps / limits.folded_steps:
        so_far = f"XLA has been compiling {now.function} for {duration(age)}: it may be"
        yield _of_constants(found, now.function, so_far, "computing", 0.0)
    for function in snapshot.users:
        found = function.program.folded
        if found is None:
            continue
        took = function.compile_time / max(function.built, 1)
        few = found.steps < limits.folded_steps * took
        took *= min(found.programs, function.built)
        if few or took < part:
            continue
        all_of_it = f"{duration(took)}, {share_of_time(took, observed)}: XLA"
        compiled = f"Compiling {function.name} took {all_of_it}"
        yield _of_constants(found, function.name, compiled, "computes", took)


def _of_constants(
    found: Folded, function: str, compiled: str, computes: str, seconds: float
) -> Finding:
    where = f" at {found.where}" if found.where else ""
    return Finding(
        "folded",
        function,
        f"{compiled} {computes} {found.operation}{where} meanwhile, element by "
        "element, because it needs no argument, only constants: "
        f"{found.constant} and what is made of it.",
        (f"called from {', '.join(found.callers)}",) if found.callers else (),
        "Pass the array as an argument of the jitted function; or compute what depends "
        "on it alone once, outside, and pass the result.",
        where=found.where,
        seconds=seconds,
    )


def _control_flow(snapshot: Snapshot) -> list[FunctionFact]:
    least = snapshot.limits.recompile_storm
    return [
        function
        for function in snapshot.functions
        if function.internal
        and function.name.startswith("jax.")
        and function.name.rpartition(".")[2] in _CONTROL_FLOW
        and function.built - function.recompiles.get(EVICTED, 0) >= least
    ]


def control_flow(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect loops and branches whose body is a new function at each call."""
    found, limits = _control_flow(snapshot), snapshot.limits
    took = sum(function.compile_time for function in found)
    part = limits.time_worth * snapshot.process.observed_seconds
    if not found or took < max(part, seconds_in(limits.recompile_noticed)):
        return
    names = " and ".join(f"jax.lax.{of.name.rpartition('.')[2]}" for of in found)
    built, lines = sum(of.built for of in found), _lines(snapshot, took)
    yield Finding(
        "control_flow",
        "",
        f"{names} {'was' if len(found) == 1 else 'were'} compiled {times(built)} "
        f"outside of jit, which took {duration(took)}: a body that is a new function, "
        "or has other shapes, needs another program.",
        tuple(f"{line}: {duration(seconds)}" for line, seconds in lines),
        "Call them in a jitted function; or define the body once, outside of the loop, "
        "and pass what changes as an operand.",
        where=lines[0][0] if lines else "",
        seconds=took,
    )


def _late(snapshot: Snapshot) -> Iterator[Finding]:
    ready, now = snapshot.ready, snapshot.process.now
    window = seconds_in(snapshot.limits.after_ready_window)
    when = "jaxmon.ready()" if ready.announced else "its warm-up"
    worth = snapshot.limits.time_worth * snapshot.process.observed_seconds
    for late in ready.compiles:
        # Operations outside of jit take milliseconds, unless requests have many.
        if late.internal and late.seconds < worth:
            continue
        those = [
            event
            for event in snapshot.recompiles
            if event.function == late.name and event.time >= ready.since
        ]
        causes = Counter(event.cause for event in those)
        cause = causes.most_common(1)[0][0] if causes else ""
        waited = f", and {counted(late.requests, 'request')} waited"
        loaded = f"; {late.loaded:,} came from the persistent cache"
        yield Finding(
            "after_ready",
            late.name,
            f"{late.name} was compiled {times(late.count)} after {when}, which took "
            f"{duration(late.seconds)}{waited if late.requests else ''}"
            f"{loaded if late.loaded else ''}.",
            latest_texts(those),
            _late_advice(cause),
            where=most_often_at(those),
            seconds=late.seconds,
            severity=TICKET if now - late.latest < window else None,
        )


def _compiled_after_ready(limits: Limits) -> Alert:
    window = limits.after_ready_window
    late = events.LATE_COMPILES.within(window).sum("job", "function")
    late = late.record(
        *("function", catalog.COMPILES_AFTER_READY, f"sum{window}"),
        f"Compiles of a function within {window}, in processes that were ready.",
    )
    return Alert(
        expr=late > 0,
        summary=(
            "Processes of job {{ $labels.job }} that were ready compiled function "
            f"{{{{ $labels.function }}}} {COUNT} times in {window}."
        ),
    )


def _late_advice(cause: str) -> str:
    """Return the advice on late compiles; without a *cause*, it is the first one."""
    general = f"{recompile_advice(cause)} " if cause in WHY else ""
    return general + ("" if cause in _NOT_BY_CALL else _WARM)


def operations(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect time spent compiling eager operations."""
    limits, other = snapshot.limits, _control_flow(snapshot)
    inside = [
        of for of in snapshot.functions if of.internal and of.built and of not in other
    ]
    took = sum(
        function.compile_time - recompile_time(function, EVICTED, snapshot)
        for function in inside
    )
    # Those that differ, and are as many, belong to models and optimizers, once each.
    often = [of for of in inside if _again(of) >= limits.recompile_scattered]
    built = sum(function.built for function in inside)
    most = took >= limits.compile_share * snapshot.compile_time
    many = built >= limits.operations_many
    slow = took >= seconds_in(limits.operations_slow) and most and many
    observed = snapshot.process.observed_seconds
    if not slow and not (often and took >= limits.time_part * observed):
        return
    finding = (
        f"Eager operations were compiled one by one: "
        f"{counted(built, 'program')} in {duration(took)}"
    )
    if often:
        causes = Counter[str]()
        for function in inside:
            causes.update(function.recompiles)
        cause = causes.most_common(1)[0][0]
        # JAX creates a new function for each set of options of an operation.
        is_explained = cause in WHY and cause != "new_function"
        why = f", mostly because {WHY[cause]}" if is_explained else ""
        finding += f", {causes.total():,} of them recompiles{why}"
    short = (
        f"{function.name.rpartition('.')[2]} {function.built}"
        for function in (often or inside)[:_MOST_EVIDENCE]
    )
    lines, period = _lines(snapshot, took), snapshot.time.period
    spent = _compiling_operations(snapshot)
    again = sum(of.seconds for of in spent if not of.once)
    won = took * again / sum(of.seconds for of in spent) if again else took
    # If that is more, the finding on it says more.
    run = run if (run := period.of("eager")) <= took else 0.0
    yield Finding(
        "operations",
        "",
        f"{finding}.",
        (
            ", ".join(short),
            *(f"{line}: {duration(seconds)}" for line, seconds in lines),
            *([f"they took {duration(run)} more to run"] if run else []),
        ),
        "Move them into a jitted function; for set-up code and post-processing, "
        "NumPy works too.",
        where=lines[0][0] if lines else "",
        seconds=min(won + run, observed),
    )


def _again(function: FunctionFact) -> int:
    """Return how often it was compiled again, although its programs were kept."""
    return sum(function.recompiles.values()) - function.recompiles.get(EVICTED, 0)


def _compiling_operations(snapshot: Snapshot) -> list[PlaceTime]:
    """Return the lines that compiled what is no function of the program."""
    users = {function.name for function in snapshot.users}
    # A library may call the function, as equinox.filter_jit does.
    calls = {of.place for of in snapshot.recompiles if of.function in users} | {""}
    places = (of for of in snapshot.time.period.places if of.state == "compile")
    return [of for of in places if not of.function and of.place not in calls]


def _lines(snapshot: Snapshot, took: float) -> list[tuple[str, float]]:
    """Return the lines that compile much of *took*, other than calls of functions."""
    spent = summed((of.place, of.seconds) for of in _compiling_operations(snapshot))
    if not spent:  # of few looks, those that recompile are known
        names = {function.name for function in snapshot.functions if function.internal}
        events = (of for of in snapshot.recompiles if of.function in names)
        spent = summed((of.place, of.seconds or 0.0) for of in events if of.place)
    found = [
        (line, seconds)
        for line, seconds in sorted(spent.items(), key=lambda item: -item[1])
        if seconds >= _WORTH_A_LINE * took
    ][:_MOST_EVIDENCE]
    # They also did what is no compile of an operation.
    ratio = min(took / max(sum(seconds for _, seconds in found), 1e-9), 1.0)
    return [(line, seconds * ratio) for line, seconds in found]


def spent_by_name(
    functions: Iterable[FunctionFact], snapshot: Snapshot
) -> dict[str, float]:
    """
    Return the seconds of compiles by function. JAX's own are operations of the program:
    they are together, with the line that compiles most of them.
    """
    spent = summed(
        ("" if of.internal else of.name, of.compile_time)
        for of in functions
        if of.built
    )
    if took := spent.pop("", 0.0):
        lines = _lines(snapshot, took)
        at = f", most at {lines[0][0]}" if lines else ""
        spent[f"operations outside of jit{at}"] = took
    return spent


def _callbacks(snapshot: Snapshot) -> Iterator[Finding]:
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    # Of a call that calls back once, `_effects` says more.
    missed = sum(function.misses for function in snapshot.users)
    least = max(limits.callbacks_often, 2 * missed)
    for line in snapshot.transfers.callbacks:
        took = min(line.seconds, observed)
        if line.count < least or took < limits.time_worth * observed:
            continue
        where = f" at {line.place}" if line.place else ""
        yield Finding(
            "callbacks",
            line.place,
            f"Compiled programs ran callbacks in Python {times(line.count)}{where}, "
            f"which took {duration(took)}, {share_of_time(took, observed)}, and the "
            "way there and back.",
            (),
            "Call back rarely: every thousandth step, with jax.lax.cond around it, or "
            "from Python between shorter loops. For a function of NumPy under "
            'jax.vmap, vmap_method="expand_dims" or "broadcast_all" calls it once for '
            "a batch.",
            where=line.place,
            seconds=took,
        )


def _effects(snapshot: Snapshot) -> Iterator[Finding]:
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
                where=snapshot.time.calls(function.name),
                seconds=min(
                    function.misses * _EFFECT_SECONDS, snapshot.process.observed_seconds
                ),
            )


def slow(name: str, sentence: str, judge: ProcessJudge, why: str = LINES) -> Symptom:
    """Return the symptom that compiles take long."""
    return Symptom(
        *(name, "F1", sentence, TIME, judge),
        *(catalog.COMPILE_SECONDS, "Debug: Compile time by function"),
        missing=why,
        other_runbook="JaxmonColdStartBudgetBurn",
    )


_COSTS = "the weekly report has what compiles cost"
SYMPTOMS = (
    Symptom(
        *("after_ready", "F1", "A process compiles after it was ready.", TIME),
        *(_late, catalog.COMPILES_AFTER_READY),
        panel="Serving: Warm-up, and compiles after it",
        rule=("JaxmonWarmupFailed", _compiled_after_ready),
    ),
    Symptom(
        *("compile_stuck", "F1", "A compile is stuck.", FAILURE),
        *(stuck, catalog.COMPILE_OLDEST_SECONDS, "On-call: Oldest compile in progress"),
        rule=("JaxmonCompileStuck", _compile_stuck),
        reason=_running_long,
    ),
    slow("operations", "Eager operations are compiled one by one.", operations, _COSTS),
    slow("control_flow", "Loops are compiled outside of jit.", control_flow, _COSTS),
    Symptom(
        *("effects", "F1", "Calls leave the fast path because of an effect.", TIME),
        *(_effects, catalog.JIT_CACHE_MISSES, "Debug: Cache misses by function"),
        missing=TOO_LITTLE,
    ),
    Symptom(
        *("callbacks", "", "Compiled programs call Python often.", TIME, _callbacks),
        missing=LINES,
        other_runbook="JaxmonTimeLost",
    ),
    slow("folded", "A compile computes operations on constants.", _folded),
    slow("compile_share", "Compiles take much of the time.", _dominated, _COSTS),
    Symptom(
        *("compile_failed", "F1", "Compiles of a function fail."),
        rule=("JaxmonCompileFailed", _compile_failed),
        missing=NO_SCREEN,
    ),
)
