"""Functions that recompile: why, what it costs, and what to do about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, pairwise
from math import gcd

from jaxmon import catalog, promql
from jaxmon.facts.events import ANOTHER, MADE_ANEW, STATIC_FIELD, Recompile
from jaxmon.facts.functions import FunctionFact
from jaxmon.facts.process import Snapshot
from jaxmon.facts.recent import HostFacts
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import clean, counted, duration, times
from jaxmon.limits import Limits
from jaxmon.promql import events
from jaxmon.symptoms.alert import (
    A_FUNCTION,
    COUNT,
    DEPLOY_NOISE,
    PROCESS,
    TICKET,
    Alert,
    Severity,
)
from jaxmon.symptoms.symptom import TIME, Finding, Symptom


WHY = {
    "shape": "an argument's shape changed",
    "dtype": "an argument's dtype changed",
    "weak_type": (
        "an argument was weakly typed, as a Python number is, in some calls only"
    ),
    "static_argument": "a static argument changed",
    "tree_structure": "an argument's pytree structure changed",
    "sharding": "an argument's sharding changed",
    "committed": "an argument was committed to a device in some calls only",
    "context": "a JAX setting changed",
    "options": "the function was jitted with different options",
    "new_function": "the function object was recreated",
    "evicted": "the program had been evicted from JAX's cache",
}
_PAD = "Pad to a few fixed sizes (buckets)"
WHAT_TO_DO = {
    "shape": f"{_PAD}, or drop the smaller last batch.",
    "dtype": "Convert the argument before the call: jnp.asarray(x, dtype).",
    "weak_type": (
        "Give it the same type from the first call on: jnp.asarray(x, dtype), also for "
        "what is read from a file."
    ),
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
    "loop or method that calls it. Pass what it captures and what changes as "
    "arguments: it would keep the values of its first call.",
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
EVICTED = "evicted"
AVOIDABLE = ("dtype", "weak_type", "sharding", "committed", EVICTED)
"""Causes for which the earlier program would have done; others may need another one."""
MAKE_ONCE = (
    "Make it once, outside of the loop, and pass the same object each time: functions, "
    "and objects whose class has no __eq__ and __hash__ by value, are new ones to JAX."
)
KEEP_AS_ARRAY = (
    "A field that is no array is static, and each of its values needs a program: keep "
    "what changes as an array, jnp.asarray(value), or in a flax.nnx.Variable."
)
_UNKNOWN = (
    "Run briefly with JAX_EXPLAIN_CACHE_MISSES=1 to see JAX's own explanation in "
    "the log."
)
_MOST_EVIDENCE = 3
_SHAPES = re.compile(r"(.*): [^\[\] ]+\[([\d,]*)\] → [^\[\] ]+\[([\d,]*)\]")


def recompiles(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect functions whose recompiles are many, or take long."""
    late = {function.name for function in snapshot.ready.compiles}
    for function in snapshot.users:
        for cause, count in Counter(function.recompiles).most_common():
            # What it compiled after it was ready is a finding of its own.
            if cause == EVICTED or function.name in late:
                continue
            if (found := _not_warmed(function, cause, snapshot)) is not None:
                yield found
                continue
            buckets = cause == "shape" and _has_buckets(function, snapshot)
            if not _is_worth(function, cause, snapshot, meant=buckets):
                continue
            why = _why(cause, _latest(snapshot, function.name, cause))
            took = recompile_time(function, cause, snapshot)
            where = most_often_at(_those(snapshot, function.name, cause))
            called = f", called at {where}," if function.package and where else ""
            yield Finding(
                "recompile",
                function.name,
                f"{function.name}{called} was recompiled {times(count)}"
                + _how_many_lately(function, cause, snapshot)
                + (f" because {why}" if why else "; the cause is unknown")
                + f". This took {duration(took)} of the "
                f"{duration(function.compile_time)} that its compiles took.",
                latest_texts(_those(snapshot, function.name, cause)),
                _advice(snapshot, function.name, cause),
                where=where,
                seconds=took,
                severity=_severity(function, snapshot),
            )


