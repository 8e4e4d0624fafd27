"""Fewer series of an agent."""

from dataclasses import fields, replace

import pytest

from jaxmon import catalog
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.own_metrics import Reduction, reduction_of
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, Histogram, Sample, gauge, series
from jaxmon.settings import Settings, declared
from jaxmon_exporter.collectors import agents as page


@pytest.fixture
def table():
    """Return a table with functions of JAX and of a program."""
    table = FunctionTable(200)
    for name in ("jax.numpy.add", 'jax.numpy."odd"\\', "jax._src.add"):
        table.named(name, internal=True)
    for name in ("__main__.step", "jax.numpy.add_all", "jaxtools.fit"):
        table.named(name)
    return table


def values(families):
    """Return the value of each series; none occurs twice."""
    samples = [one for family in families for one in family.samples]
    assert len(dict(samples)) == len(samples)
    return dict(samples)


def counts(metric, **by_function):
    """Return a family of counts by function."""
    return Family(metric, [(series(metric, n), v) for n, v in by_function.items()])


def test_by_default_nothing_is_reduced(table):
    """Then nothing is done at a scrape either."""
    assert reduction_of(Settings(), table) is None
    assert reduction_of(Settings(few_buckets=" , "), table) is None


def test_functions_of_jax_are_one(table):
    """Their counts add up; those of the program stay, whatever their names."""
    by_name = {one.name: 10**n for n, one in enumerate(table)}
    reduction = reduction_of(Settings(jax_functions=False), table)
    assert reduction is not None
    for _ in range(2):  # also with what is known of the series
        found = values(reduction.of([counts(catalog.JIT_CACHE_MISSES, **by_name)]))

        assert found == {
            series(catalog.JIT_CACHE_MISSES, "jax"): 111,
            series(catalog.JIT_CACHE_MISSES, "__main__.step"): 1000,
            series(catalog.JIT_CACHE_MISSES, "jax.numpy.add_all"): 10_000,
            series(catalog.JIT_CACHE_MISSES, "jaxtools.fit"): 100_000,
        }


def test_other_labels_are_kept(table):
    """What a function is counted by beside its name remains."""
    metric = catalog.RECOMPILES
    samples: list[Sample] = [
        (series(metric, "jax.numpy.add", "shape"), 1),
        (series(metric, "jax.numpy.add", "dtype"), 2),
        (series(metric, "jax._src.add", "shape"), 4),
        (series(metric, "__main__.step", "shape"), 8),
    ]
    reduction = Reduction(table, functions=False, few=())

    assert values(reduction.of([Family(metric, samples)])) == {
        series(metric, "jax", "shape"): 5,
        series(metric, "jax", "dtype"): 2,
        series(metric, "__main__.step", "shape"): 8,
    }


def test_what_has_no_sum_is_left_out(table):
    """The size of a function's latest program is that of no other."""
    found = values(
        Reduction(table, functions=False, few=()).of(
            [
                counts(
                    catalog.PROGRAM_FLOPS, **{"jax.numpy.add": 5, "jaxtools.fit": 6}
                ),
                gauge(catalog.PROGRAM_INFO, 1, "jax._src.add", "abc"),
                gauge(catalog.COMPILES_IN_PROGRESS, 3),
            ]
        )
    )
    assert found == {
        series(catalog.PROGRAM_FLOPS, "jaxtools.fit"): 6,
        catalog.COMPILES_IN_PROGRESS.name: 3,
    }


@pytest.mark.parametrize("few", ["", "compile", "Compile, self", "all"])
def test_a_reduced_page_is_valid(table, few):
    """The sidecar accepts it: buckets rise, and the highest is the count."""
    histograms = []
    for number, function in enumerate(table):
        histogram = Histogram(catalog.COMPILE_SECONDS, function.name, "trace")
        for seconds in (0.005, 0.2, 5.0, 1000.0)[: number + 1]:
            histogram.observe(seconds)
        histograms += histogram.samples()
    steps = Histogram(catalog.STEP_SECONDS, "train")
    steps.observe(0.05)
    families = [
        Family(catalog.COMPILE_SECONDS, histograms),
        Family(catalog.STEP_SECONDS, steps.samples()),
    ]
    settings = replace(Settings(jax_functions=False), few_buckets=few)
    reduction = reduction_of(settings, table)
    assert reduction is not None
    relayed = values(page.page_families("0", encode(reduction.of(families)).decode()))

    bounds = catalog.COMPILE_SECONDS.few if few else catalog.COMPILE_SECONDS.buckets
    steps_bounds = (
        catalog.STEP_SECONDS.few if few == "all" else catalog.STEP_SECONDS.buckets
    )
    name, ours = catalog.COMPILE_SECONDS.name, 'worker="0",function="jax",phase="trace"'
    assert len(relayed) == 4 * (len(bounds) + 3) + len(steps_bounds) + 3
    assert relayed[f'{name}_bucket{{{ours},le="0.1"}}'] == 3
    assert relayed[f'{name}_bucket{{{ours},le="1.0"}}'] == 5
    assert relayed[f'{name}_bucket{{{ours},le="+Inf"}}'] == 6
    assert relayed[f"{name}_count{{{ours}}}"] == 6
    assert relayed[f"{name}_sum{{{ours}}}"] == pytest.approx(0.015 + 0.4 + 5)


def test_the_groups_are_those_of_the_catalogue():
    """Each group with a histogram of an agent may be reduced, and no other."""
    (setting,) = [one for one in fields(Settings) if one.name == "few_buckets"]
    groups = {
        metric.group.lower()
        for metric in catalog.METRICS
        if metric.kind == "histogram" and "agent" in metric.sources
    }
    assert set(declared(setting).among) == {*groups, "all"}
