"""What is pushed is what is served: names, values, start times, deltas."""

from time import time_ns

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource

from jaxmon.catalog import BY_NAME, METRICS, Metric
from jaxmon.catalog.conventions import UNITS
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, Histogram, SpanIds, series
from jaxmon.otel.environment import Plan
from jaxmon.otel.pipes import Converter
from tests.helpers.otlp import Request, page_samples, translated
from tests.helpers.processes import each


SECOND = 1_000_000_000
CALLS = Metric("t_calls_total", "counter", "Calls.", "", ("f",))
AGE = Metric("t_age_seconds", "gauge", "Age.", "seconds", ("f",))
TIMES = Metric("t_seconds", "histogram", "Times.", "seconds", ("f",), (0.1, 1.0))
INFO = Metric("t_info", "info", "Info.", "", ("v",))


def converter(failed=None, **options):
    failures = [] if failed is None else failed
    of = Resource({"service.name": "t"})
    return Converter(of, Plan((), **options), 100 * SECOND, failures.append)


def pushed(one, families, time=200 * SECOND):
    return Request({}, encode_metrics(one.convert(families, time)))


def counter(value, label="a", metric=CALLS):
    return Family(metric, [(series(metric, label), value)])


@each({metric.name: (metric,) for metric in METRICS})
def test_prometheus_gives_each_metric_its_name_back(metric):
    """Prometheus' default translation of each metric of the catalogue is its name."""
    assert not metric.unit or metric.unit in UNITS
    name = translated(
        metric.name,
        UNITS.get(metric.unit, ""),
        counter=metric.kind == "counter",
        gauge=metric.kind in ("gauge", "info"),
    )
    assert name == metric.name


def test_translation_is_not_the_identity():
    """The translation that the test above relies on does change other names."""
    assert translated("a.b", "s", counter=True, gauge=False) == "a_b_seconds_total"
    assert translated("a.used", "1", counter=False, gauge=True) == "a_used_ratio"


def test_values_equal_those_on_the_page():
    """Each series of the page arrives, with its labels unescaped and its value."""
    histogram = Histogram(TIMES, 'a"b\\c\nd')
    for value in (0.05, 0.1, 0.5, 3.0):
        histogram.observe(value)
    families = [
        counter(3),
        counter(2**63, "big"),
        Family(
            AGE, [(series(AGE, "é"), 0.1 + 0.2), (series(AGE, "inf"), float("inf"))]
        ),
        Family(AGE, [(series(AGE, "true"), True), (series(AGE, "nan"), float("nan"))]),
        Family(TIMES, histogram.samples()),
        Family(INFO, [(series(INFO, "1.2"), 1)]),
        Family(CALLS._replace(kind="gauge"), [(series(CALLS, "other kind"), 1)]),
    ]
    found = pushed(converter(), families)
    assert found.samples() == page_samples(encode(families).decode())
    metrics = found.metrics()
    assert metrics[CALLS.name].sum.is_monotonic
    (point,) = metrics[TIMES.name].histogram.data_points
    assert list(point.explicit_bounds) == [0.1, 1.0]
    assert list(point.bucket_counts) == [2, 1, 1]
    assert not point.HasField("min")
    assert point.start_time_unix_nano == 100 * SECOND
    assert point.time_unix_nano == 200 * SECOND
    assert metrics[AGE.name].unit == "s"


def test_cumulative_points_keep_their_start():
    """Each export has all since the start; a reset begins a new interval."""
    one = converter()
    for time, value, start in ((200, 3, 100), (300, 5, 100), (400, 1, 400)):
        found = pushed(one, [counter(value)], time * SECOND)
        (point,) = found.metrics()[CALLS.name].sum.data_points
        assert (point.as_int, point.start_time_unix_nano) == (value, start * SECOND)
        assert found.metrics()[CALLS.name].sum.aggregation_temporality == 2
        one.delivered()


def test_deltas_add_up_whatever_is_lost():
    """What did not arrive is part of the next delta, and intervals do not overlap."""
    one = converter(temporality="delta")
    histogram, arrived = Histogram(TIMES, "a"), []
    for time, lost in ((200, False), (300, True), (400, True), (500, False)):
        for value in (0.05, 0.5):
            histogram.observe(value)
        found = pushed(
            one, [counter(time), Family(TIMES, histogram.samples())], time * SECOND
        ).metrics()
        if not lost:
            one.delivered()
            arrived.append(found)
    first, last = arrived
    assert [one[CALLS.name].sum.data_points[0].as_int for one in arrived] == [200, 300]
    begun = [one[CALLS.name].sum.data_points[0].start_time_unix_nano for one in arrived]
    assert begun == [100 * SECOND, 200 * SECOND]
    counts = [
        list(one[TIMES.name].histogram.data_points[0].bucket_counts) for one in arrived
    ]
    assert counts == [[1, 1, 0], [3, 3, 0]]
    assert last[TIMES.name].histogram.data_points[0].sum == pytest.approx(3 * 0.55)
    assert first[CALLS.name].sum.aggregation_temporality == 1


