"""The synthetic fleet: deterministic, monotonic, complete."""

import pytest

from jaxmon.catalog import ACCELERATOR_ENERGY_JOULES, BY_NAME, COMPILE_SECONDS
from jaxmon_exporter.collectors.synthetic import Demo


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


def page(demo: Demo) -> dict[str, float]:
    return {name: value for family in demo.collect() for name, value in family.samples}


def test_same_seed_and_time_give_the_same_fleet() -> None:
    """Two exporters with one seed agree on every figure; another seed differs."""
    first, second, other = (Demo(seed=seed, clock=Clock()) for seed in (1, 1, 2))
    assert page(first) == page(second)
    assert page(first) != page(other)


@pytest.mark.exhaustive
def test_counters_never_fall() -> None:
    """Every counter and bucket grows or stays as time passes, and some grow."""
    clock = Clock()
    demo = Demo(clock=clock)
    before = page(demo)
    for _ in range(50):
        clock.now += 13.0
        after = page(demo)
        assert after.keys() == before.keys()
        counters = [
            series
            for series in after
            if series.partition("{")[0].endswith(("_total", "_bucket", "_sum"))
        ]
        assert all(after[series] >= before[series] for series in counters)
        assert any(after[series] > before[series] for series in counters)
        before = after


def test_energy_is_the_integral_of_power() -> None:
    """The rate of the energy counter is the power that is shown."""
    clock = Clock()
    demo = Demo(clock=clock)
    joules = ACCELERATOR_ENERGY_JOULES.name
    before = page(demo)
    clock.now += 0.5
    middle = page(demo)
    clock.now += 0.5
    after = page(demo)
    for series, start in before.items():
        if series.startswith(joules):
            watts = middle[series.replace(joules, "jaxmon_accelerator_power_watts")]
            assert abs((after[series] - start) - watts) < 1.0


def test_every_metric_is_in_the_catalogue() -> None:
    """The demo shows real metrics only, with histograms that are complete."""
    families = list(Demo(clock=Clock()).collect())
    assert {family.metric.name for family in families} <= BY_NAME.keys()
    names = {
        series.partition("{")[0]
        for family in families
        if family.metric is COMPILE_SECONDS
        for series, _ in family.samples
    }
    assert names == {
        f"{COMPILE_SECONDS.name}{end}" for end in ("_bucket", "_sum", "_count")
    }
