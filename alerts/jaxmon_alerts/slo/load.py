"""Loads ``slo.yaml``; all errors name file and line."""

from __future__ import annotations

import re
import textwrap
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Any

from jaxmon.host.formats import durations
from jaxmon.limits import LIMITS, Limits
from jaxmon.limits.table import FleetLimits, Form, Limit, ProcessLimits
from jaxmon.symptoms.alert import PAGE, SEVERITIES, Severity
from jaxmon.symptoms.requests import FAILED
from jaxmon_alerts.slo import burn, changes, selectors, site
from jaxmon_alerts.slo.burn import POLICY, Condition
from jaxmon_alerts.slo.indicators import Indicator, LatencyIndicator, Ratio, Selector
from jaxmon_alerts.slo.model import Slo, Slos
from jaxmon_alerts.slo.selectors import Metrics
from jaxmon_alerts.slo.source import Source, read
from jaxmon_alerts.slo.timed import Freshness, Throughput


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
    for name, share in _failed(slos.values()).items():
        # A copy of the file that we ship has the defaults, which are of its objective.
        if limits.get(name, LIMITS[name].default) == LIMITS[name].default:
            limits[name] = share
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


def _failed(slos: Iterable[Slo]) -> dict[str, Any]:
    """Return the limits of failed requests that follow from the objective on them."""
    found: dict[str, Any] = {}
    for slo in [one for one in slos if one.page and one.alert == FAILED]:
        for pair in sorted(slo.pairs, key=lambda one: one.least(slo.budget)):
            name = "failed_share" if pair.severity == PAGE else "budget_share"
            found.setdefault(name, pair.least(slo.budget))
    return found


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


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_REQUIRED = ("name", "title", "description", "objective", "indicator")
_OF_OBJECTIVE = (
    "owner",
    "period",
    "by",
    "page",
    "deploy_noise",
    "minimum_events",
    "minimum_errors",
)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the objectives of a file have in common, unless they say otherwise."""

    service: str
    owner: str
    period: str
    policy: tuple[Condition, ...]
    metrics: Metrics


def objective(source: Source, shared: Shared) -> Slo:
    """
    Return one objective.

    Raises:
        SloError: it is invalid; names the line and what is allowed.
    """
    found = source.mapping(_REQUIRED, _OF_OBJECTIVE)
    name = found["name"].text()
    if not _NAME.fullmatch(name):
        found["name"].fail(
            f"{name!r} is not a name in kebab case, such as warm-latency"
        )
    window = period(found["period"]) if "period" in found else shared.period
    target = found["objective"].ratio()
    _reachable(found["objective"], window, target, shared.policy)
    indicator = _indicator(found["indicator"], shared.metrics)
    return Slo(
        name=name,
        title=found["title"].text(),
        description=found["description"].text(),
        owner=found["owner"].text() if "owner" in found else shared.owner,
        objective=target,
        window=window,
        service=shared.service,
        by=_by(found["by"], indicator) if "by" in found else ("job",),
        indicator=indicator,
        page=found["page"].flag() if "page" in found else True,
        deploy_noise="deploy_noise" in found and found["deploy_noise"].flag(),
        minimum_events=_minimum(found.get("minimum_events")),
        minimum_errors=_minimum(found.get("minimum_errors")),
        policy=shared.policy,
    )


def period(source: Source) -> str:
    """Return the period of an objective."""
    found = source.duration()
    low, high = burn.MINIMUM_PERIOD, burn.MAXIMUM_PERIOD
    if not (
        durations.seconds(low) <= durations.seconds(found) <= durations.seconds(high)
    ):
        source.fail(f"found {found}, expected a period from {low} to {high}")
    return found


def _by(source: Source, indicator: Indicator) -> tuple[str, ...]:
    labels = selectors.labels(source, indicator.metrics)
    if "job" not in labels:
        source.fail("'job' is required; alerts are routed and inhibited by it")
    return labels


def _minimum(source: Source | None) -> float:
    return 1 if source is None else source.count()


def _indicator(source: Source, metrics: Metrics) -> Indicator:
    keys = dict.fromkeys(key for form in _INDICATORS for key in form)
    found = source.mapping(optional=(*keys, _INTERPOLATE))
    build = _INDICATORS.get(frozenset(found) - {_INTERPOLATE})
    if build is None or (_INTERPOLATE in found and build is not _latency):
        forms = "; ".join(" and ".join(sorted(form)) for form in _INDICATORS)
        source.fail(f"found the keys {', '.join(found) or '(none)'}; expected {forms}")
    return build(found, metrics)


def _bad(found: dict[str, Source], metrics: Metrics) -> Ratio:
    bad = metrics.selector(found["bad"], "counter")
    return Ratio(_total(found, metrics), bad=bad)


def _good(found: dict[str, Source], metrics: Metrics) -> Ratio:
    good = metrics.selector(found["good"], "counter")
    return Ratio(_total(found, metrics), good=good)


def _total(found: dict[str, Source], metrics: Metrics) -> Selector:
    return metrics.selector(found["total"], "counter", "histogram")


def _latency(found: dict[str, Source], metrics: Metrics) -> LatencyIndicator:
    histogram = metrics.selector(found["histogram"], "histogram")
    above, bounds = found["above"].count(), histogram.metric.buckets
    if above in bounds:
        return LatencyIndicator(histogram, above)
    place = bisect(bounds, above)
    near = bounds[max(0, place - 1) : place + 1]
    interpolate = _INTERPOLATE in found and found[_INTERPOLATE].flag()
    if interpolate and 0 < place < len(bounds):
        return LatencyIndicator(histogram, above, (near[0], near[1]))
    between = "" if len(near) == 1 else f", or set {_INTERPOLATE}: true"
    return found["above"].fail(
        f"{histogram.metric.name} has no bucket bound {above:g}; the nearest are "
        f"{' and '.join(f'{bound:g}' for bound in near)}: use one of them{between}"
    )


def _freshness(found: dict[str, Source], metrics: Metrics) -> Freshness:
    key = "age" if "age" in found else "timestamp"
    age = metrics.selector(found[key], "gauge")
    if key == "timestamp" and not age.metric.name.endswith("_timestamp_seconds"):
        found[key].fail(
            f"{age.metric.name} does not end in _timestamp_seconds; if it is an age, "
            "use the key 'age'"
        )
    return Freshness(age, found["within"].duration())


def _throughput(found: dict[str, Source], metrics: Metrics) -> Throughput:
    total = metrics.selector(found["rate"], "counter", "histogram")
    return Throughput(total, found["at_least"].count())


_INTERPOLATE = "interpolate"
_INDICATORS: dict[frozenset[str], Callable[[dict[str, Source], Metrics], Indicator]] = {
    frozenset(["bad", "total"]): _bad,
    frozenset(["good", "total"]): _good,
    frozenset(["histogram", "above"]): _latency,
    frozenset(["age", "within"]): _freshness,
    frozenset(["timestamp", "within"]): _freshness,
    frozenset(["rate", "at_least"]): _throughput,
}


def _reachable(
    source: Source, window: str, target: float, policy: tuple[Condition, ...]
) -> None:
    pair = burn.unreachable(window, target, policy)
    if pair is None or pair.factor is None:
        return
    needed = Decimal(str(pair.factor)) * (1 - Decimal(str(target)))
    least = (1 - 1 / Decimal(str(pair.factor))) * 100
    least = least.quantize(Decimal("0.01"), ROUND_UP)
    source.fail(
        f"an objective of {target:.6g} over {window} can never alert: a burn "
        f"rate of {pair.factor:g} ({pair.long} window) would need an error ratio "
        f"of {float(needed):.1%}; use an objective above {least} %"
    )
