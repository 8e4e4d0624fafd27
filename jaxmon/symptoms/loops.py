"""Loops: of Python in jitted functions, and such that may not end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.facts.walltime import SHORT_SECONDS
from jaxmon.host.formats.durations import seconds as seconds_in
from jaxmon.host.formats.layout import duration, share, share_of_time, times
from jaxmon.symptoms.compiles import slow
from jaxmon.symptoms.stalls import is_long
from jaxmon.symptoms.symptom import HINT, Finding, Symptom


_ONCE = (
    "jax.lax.scan or jax.lax.fori_loop, which trace and compile the body once; with "
    "the same shapes in each pass, no other change is needed."
)


def _unrolled(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect loops of Python that make a program large, and its compile long."""
    limits, observed = snapshot.limits, snapshot.process.observed_seconds
    yield from _unrolling(snapshot)
    for function in snapshot.users:
        loop, took = function.program.unrolled, function.compile_time
        if loop is None or loop.times < limits.unrolled_times:
            continue
        # Of one program: others may have no loop.
        took /= max(function.built, 1)
        won = took * loop.ratio * (1 - 1 / loop.times)
        part = max(limits.unrolled_time * observed, seconds_in(limits.unrolled_slow))
        if won < part or loop.ratio < limits.unrolled_ratio:
            continue
        yield Finding(
            "unrolled",
            function.name,
            f"Compiling {function.name} took {duration(took)}, "
            f"{share_of_time(took, observed)}: a Python loop at "
            f"{loop.where} puts its body into the program {times(loop.times)}, "
            f"{share(loop.ratio, 1)} of its {loop.operations:,} operations.",
            (),
            f"Use {_ONCE}",
            where=loop.where,
            seconds=won,
        )


def _unrolling(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect one while the first compile lasts, by the lines that JAX was tracing."""
    now, period, limits = snapshot.time.now, snapshot.time.since_start, snapshot.limits
    built = {of.name for of in snapshot.functions if of.built}
    if now.state != "compile" or now.function in {"", *built}:
        return
    traced: dict[str, float] = defaultdict(float)
    for place in period.places:
        # XLA compiles it at the line of the call.
        of_call = snapshot.compiling.count and place.place == now.place
        if (place.state, place.function) == (now.state, now.function) and not of_call:
            traced[place.caller] += place.seconds
    whole, took = sum(traced.values()), period.compiled().get(now.function, 0.0)
    where = max(filter(None, traced), key=traced.__getitem__, default="")
    part = max(limits.unrolled_time * snapshot.process.observed_seconds, SHORT_SECONDS)
    if where and took >= part and traced[where] >= limits.unrolled_ratio * whole:
        yield Finding(
            "unrolled",
            now.function,
            f"Compiling {now.function} has taken {duration(took)} so far: for "
            f"{duration(traced[where])} of it, JAX traced the Python loop around "
            f"{where}, pass by pass.",
            (),
            "The program gets the body once for each pass. If there are many, use "
            f"{_ONCE}",
            where=where,
        )


def first_call(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect one that lasts and loops until a condition is met; that may be right."""
    now, limits = snapshot.time.now, snapshot.limits
    lasts = now.seconds >= seconds_in(limits.stalled_on_a_line)
    is_call = now.state in {"device", "fetch"} and not is_long(now, limits)
    for function in snapshot.users if lasts and is_call else ():
        loop = function.flops.open_loop
        if loop and function.calls == 1 and now.called == (function.name,):
            where = f" at {now.place}" if now.place else ""
            yield Finding(
                "first_call",
                function.name,
                f"The first call of {function.name} has been running for "
                f"{duration(now.seconds)}{where}. It loops until a condition is met, "
                f"at {loop}: if that is never met, it does not end.",
                (),
                "jax.debug.print in the body shows whether it gets on. If it may not "
                "end, count the passes in what it carries, and bound them.",
                where=now.place,
            )


SYMPTOMS = (
    Symptom(
        *("first_call", "F8", "A first call may loop without end.", HINT, first_call),
        missing="whether it ends is not known",
    ),
    slow("unrolled", "A loop of Python makes a program large.", _unrolled),
)
