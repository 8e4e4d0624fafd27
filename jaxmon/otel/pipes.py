"""A pipe to each receiver: converter and exporter. Imports the SDK, in some 0.15 s."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from opentelemetry.sdk.metrics import Exemplar, export
from opentelemetry.sdk.metrics.export import Metric as SdkMetric
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from jaxmon.catalog import RUNS_GROUP, Metric
from jaxmon.catalog.conventions import CONVENTIONS, OF_GPUS, UNITS, Convention
from jaxmon.exposition import families as exemplars
from jaxmon.exposition.families import Family
from jaxmon.exposition.parse import labels


if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter

from jaxmon.catalog.values import SEMANTIC
from jaxmon.otel import resource
from jaxmon.otel.environment import CONSOLE, Plan
from jaxmon.otel.exporters import exported, exporter
from jaxmon.version import version


# Attributes whose values are numbers.
_NUMBERS = ("cpython.gc.generation",)


def by_convention(convention: Convention, point: Any, started: int) -> Any:
    """Return *point* by its *convention*; sums *started* then, in Unix nanoseconds."""
    names = dict(convention.labels)
    attributes: dict[str, Any] = {
        names.get(label, label): value for label, value in point.attributes.items()
    }
    for name in _NUMBERS:
        if name in attributes:
            attributes[name] = int(attributes[name])
    attributes.update(convention.attributes)
    since = started if convention.instrument == "updowncounter" else None
    return replace(
        point,
        attributes=attributes,
        start_time_unix_nano=since or point.start_time_unix_nano,
    )


_DELTAS = {
    "cumulative": (),
    "delta": ("counter", "histogram"),
    # Ours are like observable counters, for which this preference is cumulative.
    "lowmemory": ("histogram",),
}
_LARGEST = 2**63
_NANOSECONDS = 1_000_000_000

_Key: TypeAlias = tuple[tuple[str, str], ...]
_Number: TypeAlias = int | float


class _Parsed(NamedTuple):
    """A series: the end of its name, its labels, and apart from these the bound."""

    suffix: str
    labels: dict[str, str]
    key: _Key
    bound: float | None


class _Parts(NamedTuple):
    """A histogram: its first series, buckets, sum and count, and exemplars."""

    labels: dict[str, str]
    series: str
    buckets: dict[float, _Number]
    rest: dict[str, _Number]
    exemplars: list[str]


class _Count(NamedTuple):
    """What a series counted *since* then, which *moves* with each delivery."""

    counts: tuple[_Number, ...]
    since: int
    moves: bool = False


@dataclass(eq=False)
class Converter:
    """
    Turns families into data points, for one exporter and thread; it keeps 0.8 kB per
    sample. Counting *started* in Unix nanoseconds, of all series if *plan* counts from
    zero; else, as on a sidecar's page, deltas of other than new agents begin when first
    delivered. *failed* gets names of metrics left out.
    """

    resource: Resource
    plan: Plan
    started: int
    failed: Callable[[str], None]

    def __post_init__(self) -> None:
        self._scope = InstrumentationScope("jaxmon", version())
        self._deltas = _DELTAS[self.plan.temporality]
        self._conventions = CONVENTIONS if self.plan.names == SEMANTIC else {}
        # Series of the latest families, and of those being converted.
        self._earlier: dict[str, _Parsed] = {}
        self._parsed: dict[str, _Parsed] = {}
        self._before: dict[str, _Count] = {}
        self._now: dict[str, _Count] = {}
        self._time = self.started
        self._arrived = 0
        self._later = False

    def convert(self, families: Iterable[Family], time: int) -> export.MetricsData:
        """
        Return *families* as of *time*, in Unix nanoseconds. NaN is left out, and
        families of one name are one metric. Takes 1 µs per sample, more for new ones.
        """
        # A clock that was set back would make intervals of negative length.
        self._time = max(time, self.started)
        self._now = {}
        self._earlier, self._parsed = self._parsed, {}
        merged: dict[str, Family] = {}
        for family in families:
            metric = family.metric
            first = merged.setdefault(metric.name, Family(metric, [], {}))
            if first.metric.kind == metric.kind:
                first.samples.extend(family.samples)
                if family.exemplars:
                    both = {**first.exemplars, **family.exemplars}
                    merged[metric.name] = first._replace(exemplars=both)
        metrics: dict[str, tuple[Metric, Convention | None, list[Any]]] = {}
        for family in merged.values():
            metric, convention = family.metric, self._conventions.get(family.metric)
            try:
                for point in self._points(family):
                    name, called, given = metric.name, None, point
                    uuid = str((point.attributes or {}).get("uuid", OF_GPUS))
                    if convention is not None and uuid.startswith(OF_GPUS):
                        name, called = convention.name, convention
                        given = by_convention(convention, point, self.started)
                    metrics.setdefault(name, (metric, called, []))[2].append(given)
            except Exception:  # noqa: BLE001 - contained: it costs its metric
                metrics.pop(metric.name, None)
                self.failed(metric.name)
        made = [self._metric(*entry) for entry in metrics.values()]
        scope = export.ScopeMetrics(self._scope, made, "")
        return export.MetricsData([export.ResourceMetrics(self.resource, [scope], "")])

    def delivered(self) -> None:
        """Begin later deltas here; what did not arrive is part of the next."""
        self._before = {
            series: count._replace(since=self._time) if count.moves else count
            for series, count in self._now.items()
        }
        self._arrived = self._time
        self._later = True

    def _points(
        self, family: Family
    ) -> Iterator[export.NumberDataPoint | export.HistogramDataPoint]:
        metric = family.metric
        if metric.kind == "histogram":
            yield from self._histograms(family)
            return
        for series, value in family.samples:
            number = _plain(value)
            if number != number:  # noqa: PLR0124 - NaN
                continue
            labels_ = self._labels(metric, series).labels
            since = 0
            if metric.kind == "counter":
                (number,), since = self._counted(metric, series, (number,), labels_)
            yield export.NumberDataPoint(labels_, since, self._time, number)

    def _histograms(self, family: Family) -> Iterator[export.HistogramDataPoint]:
        """Yield a point for each set of labels, from its buckets, sum and count."""
        metric = family.metric
        found: dict[_Key, _Parts] = {}
        for series, value in family.samples:
            split = self._labels(metric, series)
            parts = found.get(split.key)
            if parts is None:
                parts = found[split.key] = _Parts(split.labels, series, {}, {}, [])
            if text := family.exemplars.get(series):
                parts.exemplars.append(text)
            if split.bound is None:
                parts.rest[split.suffix] = _plain(value)
            else:
                parts.buckets[split.bound] = _plain(value)
        for parts in found.values():
            running = list(parts.buckets.values())
            differences = [b - a for a, b in zip([0, *running], running, strict=False)]
            everything = (*differences, parts.rest["_sum"], parts.rest["_count"])
            counts, since = self._counted(
                metric, parts.series, everything, parts.labels
            )
            yield export.HistogramDataPoint(
                attributes=parts.labels,
                exemplars=list(self._exemplars(parts.exemplars)),
                start_time_unix_nano=since,
                time_unix_nano=self._time,
                count=int(counts[-1]),
                sum=counts[-2],
                bucket_counts=[int(count) for count in counts[:-2]],
                explicit_bounds=[bound for bound in parts.buckets if bound < inf],
                min=None,  # type: ignore[arg-type]  # the wire has it optional
                max=None,  # type: ignore[arg-type]  # likewise
            )

    def _exemplars(self, texts: Iterable[str]) -> Iterator[Exemplar]:
        """Yield those since the latest export that arrived."""
        for text in texts:
            found = exemplars.read(text)
            if found is None or found.time is None:
                continue
            moment = int(found.time * _NANOSECONDS)
            trace = found.labels.pop("trace_id", "")
            span = found.labels.pop("span_id", "0")
            if moment > self._arrived and re.fullmatch("[0-9a-f]{32}", trace):
                # The encoder leaves a trace without a span out; 0 is none to receivers.
                span_id = int(span, 16) if re.fullmatch("[0-9a-f]{16}", span) else 0
                yield Exemplar(
                    found.labels, found.value, moment, span_id, int(trace, 16)
                )

    def _counted(
        self,
        metric: Metric,
        series: str,
        counts: tuple[_Number, ...],
        labels_: dict[str, str],
    ) -> tuple[tuple[_Number, ...], int]:
        """Return what to export of *counts*, and since when that was counted."""
        before = self._before.get(series)
        if before is None:
            is_new = self.plan.from_zero or (self._later and "worker" in labels_)
            is_new = is_new and metric.group != RUNS_GROUP
            before = _Count((0,) * len(counts) if is_new else counts, self.started)
        elif len(before.counts) != len(counts) or counts[-1] < before.counts[-1]:
            # It was reset, such as by another process in a slot.
            before = _Count((0,) * len(counts), self._time)
        moves = metric.kind in self._deltas
        self._now[series] = _Count(counts, before.since, moves)
        if not moves:
            return counts, before.since
        changes = zip(counts, before.counts, strict=True)
        return tuple([now - then for now, then in changes]), before.since

    def _labels(self, metric: Metric, series: str) -> _Parsed:
        """Return the parts of *series*, which are kept while it is there."""
        split = self._earlier.get(series)
        if split is None:
            full, _, text = series.partition("{")
            # An empty label is none to Prometheus.
            found = {name: value for name, value in labels(text).items() if value}
            bound = found.pop("le", None) if metric.kind == "histogram" else None
            split = _Parsed(
                full.removeprefix(metric.name),
                found,
                tuple(found.items()),
                None if bound is None else float(bound),
            )
        self._parsed[series] = split
        return split

    def _metric(
        self, metric: Metric, convention: Convention | None, points: list[Any]
    ) -> SdkMetric:
        temporality = (
            export.AggregationTemporality.DELTA
            if metric.kind in self._deltas
            else export.AggregationTemporality.CUMULATIVE
        )
        data: export.Sum | export.Gauge | export.Histogram
        if metric.kind == "histogram":
            data = export.Histogram(points, temporality)
        elif metric.kind == "counter":
            data = export.Sum(points, temporality, is_monotonic=True)
        elif convention is not None and convention.instrument == "updowncounter":
            data = export.Sum(
                points, export.AggregationTemporality.CUMULATIVE, is_monotonic=False
            )
        else:
            data = export.Gauge(points)
        if convention is not None:
            return SdkMetric(convention.name, metric.help, convention.unit, data)
        return SdkMetric(metric.name, metric.help, UNITS.get(metric.unit, ""), data)


def _plain(value: Any) -> _Number:
    """Return *value* as the wire takes it: a program's may be a bool, or NumPy's."""
    if type(value) is float:
        return value
    if type(value) is int:
        return value if -_LARGEST <= value < _LARGEST else float(value)
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < _LARGEST else number


class Pipe(NamedTuple):
    """An exporter of the SDK and the converter of what it exports, for one thread."""

    exporter: MetricExporter
    converter: Converter

    def push(self, families: Iterable[Family], time: int) -> bool:
        """Export *families* of *time*, in Unix ns; return whether they arrived."""
        data = self.converter.convert(families, time)
        arrived = exported(self.exporter, data)
        if arrived:
            self.converter.delivered()
        return arrived


def exporters(plan: Plan, environ: Mapping[str, str]) -> list[MetricExporter]:
    """
    Return what *plan* names. Not while the interpreter shuts down. Raises
    `ImportError`: an exporter is not installed; `Exception`: the SDK's, for an invalid
    variable.
    """
    return [_exporter(route, environ) for route in plan.routes]


def pipes(
    plan: Plan,
    made: list[MetricExporter],
    environ: Mapping[str, str],
    *,
    started: int,
    failed: Callable[[str], None],
) -> list[Pipe]:
    """Return a pipe for each exporter in *made*; *failed* gets names left out."""
    found = resource.resource(environ, name=plan.name)
    return [Pipe(of, Converter(found, plan, started, failed)) for of in made]


def _exporter(route: str, environ: Mapping[str, str]) -> MetricExporter:
    if route == CONSOLE:
        return ConsoleMetricExporter()
    made: MetricExporter = exporter("METRICS", environ, route)
    return made
