"""Loads ``slo.yaml``; all errors name file and line."""

from __future__ import annotations

import difflib
import re
import textwrap
import warnings
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Any

from jaxmon import promql
from jaxmon.catalog import BY_NAME, Metric
from jaxmon.host.formats import durations
from jaxmon.limits import LIMITS, Limits
from jaxmon.limits.limit import Limit
from jaxmon.limits.table import FleetLimits, ProcessLimits
from jaxmon.promql import Matcher
from jaxmon.promql.expressions import SCRAPED_LABELS
from jaxmon.symptoms.alert import PAGE, SEVERITIES, ExpectedRun, Severity
from jaxmon.symptoms.requests import FAILED
from jaxmon_alerts.slo import model, site
from jaxmon_alerts.slo.site import LocalLimits, Override, Site
from jaxmon_alerts.slo.source import Source, given, listed, read


_OBJECTIVES = Path(__file__).with_name("objectives.yaml")
_OPTIONAL = (
    *("service", "owner", "period", "site", "metrics"),
    *("burn", "limits", "local", "overrides", "runs"),
)


def default() -> str:
    """Return the shipped ``slo.yaml``: the objectives, and the default limits."""
    return f"{_OBJECTIVES.read_text(encoding='utf-8')}\n{_section()}"


@dataclass(frozen=True, slots=True)
class Slos:
    """Contents of ``slo.yaml``."""

    slos: tuple[model.Slo, ...]
    limits: Limits = field(default_factory=Limits)
    site: Site = field(default_factory=Site)
    local: tuple[LocalLimits, ...] = ()
    overrides: tuple[Override, ...] = ()
    runs: tuple[ExpectedRun, ...] = ()

    def __iter__(self) -> Iterator[model.Slo]:
        return iter(self.slos)

    def get(self, name: str) -> model.Slo | None:
        """Return the objective *name*, if any; users' own files may lack it."""
        return next((slo for slo in self.slos if slo.name == name), None)


def load(path: Path | None = None) -> Slos:
    """Load the file *path*, by default the shipped one; `SloError` if it is invalid."""
    document = read(path or _OBJECTIVES).mapping(["slos"], _OPTIONAL)
    if "burn" not in document:
        document["burn"] = read(_OBJECTIVES).mapping(["slos"], _OPTIONAL)["burn"]
    place = site.site(document["site"]) if "site" in document else site.Site()
    shared = Shared(
        Metrics.declared(document.get("metrics"), place.labels_of_series),
        tuple(map(_condition, document["burn"].items())),
        **given(document, service=Source.text, owner=Source.text, period=period),
    )
    if not shared.burn:
        document["burn"].fail("no conditions; at least one is required")
    slos: dict[str, model.Slo] = {}
    for source in document["slos"].items():
        slo = objective(source, shared)
        if slo.name in slos:
            source.fail(f"duplicate SLO name {slo.name!r}")
        slos[slo.name] = slo
    if not slos:
        document["slos"].fail("no SLOs; at least one is required")
    limits = given(document, limits=_limits).get("limits", {})
    for name, share in _failed(slos.values()).items():
        # A copy of the file that we ship has the defaults, which are of its objective.
        if limits.get(name, LIMITS[name].default) == LIMITS[name].default:
            limits[name] = share
    found = Limits(**limits)
    for slo in slos.values():
        if isinstance(late := slo.indicator, model.Freshness):
            late = replace(late, times=found.stalled_step_times)
            slos[slo.name] = replace(slo, indicator=late)
    return Slos(
        tuple(slos.values()),
        found,
        site=place,
        **given(
            document,
            local=listed(lambda source: site.local(source, _limits)),
            overrides=site.overrides,
            runs=listed(site.run),
        ),
    )


