"""
Slower than before: what agents find in a run and its history, and what only a
comparison over weeks and versions shows.

Prometheus has no samples of a week ago, only sums: it compares means over an hour, of
what is long enough to be a ticket (`Limits.slowdown`) whatever the noise.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.artifacts.alerts.model import PROCESS, Alert
from jaxmon.artifacts.slo.rules import RuleGroup
from jaxmon.artifacts.slo.severity import TICKET
from jaxmon.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, counter, gauge, histogram, recorded


SECONDS = f"program:{catalog.EXECUTION_SECONDS.name}_sum:rate5m"
SAMPLES = f"program:{catalog.EXECUTION_SECONDS.name}_count:rate5m"
"""Device time of a program's sampled calls, and their number, per second."""

MEAN = f"program:{catalog.EXECUTION_SECONDS.name}:mean1h"
"""Mean device time of a program over an hour."""

VERSIONS = f"job:{catalog.RUNTIME_INFO.name}:versions"
"""Processes of a job by version of JAX and its platform."""

_PROGRAM = ("job", "function", "fingerprint")
_VERSION = ("job", "jax", "jaxlib", "platform_version")
_NAME = "JaxmonSlowdown"
_MEANING = "A function or a loop is slower than before."


def slowdown_group(scale: float) -> RuleGroup:
    """Return the rules that record times; *scale* divides windows, names keep them."""
    window, interval = (durations.scaled(one, scale) for one in ("5m", "2m"))
    hour = durations.seconds(durations.scaled("1h", scale))
    sampled = histogram(catalog.EXECUTION_SECONDS)
    seconds, samples = (
        promql.recorded_over("sum", recorded(one, labels=_PROGRAM), hour)
        for one in (SECONDS, SAMPLES)
    )
    rules = {
        SECONDS: _of_program(sampled.sum.rate(window)),
        SAMPLES: _of_program(sampled.count.rate(window)),
        MEAN: promql.ratio(seconds, samples),
        VERSIONS: gauge(catalog.RUNTIME_INFO).count(*_VERSION),
    }
    return RuleGroup(
        "jaxmon-slowdowns",
        interval,
        tuple({"record": name, "expr": str(expr)} for name, expr in rules.items()),
    )


def slower(limits: Limits, scale: float) -> Iterator[Alert]:
    """Yield tickets: against the run's and the function's past, a week, a version."""
    slowdown = gauge(catalog.SLOWDOWN).max("job", "kind", "name", "against")
    yield Alert(
        name=_NAME,
        expr=slowdown > limits.slowdown,
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
    day, week = (durations.scaled(one, scale) for one in ("1d", "7d"))
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
            name=_NAME,
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


def _of_program(rate: Expr) -> Expr:
    by = (*PROCESS, "function")
    # A function with several programs has several speeds.
    single = counter(catalog.PROGRAMS).total().max(*by).equals(1)
    programs = gauge(catalog.PROGRAM_INFO).max(*by, "fingerprint").and_(single, *by)
    return rate.sum(*by).joined(programs, on=by, take=("fingerprint",)).sum(*_PROGRAM)
