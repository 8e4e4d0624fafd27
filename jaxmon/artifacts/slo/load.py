"""Loads ``slo.yaml``; all errors name file and line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from jaxmon.artifacts.slo import changes, site
from jaxmon.artifacts.slo.burn import POLICY, Condition, Limit
from jaxmon.artifacts.slo.model import Slo, Slos
from jaxmon.artifacts.slo.objective import Shared, objective, period
from jaxmon.artifacts.slo.selectors import Metrics
from jaxmon.artifacts.slo.source import Source, read
from jaxmon.artifacts.slo.thresholds import (
    SEVERITIES,
    Severity,
    Thresholds,
    section,
)


_OBJECTIVES = Path(__file__).with_name("objectives.yaml")
_OPTIONAL = (
    "service",
    "owner",
    "period",
    "site",
    "metrics",
    "burn",
    "alerts",
    "local",
    "overrides",
    "runs",
)
_LIMITS: tuple[Limit, ...] = ("budget", "rate", "ratio")


def default() -> str:
    """Return the shipped ``slo.yaml``: the objectives, and the default thresholds."""
    return f"{_OBJECTIVES.read_text(encoding='utf-8')}\n{section()}"


def load(path: Path | None = None) -> Slos:
    """
    Load the file *path*; defaults to the shipped one.

    Raises:
        SloError: the file cannot be read or is invalid.
    """
    document = read(path or _OBJECTIVES).mapping(["slos"], _OPTIONAL)
    place = site.site(document["site"]) if "site" in document else site.Site()
    metrics = Metrics.declared(document.get("metrics"), place.labels_of_series)
    shared = Shared(
        service=document["service"].text() if "service" in document else "jaxmon",
        owner=document["owner"].text() if "owner" in document else "on-call",
        period=period(document["period"]) if "period" in document else "30d",
        policy=_policy(document["burn"]) if "burn" in document else POLICY,
        metrics=metrics,
    )
    slos: dict[str, Slo] = {}
    for source in document["slos"].items():
        slo = objective(source, shared)
        if slo.name in slos:
            source.fail(f"duplicate SLO name {slo.name!r}")
        slos[slo.name] = slo
    if not slos:
        document["slos"].fail("no SLOs; at least one is required")
    thresholds = Thresholds()
    if "alerts" in document:
        thresholds = Thresholds(**_thresholds(document["alerts"]))
    return Slos(
        tuple(slos.values()),
        thresholds,
        site=place,
        local=_each(document, "local", lambda one: changes.local(one, _thresholds)),
        overrides=changes.overrides(document.get("overrides")),
        runs=_each(document, "runs", changes.run),
    )


def _each(document: Mapping[str, Source], key: str, one: Any) -> tuple[Any, ...]:
    return tuple(map(one, document[key].items())) if key in document else ()


def _thresholds(source: Source, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    known = {field.name: field for field in fields(Thresholds)}
    found = source.mapping(optional=(*besides, *known))
    return {
        name: getattr(value, known[name].metadata["form"])()
        for name, value in found.items()
        if name in known
    }


def _policy(source: Source) -> tuple[Condition, ...]:
    conditions = tuple(map(_condition, source.items()))
    if not conditions:
        source.fail("no conditions; at least one is required")
    return conditions


def _condition(source: Source) -> Condition:
    found = source.mapping(["long", "short", "severity"], ["for", *_LIMITS])
    given = [limit for limit in _LIMITS if limit in found]
    if len(given) != 1:
        source.fail(
            f"found the limits {', '.join(given) or '(none)'}; one of "
            f"{', '.join(_LIMITS)} is required"
        )
    [limit] = given
    value = found[limit].count() if limit == "rate" else found[limit].ratio()
    long, short = found["long"].duration(), found["short"].duration()
    changes.longer(found["short"], short, long)
    severity: Severity = found["severity"].choice(SEVERITIES)  # type: ignore[assignment]
    wait = found["for"].duration() if "for" in found else "2m"
    return Condition(long, short, limit, value, severity, wait)