def _limits(source: Source, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    found = source.mapping(optional=(*besides, *LIMITS))
    return {
        name: getattr(value, LIMITS[name].form)()
        for name, value in found.items()
        if name in LIMITS
    }


def _failed(slos: Iterable[model.Slo]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for slo in slos:
        if slo.page and slo.alert == FAILED:
            for pair in slo.pairs:
                if isinstance(slo.indicator, model.Ratio) and slo.indicator.left:
                    found["left_after"] = slo.indicator.left.threshold
                name = "failed_share" if pair.severity == PAGE else "budget_share"
                least = pair.least(slo.budget)
                found[name] = min(least, found.get(name, least))
    return found


def _section() -> str:
    lines = [
        "# What is judged, by screens as by the other alerts, with the defaults.",
        "limits:",
    ]
    for heading, home in (
        ("What processes report.", ProcessLimits),
        ("What only Prometheus knows.", FleetLimits),
    ):
        lines += [f"  # {heading}", ""]
        for limit in vars(home).values():
            if isinstance(limit, Limit):
                lines += [f"  # {line}" for line in textwrap.wrap(limit.meaning, 76)]
                value = limit.default
                if limit.form == "ratio":
                    value = f"{value * 100:g}%"
                elif limit.form == "count":
                    value = f"{value:.15g}"
                lines.append(f"  {limit.name}: {value}")
    return "\n".join(lines) + "\n"


def _condition(source: Source) -> model.Condition:
    found = source.mapping(["long", "short", "severity"], ["for", *model.BURN_LIMITS])
    given = [limit for limit in model.BURN_LIMITS if limit in found]
    if len(given) != 1:
        source.fail(
            f"found the limits {', '.join(given) or '(none)'}; one of "
            f"{', '.join(model.BURN_LIMITS)} is required"
        )
    [limit] = given
    value = found[limit].count() if limit == "rate" else found[limit].ratio()
    long, short = found["long"].duration(), found["short"].duration()
    site.longer(found["short"], short, long)
    severity: Severity = found["severity"].choice(SEVERITIES)  # type: ignore[assignment]
    wait = found["for"].duration() if "for" in found else "2m"
    return model.Condition(long, short, limit, value, severity, wait)


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_REQUIRED = ("name", "title", "description", "objective", "indicator")
_OF_OBJECTIVE = (
    *("owner", "period", "by", "page", "deploy_noise"),
    *("minimum_events", "minimum_errors"),
)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the objectives of a file have in common, unless they say otherwise."""

    metrics: Metrics
    burn: tuple[model.Condition, ...]
    service: str = "jaxmon"
    owner: str = "on-call"
    period: str = "30d"


def objective(source: Source, shared: Shared) -> model.Slo:
    """Return one objective, or raise a `SloError` with line and what is allowed."""
    found = source.mapping(_REQUIRED, _OF_OBJECTIVE)
    name = found["name"].text()
    if not _NAME.fullmatch(name):
        found["name"].fail(
            f"{name!r} is not a name in kebab case, such as warm-latency"
        )
    window = period(found["period"]) if "period" in found else shared.period
    target = found["objective"].ratio()
    _reachable(found["objective"], window, target, shared.burn)
    indicator = _indicator(found["indicator"], shared.metrics)
    # How few events alert, if an objective does not say: one is chance.
    few = {} if indicator.timed else {"minimum_events": 100, "minimum_errors": 5}
    options = given(
        found,
        owner=Source.text,
        page=Source.flag,
        deploy_noise=Source.flag,
        minimum_events=Source.count,
        minimum_errors=Source.count,
    )
    return model.Slo(
        name=name,
        title=found["title"].text(),
        description=found["description"].text(),
        objective=target,
        window=window,
        service=shared.service,
        by=_by(found["by"], indicator) if "by" in found else ("job",),
        indicator=indicator,
        policy=shared.burn,
        **{**few, "owner": shared.owner, **options},
    )


def period(source: Source) -> str:
    """Return the period of an objective."""
    found = source.duration()
    low, high = map(durations.seconds, (model.MINIMUM_PERIOD, model.MAXIMUM_PERIOD))
    if not low <= durations.seconds(found) <= high:
        expected = f"a period from {model.MINIMUM_PERIOD} to {model.MAXIMUM_PERIOD}"
        source.fail(f"found {found}, expected {expected}")
    return found


def _by(source: Source, indicator: model.Indicator) -> tuple[str, ...]:
    first, *others = ((*SCRAPED_LABELS, *metric.labels) for metric in indicator.metrics)
    shared = [label for label in first if all(label in labels for labels in others)]
    found = tuple(item.text() for item in source.items())
    for item, label in zip(source.items(), found, strict=True):
        if label not in shared:
            item.fail(f"found {label!r}; the metrics share {', '.join(shared)}")
    if "job" not in found:
        source.fail("'job' is required; alerts are routed and inhibited by it")
    return found


def _indicator(source: Source, metrics: Metrics) -> model.Indicator:
    keys = dict.fromkeys(key for form in _INDICATORS for key in form)
    found = source.mapping(optional=(*keys, _INTERPOLATE))
    build = _INDICATORS.get(frozenset(found) - {_INTERPOLATE})
    if build is None or (_INTERPOLATE in found and build is not _latency):
        forms = "; ".join(" and ".join(sorted(form)) for form in _INDICATORS)
        source.fail(f"found the keys {', '.join(found) or '(none)'}; expected {forms}")
    return build(found, metrics)


def _ratio(found: dict[str, Source], metrics: Metrics) -> model.Ratio:
    total = metrics.selector(found["total"], "counter", "histogram")
    bad, good = (
        metrics.selector(found[key], "counter") if key in found else None
        for key in ("bad", "good")
    )
    left = None
    if "left" in found:
        keys = found["left"].mapping(["histogram", "above"], (_INTERPOLATE,))
        left = _latency(keys, metrics)
    return model.Ratio(total, bad, good, left)


def _latency(found: dict[str, Source], metrics: Metrics) -> model.LatencyIndicator:
    histogram = metrics.selector(found["histogram"], "histogram")
    above, bounds = found["above"].count(), histogram.metric.buckets
    if above in bounds:
        return model.LatencyIndicator(histogram, above)
    place = bisect(bounds, above)
    near = bounds[max(0, place - 1) : place + 1]
    interpolate = _INTERPOLATE in found and found[_INTERPOLATE].flag()
    if interpolate and 0 < place < len(bounds):
        return model.LatencyIndicator(histogram, above, (near[0], near[1]))
    between = "" if len(near) == 1 else f", or set {_INTERPOLATE}: true"
    return found["above"].fail(
        f"{histogram.metric.name} has no bucket bound {above:g}; the nearest are "
        f"{' and '.join(f'{bound:g}' for bound in near)}: use one of them{between}"
    )


def _freshness(found: dict[str, Source], metrics: Metrics) -> model.Freshness:
    key = "age" if "age" in found else "timestamp"
    age = metrics.selector(found[key], "gauge")
    if key == "timestamp" and not age.metric.name.endswith("_timestamp_seconds"):
        found[key].fail(
            f"{age.metric.name} does not end in _timestamp_seconds; if it is an age, "
            "use the key 'age'"
        )
    return model.Freshness(age, found["within"].duration())


def _throughput(found: dict[str, Source], metrics: Metrics) -> model.Throughput:
    total = metrics.selector(found["rate"], "counter", "histogram")
    return model.Throughput(total, found["at_least"].count())


_INTERPOLATE = "interpolate"
_INDICATORS: dict[
    frozenset[str], Callable[[dict[str, Source], Metrics], model.Indicator]
] = {
    frozenset(["bad", "total"]): _ratio,
    frozenset(["bad", "total", "left"]): _ratio,
    frozenset(["good", "total"]): _ratio,
    frozenset(["histogram", "above"]): _latency,
    frozenset(["age", "within"]): _freshness,
    frozenset(["timestamp", "within"]): _freshness,
    frozenset(["rate", "at_least"]): _throughput,
}


def _reachable(
    source: Source, window: str, target: float, policy: tuple[model.Condition, ...]
) -> None:
    for pair in (condition.over(window) for condition in policy):
        factor = Decimal(str(pair.factor or 0))
        if (needed := factor * (1 - Decimal(str(target)))) < 1:
            continue
        # Even a total outage would not trigger it.
        least = ((1 - 1 / factor) * 100).quantize(Decimal("0.01"), ROUND_UP)
        source.fail(
            f"an objective of {target:.6g} over {window} can never alert: a burn "
            f"rate of {pair.factor:g} ({pair.long} window) would need an error ratio "
            f"of {float(needed):.1%}; use an objective above {least} %"
        )


_KINDS = ("counter", "gauge", "histogram")
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?")
_MATCHER = re.compile(
    r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)'
)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
# What RE2 and Python read differently is left to promql-parser, or to promtool.
_RE2 = re.compile(r"\\\w|\(\?")
_ESCAPES = {r"\\": "\\", r"\"": '"'}


class Metrics:
    """Metrics that indicators may read: the catalogue's, and those *declared*."""

    def __init__(self, declared: Mapping[str, Metric], series: tuple[str, ...]) -> None:
        self._declared = declared
        self._series = series

    @classmethod
    def declared(cls, source: Source | None, series: tuple[str, ...]) -> Metrics:
        """Return the catalogue's, and those of the section ``metrics``."""
        metrics: dict[str, Metric] = {}
        for item in source.items() if source else ():
            metric = _declared(item)
            if metric.name in metrics or metric.name in BY_NAME:
                item.fail(f"{metric.name} is declared already; use another metric")
            metrics[metric.name] = metric
        return cls(metrics, series)

    def selector(self, source: Source, *kinds: str) -> model.Selector:
        """Return the series that ``name{label="value"}`` selects; `SloError`."""
        text = source.text()
        match = _SELECTOR.fullmatch(text)
        if not match:
            source.fail(f'{text!r} is not a selector such as name{{label="value"}}')
        metric = self._metric(source, match[1])
        if metric.kind not in kinds:
            source.fail(
                f"{metric.name} is a {metric.kind}; expected a {' or '.join(kinds)}"
            )
        matchers = tuple(_matchers(source, match[2] or ""))
        for matcher in matchers:
            _check(source, metric, matcher)
        _parse(source, text)
        return model.Selector(metric, matchers)

    def _metric(self, source: Source, name: str) -> Metric:
        metric = self._declared.get(name) or BY_NAME.get(name)
        if metric is None:
            close = difflib.get_close_matches(name, [*BY_NAME, *self._declared], 3, 0.5)
            hint = (
                f"did you mean {', '.join(close)}?" if close else "see docs/metrics.md"
            )
            source.fail(
                f"the catalogue has no metric {name!r}; {hint} Metrics of others are "
                "declared in the section 'metrics'"
            )
        more = (label for label in self._series if label not in metric.labels)
        return metric._replace(labels=(*metric.labels, *more))


def _declared(source: Source) -> Metric:
    found = source.mapping(["name", "kind"], ["labels", "buckets"])
    name = found["name"].text()
    if not _METRIC_NAME.fullmatch(name):
        found["name"].fail(
            f"{name!r} is not a metric name, such as http_requests_total"
        )
    kind: Any = found["kind"].choice(_KINDS)
    if ("buckets" in found) != (kind == "histogram"):
        found["kind"].fail("histograms have the key 'buckets', others do not")
    lists = given(found, labels=listed(Source.text), buckets=listed(Source.count))
    buckets = lists.get("buckets", ())
    if list(buckets) != sorted(set(buckets)):
        found["buckets"].fail("expected increasing bounds, without +Inf")
    return Metric(name, kind, "", **lists)


def _matchers(source: Source, text: str) -> list[Matcher]:
    matchers = []
    position = 0
    while position < len(text.rstrip()):
        if not (match := _MATCHER.match(text, position)):
            source.fail(
                f"{text[position:]!r} is not a list of matchers such as "
                'label="value", label!="value", label=~"a|b"'
            )
        value = _ESCAPED.sub(lambda escape: _unescaped(source, escape[0]), match[3])
        matchers.append(Matcher(match[1], value, match[2]))  # type: ignore[arg-type]
        position = match.end()
    return matchers


def _unescaped(source: Source, text: str) -> str:
    if text not in _ESCAPES:
        source.fail(
            f"invalid escape {text}; in PromQL strings, backslashes of regular "
            f"expressions must be doubled: \\{text}"
        )
    return _ESCAPES[text]


def _check(source: Source, metric: Metric, matcher: Matcher) -> None:
    try:
        promql.check(metric, [matcher])
        if matcher.operator in {"=~", "!~"} and not _RE2.search(matcher.value):
            with warnings.catch_warnings(action="ignore"):
                re.compile(matcher.value)
    except (re.error, OverflowError, RecursionError) as error:
        source.fail(f"{matcher.value!r} is not a regular expression: {error}")
    except ValueError as error:
        source.fail(str(error))


def _parse(source: Source, text: str) -> None:
    """Reject what is no PromQL, if the extra ``alerts`` is installed."""
    try:
        from promql_parser import parse  # noqa: PLC0415 - optional
    except ImportError:
        return  # `jaxmon alerts check` says so
    if r"\Q" in text:
        return  # RE2 has quotations, this parser has not
    try:
        parse(text)
    except ValueError as error:
        source.fail(f"{text!r} is not PromQL: {error}")