def test_low_memory_is_for_histograms():
    """Counters stay cumulative, from the start; histograms are deltas."""
    one = converter(temporality="lowmemory")
    histogram = Histogram(TIMES, "a")
    for time in (200, 300):
        histogram.observe(0.5)
        families = [counter(time), Family(TIMES, histogram.samples())]
        found = pushed(one, families, time * SECOND).metrics()
        one.delivered()
    (point,) = found[CALLS.name].sum.data_points
    assert (point.as_int, point.start_time_unix_nano) == (300, 100 * SECOND)
    assert found[TIMES.name].histogram.data_points[0].count == 1


def test_a_sidecar_knows_only_what_follows():
    """Deltas of what counted before begin at first sight."""
    metric = CALLS._replace(labels=("worker",))
    one = converter(temporality="delta", from_zero=False)
    assert set(pushed(one, [counter(7, "0", metric)]).samples().values()) == {0}
    one.delivered()
    later = [counter(9, "0", metric), counter(4, "1", metric), counter(5)]
    found = pushed(one, later, 300 * SECOND).samples()
    assert {dict(labels).get("worker"): n for (_, labels), n in found.items()} == {
        "0": 2,
        "1": 4,
        None: 0,
    }


def test_what_is_no_number_costs_only_its_metric():
    """A value that is no number, or half a histogram, is left out and named."""
    failed: list[str] = []
    broken = Family(AGE, [(series(AGE, "a"), "no number")])  # type: ignore[list-item]
    half = Family(
        TIMES, [('t_seconds_bucket{f="a",le="+Inf"}', 1), ("t_seconds_count", 1)]
    )
    found = pushed(converter(failed), [broken, half, counter(1)])
    assert set(found.metrics()) == {CALLS.name}
    assert failed == [AGE.name, TIMES.name]


def test_series_that_disappear_are_forgotten():
    """Memory is bounded by the latest page."""
    one = converter(temporality="delta")
    for number in range(50):
        one.convert([counter(1, f"f{number}")], 200 * SECOND)
        one.delivered()
    assert [len(kept) for kept in (one._parsed, one._before)] == [1, 1]


def test_units_are_those_of_the_catalogue():
    """No unit is listed that no metric has."""
    assert set(UNITS) == {one.unit for one in BY_NAME.values()} - {""}


def test_exemplars_arrive_once_with_the_ids_of_their_traces():
    """The latest of a bucket stays until it arrived."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    histogram = Histogram(TIMES, "a")
    histogram.observe(0.05, SpanIds("f" * 32, "f" * 16))
    histogram.observe(0.0625, SpanIds(trace, "00f067aa0ba902b7"))
    histogram.observe(0.5, SpanIds("no id", ""))
    histogram.observe(0.5)
    one = converter()
    families = [Family(TIMES, histogram.samples(), histogram.exemplars())]
    # Later than all of them: their times are rounded to milliseconds.
    now = time_ns() + SECOND
    for arrives in (False, True):
        found = pushed(one, families, now).metrics()
        (exemplar,) = found[TIMES.name].histogram.data_points[0].exemplars
        assert exemplar.trace_id == bytes.fromhex(trace)
        assert exemplar.span_id == bytes.fromhex("00f067aa0ba902b7")
        assert exemplar.as_double == 0.0625
        assert abs(exemplar.time_unix_nano - now) < 60 * SECOND
        if arrives:
            one.delivered()
    (point,) = (
        pushed(one, families, now + 1).metrics()[TIMES.name].histogram.data_points
    )
    assert list(point.exemplars) == []
    text = f'# {{trace_id="{trace}",a="b"}} 0.5 {now / 1e9 + 9}'
    later = [Family(TIMES, histogram.samples(), {histogram.samples()[1][0]: text})]
    (point,) = pushed(one, later, now + 2).metrics()[TIMES.name].histogram.data_points
    assert point.exemplars[0].trace_id == bytes.fromhex(trace)
    assert not any(point.exemplars[0].span_id)
    assert [pair.key for pair in point.exemplars[0].filtered_attributes] == ["a"]