def _not_warmed(
    function: FunctionFact, cause: str, snapshot: Snapshot
) -> Finding | None:
    """Return that a warm-up of *function* lacks what later calls compile for."""
    those, few = _those(snapshot, function.name, cause), snapshot.limits.recompile_few
    line = those[0].place if those else ""
    later = list(dropwhile(lambda of: of.place == line, those))
    # It calls each program a few times; a helper is called no more than that at all.
    warmed = (len(those) - len(later) + 1) * few
    often = (function.calls or 0) >= function.built * few
    if not (often and later and line and cause in WHY):
        return None
    took = sum(of.seconds or 0.0 for of in later)
    much = _is_much(len(later), took, snapshot, avoidable=True)
    alone = later[0].calls <= warmed and all(of.place != line for of in later)
    if not alone or not (much or _is_worth(function, cause, snapshot)):
        return None
    where = most_often_at(later)
    return Finding(
        "recompile",
        function.name,
        f"{function.name} was recompiled {times(len(later))} at {where} because "
        f"{WHY[cause]}, although calls at {line} had compiled other programs of it "
        f"before. This took {duration(took)} of the {duration(function.compile_time)} "
        "that its compiles took.",
        latest_texts(later),
        f"If the calls at {line} are to warm it up, make them with the shapes and "
        f"types of those at {where}: these had no program.",
        where=where,
        seconds=took,
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
        and not any(_is_worth(function, of, snapshot) for of in function.recompiles)
    ]
    causes = Counter[str]()
    for function in few:
        causes.update(function.recompiles)
    took = every_recompile_time(few, snapshot)
    count, observed = causes.total(), snapshot.process.observed_seconds
    limits = snapshot.limits
    if count < limits.recompile_scattered or took < limits.time_part * observed:
        return
    cause = causes.most_common(1)[0][0]
    why = f", mostly because {WHY[cause]}" if cause in WHY else ""
    yield Finding(
        "recompiles",
        "",
        f"{counted(len(few), 'function')} were recompiled, {count:,} times in "
        f"all{why}. This took {duration(took)}.",
        (),
        recompile_advice(cause),
        seconds=took,
    )


