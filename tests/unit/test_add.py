"""Counts of several processes, added."""

from jaxmon import catalog
from jaxmon.exposition.add import added, lasting
from jaxmon.exposition.families import Family, Histogram, gauge, series
from jaxmon.exposition.parse import check_histogram


def calls(**counts: float) -> Family:
    metric = catalog.JIT_CALLS
    return Family(metric, [(series(metric, name), n) for name, n in counts.items()])


def seconds(metric: catalog.Metric, **values: list[float]) -> Family:
    samples = []
    for name, observed in values.items():
        one = Histogram(metric, name)
        for value in observed:
            one.observe(value)
        samples += one.samples()
    return Family(metric, samples)


def test_each_series_is_added() -> None:
    """A series has the sum of both; one that only one of them has stays."""
    (found,) = added([calls(f=1, g=2)], [calls(g=10, h=20)])
    assert found == calls(f=1, g=12, h=20)


def test_histograms_are_added_bucket_by_bucket() -> None:
    """The sum is the histogram of all observations, and valid."""
    metric = catalog.STEP_SECONDS
    first = seconds(metric, fit=[0.002, 3.0], eval=[1.0])
    second = seconds(metric, fit=[0.5], test=[7.0])
    (found,) = added([first], [second])
    assert found == seconds(metric, fit=[0.002, 3.0, 0.5], eval=[1.0], test=[7.0])
    check_histogram(found)


def test_other_buckets_are_not_added() -> None:
    """A histogram of another resolution cannot be added: the present one stays."""
    metric = catalog.STEP_SECONDS
    few = metric._replace(buckets=metric.few)
    before = Family(metric, seconds(few, fit=[0.5], test=[1.0]).samples)
    present = seconds(metric, fit=[0.002])
    (found,) = added([present], [before])
    check_histogram(found)
    assert found.samples[: len(present.samples)] == present.samples
    assert any('loop="test"' in name for name, _ in found.samples)


def test_families_of_one_side_stay() -> None:
    """A metric that only one of them has is there, with its values."""
    ours, theirs = calls(f=1), seconds(catalog.STEP_SECONDS, fit=[1.0])
    assert added([ours], [theirs]) == [ours, theirs]


def test_what_outlives_a_process() -> None:
    """Counters and histograms of the agent; not gauges, nor others' beginnings."""
    kept = [calls(f=1), seconds(catalog.STEP_SECONDS, fit=[1.0])]
    exports = gauge(catalog.OTLP_EXPORTS, 1, "metrics", "success")
    others = [
        gauge(catalog.UPTIME_SECONDS, 1),
        gauge(catalog.PROCESS_CPU_SECONDS, 1),
        gauge(catalog.QUEUE_DEPTH, 1, "q"),
        gauge(catalog.PROGRAMS, 1, "f"),
        Family(catalog.SCRAPE_SECONDS, Histogram(catalog.SCRAPE_SECONDS).samples()),
    ]
    assert lasting([*kept, exports, *others]) == [*kept, exports]
