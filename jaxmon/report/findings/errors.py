"""Findings on errors, failed checks and accidental float64."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.events import Event
from jaxmon.facts.marked import Failure
from jaxmon.facts.process import Snapshot
from jaxmon.formats.layout import ago, counted, share, times
from jaxmon.limits import Limits
from jaxmon.report.findings.finding import MOST_OF_A_MESSAGE, Finding, quoted
from jaxmon.report.findings.words import (
    BAD_DEVICE,
    DEVIATION,
    FLOAT64,
    GRADIENTS,
    REQUESTS,
    WARNINGS,
    error_advice,
)


# In JAX's own words: jax/_src/array.py, `_check_if_deleted`.
_DELETED = "Array has been deleted"
_MOST_FAILURES = 3


def errors(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect errors other than out of memory."""
    for function in snapshot.functions:
        kinds = {kind: n for kind, n in function.errors.items() if n and kind != "oom"}
        if not kinds:
            continue
        most = max(kinds, key=lambda kind: kinds[kind])
        listed = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
        listed = most if len(kinds) == 1 else listed
        name = function.name if function.name != "unknown" else "A jitted function"
        latest = _latest(snapshot.of_kind("error"), function.name, most)
        often = times(sum(kinds.values()))
        verdict = f"{name} failed {often}: {listed}."
        if function.name == "unknown" and latest and _DELETED in latest.message:
            verdict = f"Arrays that had been deleted or donated were read {often}."
        yield Finding(
            "error",
            function.name,
            verdict,
            (quoted(latest, snapshot.process.now),) if latest else (),
            error_advice(most, latest.details.get("type") if latest else None),
            where=str(latest.details.get("where") or "") if latest else "",
        )


def many_fail(failed: float, every: float, limits: Limits) -> bool:
    """Return whether *failed* of *every* request are too many."""
    return failed >= max(limits.failed_requests, limits.failed_share * every)


def failed_requests(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect routes whose requests fail."""
    for route in snapshot.requests:
        every = sum(one.count for one in route.finished)
        failed = sum(one.count for one in route.finished if one.outcome == "error")
        if not many_fail(failed, every, snapshot.limits):
            continue
        finding = (
            f"{counted(failed, 'request')} to {route.name} failed, "
            f"{share(failed, every)} of {every:,}."
        )
        now = snapshot.process.now
        latest = (
            f"JAX's latest error, in {one.function}, {quoted(one, now)}"
            for one in snapshot.of_kind("error")[-1:]
        )
        most = sorted(route.failures, key=lambda one: -one.count)
        yield Finding(
            "requests",
            route.name,
            finding,
            (*(_failure(one, now) for one in most[:_MOST_FAILURES]), *latest),
            REQUESTS,
            where=most[0].where if most else "",
        )


def warned(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect warnings of JAX about memory, precision and the backend."""
    for one in snapshot.warnings:
        if one.kind in WARNINGS:
            by = f" in {one.function}" if one.function else ""
            often = f", {times(one.count)}" if one.count > 1 else ""
            yield Finding(
                f"warning_{one.kind}",
                one.function,
                f"JAX warned{by}{often}: {_ended(one.text[:MOST_OF_A_MESSAGE])}",
                (f"at {one.where}",) if one.where else (),
                WARNINGS[one.kind],
                where=one.where,
            )


def float64(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect accidental float64."""
    for function in snapshot.functions:
        if programs := function.numerics.float64_programs:
            finding = (
                f"{function.name} computes in float64 in "
                f"{counted(programs, 'program')}, although no argument is float64."
            )
            yield Finding("float64", function.name, finding, (), FLOAT64)


def double(snapshot: Snapshot) -> Iterator[Finding]:
    """Say that the program computes in float64, because its arguments are."""
    functions = [one for one in snapshot.functions if one.program.double]
    meant = [one for one in functions if not one.numerics.float64_programs]
    if meant:
        first = max(meant, key=lambda one: one.calls or 0)
        more = f", as do {len(meant) - 1} more functions" if len(meant) > 1 else ""
        yield Finding(
            "double",
            first.name,
            f"{first.name} multiplies matrices in float64{more}: jax_enable_x64 is on.",
            (),
            "If that is not meant, look for who switches it on, which may be a "
            "library, and convert the data: float32 takes half the memory, and on "
            "most accelerators a small part of the time.",
        )


def determinism(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect failed checks."""
    events = snapshot.of_kind("determinism")
    for function in snapshot.functions:
        found, name = function.determinism, function.name
        listed = [one for one in events if one.function == name]
        if failed := found.checks.failed:
            finding = (
                f"{name} returned different outputs for the same inputs "
                f"{times(failed)}."
            )
            evidence = [e.message for e in listed if "deviations" in e.details][-1:]
            advice = DEVIATION
            if len(found.devices) == 1:
                [(device, count)] = found.devices.items()
                finding = (
                    f"Outputs of {name} differed {times(count)} on device {device}, "
                    "and on no other."
                )
                advice = BAD_DEVICE
            yield Finding("determinism", name, finding, (*evidence,), advice)
        if failed := found.gradient_checks.failed:
            finding = f"Gradient checks of {name} failed {times(failed)}."
            evidence = [e.message for e in listed if "gradients" in e.message][-1:]
            yield Finding("gradients", name, finding, (*evidence,), GRADIENTS)


def _failure(one: Failure, now: float) -> str:
    """Return what requests failed with, where and how often."""
    what = one.error or "no exception, and no status"
    place = f" at {one.where}" if one.where else ""
    return f"{what}{place}: {times(one.count)}, the latest {ago(now - one.latest)}"


def _ended(text: str) -> str:
    return text if text.endswith((".", "!")) else f"{text}."


def _latest(events: list[Event], function: str, kind: str) -> Event | None:
    fitting = (
        one
        for one in reversed(events)
        if one.function == function and one.details.get("error_kind", kind) == kind
    )
    return next(fitting, None)
