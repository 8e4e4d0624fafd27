"""An expression knows its metrics, labels and unit."""

import pytest

from jaxmon.catalog import (
    ACCELERATOR_ENERGY_JOULES,
    ACCELERATOR_POWER_WATTS,
    COMPILE_SECONDS,
    DEVICE_INFO,
    HOST_CPU_SECONDS,
    JIT_CACHE_HITS,
    JIT_CALLS,
    LIVE_ARRAY_BYTES,
    LIVE_ARRAYS,
    PROCESS_START_TIME_SECONDS,
)
from jaxmon.promql import (
    alerts,
    alerts_since,
    call,
    counter,
    gauge,
    gauge_slope,
    histogram,
    number,
    ratio,
    recorded,
    time,
    up,
)


CALLS = counter(JIT_CALLS).rate("5m")
HITS = counter(JIT_CACHE_HITS).rate("5m")
SCRAPED = {"job", "instance", "worker"}

UNITS = [
    (CALLS, "per second"),
    (CALLS.sum("job") * 2, "per second"),
    (counter(JIT_CALLS).increase("5m"), ""),
    (ratio(HITS.sum(), CALLS.sum()), "ratio"),
    (number(1) - ratio(HITS, CALLS), "ratio"),
    (number(1) / CALLS, None),
    (CALLS * HITS, None),
    ((CALLS * HITS).of_unit("pairs"), "pairs"),
    (counter(HOST_CPU_SECONDS).rate("5m"), "ratio"),
    (counter(ACCELERATOR_ENERGY_JOULES).rate("5m"), "watts"),
    (gauge(ACCELERATOR_POWER_WATTS).max(), "watts"),
    (gauge(LIVE_ARRAY_BYTES) > 3, "bytes"),
    (gauge(LIVE_ARRAY_BYTES).above(3), ""),
    (gauge_slope(LIVE_ARRAY_BYTES, "5m"), "bytes per second"),
    (time() - gauge(PROCESS_START_TIME_SECONDS), "seconds"),
    (gauge(LIVE_ARRAY_BYTES).or_(call("vector", 0)), "bytes"),
    (gauge(LIVE_ARRAY_BYTES).count("job"), ""),
    (histogram(COMPILE_SECONDS).quantile(0.9), "seconds"),
    (histogram(COMPILE_SECONDS).mean("function"), "seconds"),
    (histogram(COMPILE_SECONDS).sum.rate("5m"), "ratio"),
    (histogram(COMPILE_SECONDS).count.rate("5m"), "per second"),
    (histogram(COMPILE_SECONDS).at_most(1).increase("5m"), ""),
    (recorded("a:b:c"), "ratio"),
    (alerts_since(), "seconds"),
]


@pytest.mark.parametrize(("expression", "unit"), UNITS, ids=range(len(UNITS)))
def test_unit_follows_the_query(expression, unit):
    """A rate is per second, a share a ratio, joules per second are watts."""
    assert expression.shape.unit == unit


@pytest.mark.parametrize(
    ("expression", "labels"),
    [
        (CALLS, {"function", *SCRAPED}),
        (CALLS.sum(), set()),
        (CALLS.sum("function", "job").topk(3), {"function", "job"}),
        (histogram(COMPILE_SECONDS).quantile(0.9, "phase"), {"phase"}),
        (histogram(COMPILE_SECONDS).buckets(), {"le"}),
        (number(1) - CALLS.sum("job"), {"job"}),
        (CALLS.sum("job").unless(up().equals(0), "job"), {"job"}),
        (CALLS.sum("job").or_(HITS.sum("function")), {"job", "function"}),
        (
            gauge(LIVE_ARRAYS).joined(
                gauge(DEVICE_INFO), ("instance", "device"), take=("device_kind",)
            ),
            {"device", "device_kind", "dtype", *SCRAPED},
        ),
        (recorded("a:b:c"), None),
        (recorded("a:b:c", labels=("job",)), {"job"}),
        (alerts().max("alertname", "job"), {"alertname", "job"}),
    ],
)
def test_labels_are_those_that_are_kept(expression, labels):
    """Aggregations drop what they do not name, joins add what they take over."""
    assert expression.shape.labels == labels


def test_metrics_are_those_that_are_read():
    """Both sides of an operation count, also inside functions and quantiles."""
    expression = call("clamp_max", ratio(HITS, CALLS), 1).and_(up().equals(1), "job")
    assert expression.shape.metrics == {JIT_CALLS.name, JIT_CACHE_HITS.name, "up"}
    quantile = histogram(COMPILE_SECONDS).quantile(0.9, "phase")
    assert quantile.shape.metrics == {COMPILE_SECONDS.name}


def test_aggregating_by_an_absent_label_is_refused():
    """A label that the series do not have, or no longer have, cannot be kept."""
    with pytest.raises(ValueError, match=r"no label \['phase'\]; it has \['function'"):
        CALLS.sum("phase")
    with pytest.raises(ValueError, match=r"no label \['job'\]; it has \['function'\]"):
        CALLS.sum("function").max("job")
