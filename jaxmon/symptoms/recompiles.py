"""Functions that keep recompiling: why, and what to do about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from jaxmon import catalog, promql
from jaxmon.facts.events import Recompile
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import clean, counted, duration, times
from jaxmon.limits import Limits
from jaxmon.promql import events
from jaxmon.symptoms.alert import COUNT, DEPLOY_NOISE, PROCESS, TICKET, Alert, Severity
from jaxmon.symptoms.symptom import TIME, Finding, Symptom


WHY = {
    "shape": "an argument's shape changed",
    "dtype": "an argument's dtype changed",
    "weak_type": "a Python number and an array alternated",
    "static_argument": "a static argument changed",
    "tree_structure": "an argument's pytree structure changed",
    "sharding": "an argument's sharding changed",
    "committed": "an argument was committed to a device in some calls only",
    "context": "a JAX setting changed",
    "options": "the function was jitted with different options",
    "new_function": "the function object was recreated",
    "evicted": "the program had been evicted from JAX's cache",
}
WHAT_TO_DO = {
    "shape": "Pad to a few fixed sizes (buckets), or drop the smaller last batch.",
    "dtype": "Convert the argument before the call: jnp.asarray(x, dtype).",
    "weak_type": "Always pass an array: jnp.asarray(x, dtype) before the call.",
    "static_argument": (
        "Make it an ordinary argument, or limit it to a few values; objects need "
        "value-based __eq__ and __hash__."
    ),
    "tree_structure": "Always pass the same keys, lengths and Nones; fill any gaps.",
    "sharding": "Place the argument the same way each time, with jax.device_put.",
    "committed": "Place the argument with jax.device_put in every call, or in none.",
    "context": "Set it once before the first call, or always call within the same "
    "`with` block.",
    "options": "Jit the function once, with one set of options, and keep the result.",
    "new_function": "Create the jitted function, lambda or partial once, outside the "
    "loop or method that calls it.",
    "evicted": (
        "Do not call jax.clear_caches() while the program runs; keep a reference to "
        "the jitted function to keep its programs."
    ),
}
GROWS = (
    "Pad to a few fixed sizes (buckets). It grows from call to call: if it is a cache, "
    "as of keys and values, allocate it in full once, and write into it with "
    "x.at[i].set or jax.lax.dynamic_update_slice."
)
EQUINOX = (
    "For Equinox, whatever is no array is static: pass numbers that change as arrays, "
    "jnp.asarray(step), and the same function objects each time."
)
_UNKNOWN = (
    "Run briefly with JAX_EXPLAIN_CACHE_MISSES=1 to see JAX's own explanation in "
    "the log."
)
_MOST_EVIDENCE = 3
_SHAPES = re.compile(r"(.*): [^\[\] ]+\[([\d,]*)\] → [^\[\] ]+\[([\d,]*)\]")


def recompiles(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect functions that keep recompiling."""
    for function in snapshot.users:
        for cause, count in Counter(function.recompiles).most_common():
            if not _is_storm(function, cause, snapshot):
                continue
            why = WHY.get(cause)
            yield Finding(
                "recompile",
                function.name,
                f"{function.name} was recompiled {times(count)}"
                + _how_many_lately(function, cause, snapshot)
                + (f" because {why}" if why else "; the cause is unknown")
                + f". Compiling it took {duration(function.compile_time)}.",
                _differences(snapshot, function.name, cause),
                _advice(snapshot, function.name, cause),
                where=_most_often_at(snapshot, function.name, cause),
                seconds=function.recompile_time(cause),
                severity=_severity(function, snapshot),
            )


def _severity(function: FunctionFact, snapshot: Snapshot) -> Severity | None:
    """Return that of the alert, which counts all causes."""
    number = sum(len(_lately(function, of, snapshot)) for of in function.recompiles)
    return TICKET if number > snapshot.limits.recompiles else None


