"""What a site changes about alerts: local limits, overrides, expected runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxmon.host.formats import durations
from jaxmon.symptoms.alert import SEVERITIES, ExpectedRun, Match, Severity
from jaxmon_alerts.slo.site import label, pairs
from jaxmon_alerts.slo.source import Source


SUBJECTS = ("job", "loop", "route", "function")
"""What limits may be local to, besides the labels of services."""


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """
    Other limits for some jobs, loops, routes or functions.

    Args:
        match: labels and their values.
        limits: by name.
        source: where it is written, for errors about it.
    """

    match: Match
    limits: tuple[tuple[str, Any], ...]
    source: Source


@dataclass(frozen=True, slots=True)
class Override:
    """
    What a site changes about every alert of one name; `None` is as shipped.

    Args:
        alert: its name.
        enabled: whether it exists.
        severity: ours, even if the site has other names.
        for_: how long the condition must hold.
        labels: added.
        summary: a template, as in Prometheus.
        description: likewise.
        source: where it is written, for errors about it.
    """

    alert: str
    source: Source
    enabled: bool = True
    severity: Severity | None = None
    for_: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    summary: str | None = None
    description: str | None = None


def local(
    source: Source, limits: Callable[[Source, tuple[str, ...]], dict[str, Any]]
) -> LocalLimits:
    """Return an entry of ``local``; *limits* reads the limits of a mapping."""
    values = limits(source, ("match",))
    found = {key.text(): value for key, value in source.entries()}
    if "match" not in found:
        source.fail("key 'match' is missing")
    match = _match(found["match"])
    if not values:
        source.fail("no limits; at least one is required, such as stalled_after")
    return LocalLimits(match, tuple(values.items()), source)


def overrides(source: Source | None) -> tuple[Override, ...]:
    """Return the section ``overrides``."""
    if source is None:
        return ()
    return tuple(_override(key, key.text(), value) for key, value in source.entries())


def run(source: Source) -> ExpectedRun:
    """Return an entry of ``runs``."""
    found = source.mapping(["match", "processes"])
    match = _match(found["match"])
    if "job" not in dict(match):
        found["match"].fail("label 'job' is missing")
    count = found["processes"].count()
    if count != int(count):
        found["processes"].fail(f"expected a whole number, found {count:g}")
    return ExpectedRun(match, int(count))


def longer(source: Source, short: str, long: str) -> None:
    """Reject a *short* window that is not shorter than the *long* one."""
    if durations.seconds(short) >= durations.seconds(long):
        source.fail(f"the short window, {short}, must be shorter than {long}")


def _match(source: Source) -> Match:
    found = tuple(
        (
            key.text() if key.text() in SUBJECTS else label(key),
            value.text(),
        )
        for key, value in source.entries()
    )
    if not found:
        source.fail("no labels; at least one is required, such as job")
    return found


def _override(key: Source, alert: str, source: Source) -> Override:
    found = source.mapping(
        optional=("enabled", "severity", "for", "labels", "summary", "description")
    )
    severity: Any = (
        found["severity"].choice(SEVERITIES) if "severity" in found else None
    )
    return Override(
        alert,
        key,
        enabled=found["enabled"].flag() if "enabled" in found else True,
        severity=severity,
        for_=found["for"].duration() if "for" in found else None,
        labels=pairs(found["labels"]) if "labels" in found else (),
        summary=found["summary"].text() if "summary" in found else None,
        description=found["description"].text() if "description" in found else None,
    )