def evicted(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect programs that JAX had compiled, and dropped."""
    costs = [
        (recompile_time(function, EVICTED, snapshot), function)
        for function in snapshot.functions
        if EVICTED in function.recompiles
    ]
    costs.sort(key=lambda cost: -cost[0])
    took = sum(seconds for seconds, _ in costs)
    count = sum(function.recompiles[EVICTED] for _, function in costs)
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    often = count >= limits.recompile_storm
    if not _is_much(count, took, snapshot, avoidable=True) and not (
        often and took >= limits.recompile_storm_time * observed
    ):
        return
    events = [event for event in snapshot.recompiles if event.cause == EVICTED]
    yield Finding(
        "evicted",
        "",
        f"JAX compiled {counted(count, 'program')} again that had been evicted from "
        f"its caches. This took {duration(took)}.",
        (
            *latest_texts(events)[:1],
            *(f"{function.name}: {duration(seconds)}" for seconds, function in costs),
        )[:_MOST_EVIDENCE],
        WHAT_TO_DO[EVICTED],
        where=most_often_at(events),
        seconds=took,
    )


def recompile_time(function: FunctionFact, cause: str, snapshot: Snapshot) -> float:
    """
    Return the seconds that recompiles for *cause* took: as measured; of those whose
    events were dropped, as if all compiles of the function took as long.
    """
    measured = [
        recompile.seconds
        for recompile in _those(snapshot, function.name, cause)
        if recompile.seconds is not None
    ]
    count = function.recompiles.get(cause, 0)
    rest = max(count - len(measured), 0) / max(count, 1)
    took = sum(measured) + rest * function.recompile_time(cause)
    return min(took, function.compile_time)


def every_recompile_time(
    functions: Iterable[FunctionFact], snapshot: Snapshot
) -> float:
    """Return the seconds that the recompiles of *functions* took."""
    return sum(
        min(
            sum(recompile_time(function, of, snapshot) for of in function.recompiles),
            function.compile_time,
        )
        for function in functions
    )


def _is_worth(
    function: FunctionFact, cause: str, snapshot: Snapshot, *, meant: bool = False
) -> bool:
    """
    Return whether recompiles for that *cause* matter: by what they cost, from the first
    one on; if there are many, relative to all calls and the whole run, so that a few
    sizes at startup do not count, or relative to recent time, because any fraction
    becomes small in a long run. A function that is created anew and used for long each
    time, as for each value of a sweep, is only worth its time, as are sizes that are
    *meant*.
    """
    count, took = function.recompiles[cause], recompile_time(function, cause, snapshot)
    avoidable = cause in AVOIDABLE or (
        cause == "shape" and not snapshot.requests and _odd(snapshot, function.name) > 0
    )
    much = _is_much(count, took, snapshot, avoidable=avoidable)
    if much or meant:
        return much
    new = cause == "new_function"
    limits = snapshot.limits
    worth = limits.recreated_time if new else limits.recompile_storm_time
    observed, calls = snapshot.process.observed_seconds, function.calls
    often = calls is None or count >= limits.recompile_storm_calls * calls
    long = function.compile_time >= worth * observed
    if count >= limits.recompile_storm and (often or long):
        return True
    lately = _lately(function, cause, snapshot)
    took = sum(recompile.seconds or 0.0 for recompile in lately)
    window = seconds_in(limits.recompile_window)
    return len(lately) >= limits.recompile_storm and took >= worth * window


def _is_much(count: int, took: float, snapshot: Snapshot, *, avoidable: bool) -> bool:
    """
    Return whether *took*, seconds of so many recompiles for one cause, are much. From
    the first on, a tenth of the time or five seconds, if they are *avoidable*: the
    earlier program would have done, or a size is odd. Other sizes and values need
    programs of their own: of these, a few may be meant, and a service compiles for them
    as it starts.
    """
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    # A small program takes long, too, while others hold the processors; several do not
    # by chance.
    alone = took * (1 - (snapshot.usual.waiting or 0.0))
    long = alone >= seconds_in(limits.recompile_slow)
    if not avoidable:
        few = count < limits.recompile_few or snapshot.requests
        return long and not few and took >= limits.compile_share * observed
    least = seconds_in(limits.recompile_noticed)
    noticed = alone >= least or (count >= limits.recompile_few and took >= least)
    return long or (noticed and took >= limits.time_worth * observed)


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


def most_often_at(every: Sequence[Recompile]) -> str:
    """Return the line that caused most of them, empty if unknown."""
    places = Counter(recompile.place for recompile in every if recompile.place)
    return places.most_common(1)[0][0] if places else ""


def _latest(snapshot: Snapshot, function: str, cause: str) -> list[str]:
    return [of.texts[0] for of in _those(snapshot, function, cause) if of.texts][-1:]


def _why(cause: str, texts: Sequence[str]) -> str:
    is_field = any(text.startswith(STATIC_FIELD) for text in texts)
    return "a static field of an argument changed" if is_field else WHY.get(cause, "")


def _advice(snapshot: Snapshot, function: str, cause: str) -> str:
    latest = _latest(snapshot, function, cause)
    if cause != "new_function" and latest and latest[0].endswith((MADE_ANEW, ANOTHER)):
        return MAKE_ONCE
    if cause == "static_argument" and function.startswith("equinox."):
        return EQUINOX
    if cause == "shape" and _grows(snapshot, function):
        return GROWS
    if latest and latest[0].startswith(STATIC_FIELD):
        return KEEP_AS_ARRAY
    # What serves requests has no last batch.
    if cause == "shape" and snapshot.requests:
        return f"{_PAD}."
    return recompile_advice(cause)


def _grows(snapshot: Snapshot, function: str) -> bool:
    number = int(snapshot.limits.recompile_storm)
    every = _resized(snapshot, function)[-number:]
    larger = all(
        len(old) == len(new) and all(x <= y for x, y in zip(old, new, strict=True))
        for _, old, new in every
    )
    follow = all((a[0], a[2]) == (b[0], b[1]) for a, b in pairwise(every))
    return len(every) >= number and larger and follow


def _odd(snapshot: Snapshot, function: str) -> int:
    """Return how often a size had little in common with the last, unlike buckets."""
    bucket = int(snapshot.limits.recompile_bucket)
    return sum(
        len(old) == len(new)
        and any(gcd(x, y) < min(x, y, bucket) for x, y in zip(old, new, strict=True))
        for _, old, new in _resized(snapshot, function)
    )


def _has_buckets(function: FunctionFact, snapshot: Snapshot) -> bool:
    """
    Return whether the sizes are like buckets, fewer than make an alert, and each is
    used again and again, or they came at the start, and no other for as long since.
    """
    every = _those(snapshot, function.name, "shape")
    few = 0 < len(every) < snapshot.limits.recompiles
    # A few that fit no bucket are an accident, as of other functions.
    if not few or _odd(snapshot, function.name) >= snapshot.limits.recompile_storm:
        return False
    since = (function.calls or 0) - every[0].calls if every[0].calls else 0
    if since >= snapshot.limits.recompile_bucket_calls * len(every):
        return True
    quiet, lasts = (
        snapshot.process.now - every[-1].time,
        snapshot.process.observed_seconds,
    )
    return lasts - quiet < quiet <= lasts


def _resized(
    snapshot: Snapshot, function: str
) -> list[tuple[str, list[int], list[int]]]:
    """Return the arguments with another shape, and their sizes before and after."""
    every = _those(snapshot, function, "shape")
    found = [_SHAPES.fullmatch(of.texts[0]) for of in every if of.texts]
    return [(m[1], _sizes(m[2]), _sizes(m[3])) for m in found if m is not None]


def _sizes(shape: str) -> list[int]:
    return [int(size) for size in shape.split(",") if size]


def latest_texts(every: Sequence[Recompile]) -> tuple[str, ...]:
    """Return the latest distinct differences as text, with the line to change."""
    found: dict[str, None] = {}
    for recompile in reversed(every):
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
    worst = worst.record(
        *("function", catalog.RECOMPILES, f"max{window}"),
        f"Recompiles of a function within {window} in the process that has most.",
    )
    return Alert(
        expr=worst > limits.recompiles,
        summary=f"{A_FUNCTION}recompiled {COUNT} times in {window} in one process.",
        labels=DEPLOY_NOISE,
    )


SYMPTOMS = (
    Symptom(
        *("recompile", "F3", "A function recompiles often, or for long.", TIME),
        *(recompiles, catalog.RECOMPILES, "Debug: Recompiles over time"),
        rule=("JaxmonRecompileStorm", _recompile_storm),
    ),
    Symptom(
        *("recompiles", "F3", "Many functions recompile a few times each.", TIME),
        *(scattered, catalog.RECOMPILES, "Debug: Recompiles over time"),
        missing="the weekly report has what compiles cost",
        other_runbook="JaxmonRecompileStorm",
    ),
    Symptom(
        *("evicted", "F3", "Programs are evicted, and compiled again.", TIME),
        *(evicted, catalog.RECOMPILES, "Debug: Recompiles over time"),
        missing="the weekly report has what compiles cost",
        other_runbook="JaxmonRecompileStorm",
    ),
)
