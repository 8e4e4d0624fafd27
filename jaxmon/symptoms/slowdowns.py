"""
Slower than before: in a run, against an earlier one, over weeks and versions.

Of the last minute there is the mean only, and users wait for that. Prometheus has no
samples of a week ago, only sums: it compares means over an hour, of what is long enough
to be a ticket (`Limits.slowdown`) whatever the noise.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.facts.events import Slower
from jaxmon.facts.process import Snapshot
from jaxmon.facts.status import HostFacts, Reason
from jaxmon.host.formats import durations
from jaxmon.host.formats.layout import ago, duration
from jaxmon.promql import Expr, counter, gauge, histogram, recorded
from jaxmon.symptoms.alert import PROCESS, TICKET, Alert, SiteLimits
from jaxmon.symptoms.finding import Finding
from jaxmon.symptoms.reason import reason, said_or_doing
from jaxmon.symptoms.steps import is_late, named
from jaxmon.symptoms.symptom import TIME, Symptom


SECONDS = f"program:{catalog.EXECUTION_SECONDS.name}_sum:rate5m"
SAMPLES = f"program:{catalog.EXECUTION_SECONDS.name}_count:rate5m"
"""Device time of a program's sampled calls, and their number, per second."""
MEAN = f"program:{catalog.EXECUTION_SECONDS.name}:mean1h"
"""Mean device time of a program over an hour."""
VERSIONS = f"job:{catalog.RUNTIME_INFO.name}:versions"
"""Processes of a job by version of JAX and its platform."""
_PROGRAM = ("job", "function", "fingerprint")
_VERSION = ("job", "jax", "jaxlib", "platform_version")
_MEANING = "A function or a loop is slower than before."
_EARLIER = (
    "Look at what changed when it began. If nothing did, look at the device's clocks "
    "and temperature, and for other processes on this host; `jaxmon profile` shows "
    "which operations take the time."
)
_CROWDED = (
    "Other processes took the processors that it runs on: move them elsewhere, or "
    "give this program processors of its own."
)
_PAST_RUN = (
    "Undo one of the changes at a time; `jaxmon baseline` compares two versions in "
    "turn."
)


def slower(snapshot: Snapshot) -> Iterator[Finding]:
    """Detect functions and loops that are slower than before."""
    for one in snapshot.slower:
        if one.recent_seconds <= one.settled_seconds:
            continue
        action = _PAST_RUN if one.against == "past_run" else _EARLIER
        yield Finding(
            "slower",
            one.name,
            _verdict(one, snapshot.process.now),
            (*one.beside, *_changes(one)),
            _CROWDED if one.crowded else action,
            seconds=(one.recent_seconds - one.settled_seconds) * one.calls,
        )


def _verdict(one: Slower, now: float) -> str:
    ratio = one.recent_seconds / max(one.settled_seconds, 1e-9)
    what = f"A step of loop {one.name}" if one.what == "loop" else one.name
    since = ago(max(now - one.since, 0.0))
    when = (
        f"as in the run that ended {since}"
        if one.against == "past_run"
        else f"as before, since {since}"
    )
    why = "; other processes hold the processors" if one.crowded else ""
    return (
        f"{what} takes {ratio:.1f} times as long {when}: "
        f"{duration(one.settled_seconds)} → {duration(one.recent_seconds)}{why}."
    )


def _changes(one: Slower) -> Iterator[str]:
    if one.against == "past_run":
        shapes = f", for the same arguments ({one.shapes})" if one.shapes else ""
        changed = "; ".join(one.changed) or "nothing that jaxmon records"
        yield f"changed: {changed}{shapes}"
    elif one.shapes:
        yield f"for the same arguments: {one.shapes}"


def loops_slow(facts: HostFacts) -> Iterator[Reason]:
    """Yield loops whose steps take longer than before."""
    for one in facts.loops:
        usual, mean = one.usual, one.mean
        if one.age is None or not usual or not mean or is_late(one, facts):
            continue
        if mean > facts.limits.slowdown * usual and one.rate:
            text = (
                f"{named(one)} is slow: a step takes {duration(mean)}, before "
                f"{duration(usual)}."
            )
            yield reason("slower", TICKET, text, one.workers, one.loop)


def slowdown(limits: SiteLimits) -> Iterator[Alert]:
    """Yield tickets: against the run's and the function's past, a week, a version."""
    found = gauge(catalog.SLOWDOWN).max("job", "kind", "name", "against")
    yield Alert(
        expr=found > limits.slowdown,
        for_=limits.slowdown_for,
        severity=TICKET,
        description=_MEANING,
        summary=(
            "{{ $labels.kind | title }} {{ $labels.name }} of job {{ $labels.job }} "
            "takes {{ $value | humanize }} times as long as "
            '{{ if eq $labels.against "past_run" }}in an earlier run.'
            "{{ else }}earlier in its run.{{ end }}"
        ),
    )
    day, week = map(limits.duration, ("1d", "7d"))
    now = recorded(MEAN, labels=_PROGRAM, unit="seconds")
    versions = recorded(VERSIONS, labels=_VERSION, unit="")
    # An upgrade: processes of a version that the job did not have a day ago.
    known = versions.offset(day)
    upgraded = versions.unless(known, *_VERSION).and_(known.max("job"), "job")
    for against, since, back, only in (
        ("last_week", "a week ago", week, None),
        ("version", "before the upgrade", day, upgraded.max("job")),
    ):
        ratio = (now / now.offset(back)).max("job", "function")
        expr = ratio > limits.slowdown
        yield Alert(
            expr=expr if only is None else expr.and_(only, "job"),
            for_=limits.slowdown_for,
            severity=TICKET,
            description=f"{_MEANING} It is the same program, and takes longer.",
            summary=(
                "Function {{ $labels.function }} of job {{ $labels.job }} takes "
                f"{{{{ $value | humanize }}}} times as long as {since}."
            ),
            labels=(("against", against),),
        )


def recorded_times(scale: float) -> dict[str, Expr]:
    """Return what is recorded; *scale* divides windows, names keep them."""
    window = durations.scaled("5m", scale)
    hour = durations.seconds(durations.scaled("1h", scale))
    sampled = histogram(catalog.EXECUTION_SECONDS)
    seconds, samples = (
        promql.recorded_over("sum", recorded(one, labels=_PROGRAM), hour)
        for one in (SECONDS, SAMPLES)
    )
    return {
        SECONDS: _of_program(sampled.sum.rate(window)),
        SAMPLES: _of_program(sampled.count.rate(window)),
        MEAN: promql.ratio(seconds, samples),
        VERSIONS: gauge(catalog.RUNTIME_INFO).count(*_VERSION),
    }


def _of_program(rate: Expr) -> Expr:
    by = (*PROCESS, "function")
    # A function with several programs has several speeds.
    single = counter(catalog.PROGRAMS).total().max(*by).equals(1)
    programs = gauge(catalog.PROGRAM_INFO).max(*by, "fingerprint").and_(single, *by)
    return rate.sum(*by).joined(programs, on=by, take=("fingerprint",)).sum(*_PROGRAM)


SYMPTOMS = (
    Symptom(
        *("slower", "F7", "A function or a loop is slower than before.", TIME),
        *(slower, catalog.SLOWDOWN, "Debug: Slower than before"),
        rule=("JaxmonSlowdown", slowdown),
        reason=loops_slow,
        because=said_or_doing("slower"),
        wait="slowdown_for",
        observed=("slower",),
    ),
)
