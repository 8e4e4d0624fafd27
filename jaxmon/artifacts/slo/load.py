"""Loads ``slo.yaml``; all errors name file and line."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmon.artifacts.slo import burn, changes, site
from jaxmon.artifacts.slo.burn import POLICY, Condition
from jaxmon.artifacts.slo.model import Slo, Slos
from jaxmon.artifacts.slo.objective import Shared, objective, period
from jaxmon.artifacts.slo.selectors import Metrics
from jaxmon.artifacts.slo.source import Source, read
from jaxmon.limits import LIMITS, Limits
from jaxmon.limits.fleet import FleetLimits
from jaxmon.limits.limit import Form, Limit
from jaxmon.limits.process import ProcessLimits
from jaxmon.symptoms.alert import SEVERITIES, Severity


_OBJECTIVES = Path(__file__).with_name("objectives.yaml")
_OPTIONAL = (
    "service",
    "owner",
    "period",
    "site",
    "metrics",
    "burn",
    "limits",
    "local",
    "overrides",
    "runs",
)
_BURNS: tuple[burn.Limit, ...] = ("budget", "rate", "ratio")


def default() -> str:
    """Return the shipped ``slo.yaml``: the objectives, and the default limits."""
    return f"{_OBJECTIVES.read_text(encoding='utf-8')}\n{_section()}"


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
    limits = _limits(document["limits"]) if "limits" in document else {}
    return Slos(
        tuple(slos.values()),
        Limits(**limits),
        site=place,
        local=_each(document, "local", lambda one: changes.local(one, _limits)),
        overrides=changes.overrides(document.get("overrides")),
        runs=_each(document, "runs", changes.run),
    )


def _each(document: Mapping[str, Source], key: str, one: Any) -> tuple[Any, ...]:
    return tuple(map(one, document[key].items())) if key in document else ()


def _limits(source: Source, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    found = source.mapping(optional=(*besides, *LIMITS))
    return {
        name: getattr(value, LIMITS[name].form)()
        for name, value in found.items()
        if name in LIMITS
    }


def _section() -> str:
    """Return the section ``limits`` of ``slo.yaml``: each default and its meaning."""
    lines = [
        "# What is judged, by screens as by the other alerts, with the defaults.",
        "limits:",
    ]
    for heading, home in (
        ("What processes report.", ProcessLimits),
        ("What only Prometheus knows.", FleetLimits),
    ):
        lines += [f"  # {heading}", ""]
        for one in vars(home).values():
            if isinstance(one, Limit):
                lines += [f"  # {line}" for line in textwrap.wrap(one.meaning, 76)]
                lines.append(f"  {one.name}: {_written(one.form, one.default)}")
    return "\n".join(lines) + "\n"


def _written(form: Form, value: Any) -> str:
    if form == "ratio":
        return f"{value * 100:g}%"
    return f"{value:.15g}" if form == "count" else str(value)


def _policy(source: Source) -> tuple[Condition, ...]:
    conditions = tuple(map(_condition, source.items()))
    if not conditions:
        source.fail("no conditions; at least one is required")
    return conditions


def _condition(source: Source) -> Condition:
    found = source.mapping(["long", "short", "severity"], ["for", *_BURNS])
    given = [limit for limit in _BURNS if limit in found]
    if len(given) != 1:
        source.fail(
            f"found the limits {', '.join(given) or '(none)'}; one of "
            f"{', '.join(_BURNS)} is required"
        )
    [limit] = given
    value = found[limit].count() if limit == "rate" else found[limit].ratio()
    long, short = found["long"].duration(), found["short"].duration()
    changes.longer(found["short"], short, long)
    severity: Severity = found["severity"].choice(SEVERITIES)  # type: ignore[assignment]
    wait = found["for"].duration() if "for" in found else "2m"
    return Condition(long, short, limit, value, severity, wait)