def scattered(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect many functions that recompile a few times each."""
    few = [
        function
        for function in snapshot.users
        if function.recompiles
        and not any(_is_storm(function, of, snapshot) for of in function.recompiles)
    ]
    causes = Counter[str]()
    for function in few:
        causes.update(function.recompiles)
    count, took = causes.total(), sum(function.compile_time for function in few)
    observed = snapshot.process.observed_seconds
    limits = snapshot.limits
    if count < limits.recompile_scattered or took < limits.time_part * observed:
        return
    cause = causes.most_common(1)[0][0]
    why = f", mostly because {WHY[cause]}" if cause in WHY else ""
    yield Finding(
        "recompiles",
        "",
        f"{counted(len(few), 'function')} were recompiled, {count:,} times in "
        f"all{why}. Their compiles took {duration(took)}.",
        (),
        recompile_advice(cause),
        seconds=sum(function.recompile_seconds for function in few),
    )


def _is_storm(function: FunctionFact, cause: str, snapshot: Snapshot) -> bool:
    """
    Return whether recompiles for that *cause* matter: relative to all calls and the
    whole run, so that a few sizes at startup do not count, or relative to recent time,
    because any fraction becomes small in a long run. Large programs need only a few
    recompiles to take most of the time. A function that is created anew
    and used for long each time, as for each value of a sweep, is only worth its time.
    """
    new = cause == "new_function"
    limits = snapshot.limits
    worth = limits.recreated_time if new else limits.recompile_storm_time
    count, observed = function.recompiles[cause], snapshot.process.observed_seconds
    calls = function.calls
    often = calls is None or count >= limits.recompile_storm_calls * calls
    long = function.compile_time >= worth * observed
    if count >= limits.recompile_storm and (often or long):
        return True
    mostly = calls is not None and count >= limits.recompile_few_calls * calls
    took = function.recompile_time(cause)
    much = took >= limits.recompile_few_time * observed
    if count >= limits.recompile_few and mostly and much:
        return True
    lately = _lately(function, cause, snapshot)
    took = sum(recompile.seconds or 0.0 for recompile in lately)
    window = seconds_in(limits.recompile_window)
    return len(lately) >= limits.recompile_storm and took >= worth * window


def _those(snapshot: Snapshot, function: str, cause: str) -> list[Recompile]:
    """Return the recompiles of *function* for *cause* that are known, oldest first."""
    key = function, cause
    return [of for of in snapshot.recompiles if (of.function, of.cause) == key]


def _lately(function: FunctionFact, cause: str, snapshot: Snapshot) -> list[Recompile]:
    since = snapshot.process.now - seconds_in(snapshot.limits.recompile_window)
    every = _those(snapshot, function.name, cause)
    return [recompile for recompile in every if recompile.time >= since]


def _how_many_lately(function: FunctionFact, cause: str, snapshot: Snapshot) -> str:
    """Return how many of the recompiles are recent, where not all can be."""
    count = len(_lately(function, cause, snapshot))
    window = seconds_in(snapshot.limits.recompile_window)
    if not count or snapshot.process.observed_seconds <= window:
        return ""
    return f" ({count:,} of them in the last {duration(window)})"


def _most_often_at(snapshot: Snapshot, function: str, cause: str) -> str:
    """Return the line that caused most of them, empty if unknown."""
    every = _those(snapshot, function, cause)
    places = Counter(recompile.place for recompile in every if recompile.place)
    return places.most_common(1)[0][0] if places else ""


def _advice(snapshot: Snapshot, function: str, cause: str) -> str:
    if cause == "static_argument" and function.startswith("equinox."):
        return EQUINOX
    if cause == "shape" and _grows(snapshot, function):
        return GROWS
    return recompile_advice(cause)


def _grows(snapshot: Snapshot, function: str) -> bool:
    """Return whether each of its latest shapes is larger than the one before it."""
    every = _those(snapshot, function, "shape")
    texts = [recompile.texts[0] for recompile in every if recompile.texts]
    number = int(snapshot.limits.recompile_storm)
    found = [_SHAPES.fullmatch(text) for text in texts[-number:]]
    pairs = [match.groups() for match in found if match is not None]
    if len(pairs) < number:
        return False
    larger = all(
        len(old := _sizes(before)) == len(new := _sizes(after))
        and all(x <= y for x, y in zip(old, new, strict=True))
        for _, before, after in pairs
    )
    follow = all(
        (pair[0], pair[2]) == (other[0], other[1]) for pair, other in pairwise(pairs)
    )
    return larger and follow


def _sizes(shape: str) -> list[int]:
    return [int(size) for size in shape.split(",") if size]


def _differences(snapshot: Snapshot, function: str, cause: str) -> tuple[str, ...]:
    """Return the latest distinct differences as text, with the line to change."""
    found: dict[str, None] = {}
    for recompile in reversed(_those(snapshot, function, cause)):
        if recompile.texts:
            where = f"{recompile.place}: " if recompile.place else ""
            found.setdefault(where + recompile.texts[0])
            if len(found) == _MOST_EVIDENCE:
                break
    return tuple(found)


def recompile_advice(cause: str) -> str:
    """Return the advice on recompiles of *cause*."""
    return WHAT_TO_DO.get(cause, _UNKNOWN)


def most_recompiled(facts: HostFacts, workers: Sequence[str]) -> Iterator[str]:
    """Yield which function the processes *workers* recompiled most, if any."""
    recompiled = {
        key[1:]: count
        for key, count in facts.now.of(catalog.RECOMPILES).items()
        if key[0] in workers and count
    }
    if recompiled:
        (function, cause), count = max(recompiled.items(), key=lambda item: item[1])
        why = f" because {WHY[cause]}" if cause in WHY else ""
        yield f"{clean(function)} was recompiled {times(int(count))}{why}."


def _recompile_storm(limits: Limits) -> Alert:
    window = limits.recompile_window
    recompiles = events.RECOMPILES.within(window).sum(*PROCESS, "function")
    # Per process: when all ranks or replicas recompile the same function, each does so
    # once, and so does each of those that follow each other.
    starts = promql.gauge_changes(catalog.PROCESS_START_TIME_SECONDS, window)
    replaced = starts.max(*PROCESS) > 0
    worst = recompiles.unless(replaced, *PROCESS).max("job", "function")
    return Alert(
        expr=worst > limits.recompiles,
        summary=(
            "Function {{ $labels.function }} of job {{ $labels.job }} recompiled "
            f"{COUNT} times in {window} in one process."
        ),
        labels=DEPLOY_NOISE,
    )


SYMPTOMS = (
    Symptom(
        *("recompile", "F3", "A function keeps recompiling.", TIME),
        *(recompiles, catalog.RECOMPILES, "Debug: Recompiles over time"),
        rule=("JaxmonRecompileStorm", _recompile_storm),
    ),
    Symptom(
        *("recompiles", "F3", "Many functions recompile a few times each.", TIME),
        *(scattered, catalog.RECOMPILES, "Debug: Recompiles over time"),
        missing="what it costs is in JaxmonCompileSlow",
        other_runbook="JaxmonRecompileStorm",
    ),
)
