"""Loads ``slo.yaml``; all errors name file and line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Any

from jaxmon.artifacts.slo import burn, durations, selectors
from jaxmon.artifacts.slo.indicators import (
    Freshness,
    Indicator,
    Latency,
    Ratio,
    Selector,
)
from jaxmon.artifacts.slo.model import Slo, Slos
from jaxmon.artifacts.slo.source import Source, read
from jaxmon.artifacts.slo.thresholds import SEVERITIES, Thresholds, section


_OBJECTIVES = Path(__file__).with_name("objectives.yaml")

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_REQUIRED = ("name", "title", "description", "objective", "indicator")
_OPTIONAL = (
    "owner",
    "period",
    "by",
    "page",
    "deploy_noise",
    "minimum_events",
    "minimum_errors",
)


def default() -> str:
    """Return the shipped ``slo.yaml``: the objectives, and the default thresholds."""
    return f"{_OBJECTIVES.read_text(encoding='utf-8')}\n{section()}"


def load(path: Path | None = None) -> Slos:
    """
    Load the file *path*; defaults to the shipped one.

    Raises:
        SloError: the file cannot be read or is invalid.
    """
    document = read(path or _OBJECTIVES).mapping(
        ["slos"], ["service", "owner", "period", "alerts"]
    )
    service = document["service"].text() if "service" in document else "jaxmon"
    owner = document["owner"].text() if "owner" in document else "on-call"
    period = _period(document["period"]) if "period" in document else "30d"
    slos: dict[str, Slo] = {}
    for source in document["slos"].items():
        slo = _slo(source, service, owner, period)
        if slo.name in slos:
            source.fail(f"duplicate SLO name {slo.name!r}")
        slos[slo.name] = slo
    if not slos:
        document["slos"].fail("no SLOs; at least one is required")
    thresholds = Thresholds()
    if "alerts" in document:
        thresholds = _thresholds(document["alerts"])
    return Slos(tuple(slos.values()), thresholds)


def _slo(source: Source, service: str, owner: str, period: str) -> Slo:
    found = source.mapping(_REQUIRED, _OPTIONAL)
    name = found["name"].text()
    if not _NAME.fullmatch(name):
        found["name"].fail(
            f"{name!r} is not a name in kebab case, such as warm-latency"
        )
    if "period" in found:
        period = _period(found["period"])
    objective = found["objective"].ratio()
    _reachable(found["objective"], period, objective)
    indicator = _indicator(found["indicator"])
    return Slo(
        name=name,
        title=found["title"].text(),
        description=found["description"].text(),
        owner=found["owner"].text() if "owner" in found else owner,
        objective=objective,
        window=period,
        service=service,
        by=_by(found["by"], indicator) if "by" in found else ("job",),
        indicator=indicator,
        page=found["page"].flag() if "page" in found else True,
        deploy_noise="deploy_noise" in found and found["deploy_noise"].flag(),
        minimum_events=_minimum(found.get("minimum_events")),
        minimum_errors=_minimum(found.get("minimum_errors")),
    )


def _by(source: Source, indicator: Indicator) -> tuple[str, ...]:
    labels = selectors.labels(source, indicator.metrics)
    if "job" not in labels:
        source.fail("'job' is required; alerts are routed and inhibited by it")
    return labels


def _minimum(source: Source | None) -> float:
    return 1 if source is None else source.count()


def _indicator(source: Source) -> Indicator:
    keys = (key for form in _INDICATORS for key in form)
    found = source.mapping(optional=dict.fromkeys(keys))
    build = _INDICATORS.get(frozenset(found))
    if build is None:
        forms = "; ".join(" and ".join(sorted(form)) for form in _INDICATORS)
        source.fail(f"found the keys {', '.join(found) or '(none)'}; expected {forms}")
    return build(found)


def _bad(found: dict[str, Source]) -> Ratio:
    return Ratio(_total(found), bad=selectors.selector(found["bad"], "counter"))


def _good(found: dict[str, Source]) -> Ratio:
    return Ratio(_total(found), good=selectors.selector(found["good"], "counter"))


def _total(found: dict[str, Source]) -> Selector:
    return selectors.selector(found["total"], "counter", "histogram")


def _latency(found: dict[str, Source]) -> Latency:
    histogram = selectors.selector(found["histogram"], "histogram")
    above, bounds = found["above"].count(), histogram.metric.buckets
    if above not in bounds:
        found["above"].fail(
            f"{histogram.metric.name} has no bucket bound {above:g}; its bounds "
            f"are {', '.join(f'{bound:g}' for bound in bounds)}"
        )
    return Latency(histogram, above)


def _freshness(found: dict[str, Source]) -> Freshness:
    timestamp = selectors.selector(found["timestamp"], "gauge")
    return Freshness(timestamp, found["within"].duration())


_INDICATORS: dict[frozenset[str], Callable[[dict[str, Source]], Indicator]] = {
    frozenset(["bad", "total"]): _bad,
    frozenset(["good", "total"]): _good,
    frozenset(["histogram", "above"]): _latency,
    frozenset(["timestamp", "within"]): _freshness,
}


def _period(source: Source) -> str:
    period = source.duration()
    low, high = burn.MINIMUM_PERIOD, burn.MAXIMUM_PERIOD
    if not (
        durations.seconds(low) <= durations.seconds(period) <= durations.seconds(high)
    ):
        source.fail(f"found {period}, expected a period from {low} to {high}")
    return period


def _reachable(source: Source, period: str, objective: float) -> None:
    pair = burn.unreachable(period, objective)
    if pair is None:
        return
    needed = Decimal(str(pair.factor)) * (1 - Decimal(str(objective)))
    least = (1 - 1 / Decimal(str(pair.factor))) * 100
    least = least.quantize(Decimal("0.01"), ROUND_UP)
    source.fail(
        f"an objective of {objective:.6g} over {period} can never alert: a burn "
        f"rate of {pair.factor:g} ({pair.long} window) would need an error ratio "
        f"of {float(needed):.1%}; use an objective above {least} %"
    )


def _thresholds(source: Source) -> Thresholds:
    known = {field.name: field for field in fields(Thresholds)}
    values: dict[str, Any] = {}
    for name, value in source.mapping(optional=known).items():
        form = known[name].metadata["form"]
        if form == "severity":
            values[name] = value.choice(SEVERITIES)
        else:
            values[name] = getattr(value, form)()
    return Thresholds(**values)
