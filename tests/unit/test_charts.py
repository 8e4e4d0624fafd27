"""How a run went, in few numbers: moments that become wider, and means of seconds."""

from statistics import mean

from jaxmon.agent.charts import (
    MOST,
    MOST_MEANS,
    ChartCounters,
    ChartMoment,
    Means,
    Moments,
)
from jaxmon.agent.functions import FunctionTable
from jaxmon.facts.record import encoded
from jaxmon.indicators.loops import Loops
from jaxmon.indicators.routes import Routes
from jaxmon.indicators.timeline import Timeline


def test_a_long_run_keeps_as_few_moments_as_a_short_one() -> None:
    """All of it is covered, its mean and its highest value are what they were."""
    moments = Moments(highest=["memory"])
    values = [float(n % 7) for n in range(5000)]
    for second, value in enumerate(values):
        moments.add(ChartMoment(second, {"steps": value, "memory": value}))
    found = encoded(moments.series())

    assert len(found["steps"]["times"]) <= MOST
    assert len(found["steps"]["times"]) >= MOST / 2 - 1
    assert found["steps"]["times"][0] < 100
    assert found["steps"]["times"][-1] == 4999
    assert abs(mean(found["steps"]["values"]) - mean(values)) < 0.1
    assert max(found["memory"]["values"]) == 6


def test_what_is_not_known_at_a_moment_is_absent() -> None:
    """A series that begins later has fewer moments, each at its own time."""
    moments = Moments()
    moments.add(ChartMoment(1.0, {"steps": 1.0}))
    moments.add(ChartMoment(2.0, {"steps": 2.0, "latency": 0.5}))

    assert encoded(moments.series()) == {
        "steps": {"times": [1.0, 2.0], "values": [1.0, 2.0]},
        "latency": {"times": [2.0], "values": [0.5]},
    }


def test_means_are_those_between_two_polls() -> None:
    """Each poll adds one, unless nothing happened; the latest hundred are kept."""
    means = Means()
    assert means.add("train", 10, 5.0) == (10, 5.0)
    assert means.add("train", 10, 5.0) == (0, 0.0)
    means.add("train", 12, 5.4)
    found = means.spreads()["train"]
    assert found.count == 2
    assert abs(found.low - 0.2) < 1e-9
    assert found.high == 0.5

    for number in range(13, 500):
        means.add("train", number, 5.4 + number)
    assert means.spreads()["train"].count == MOST_MEANS


def test_counters_equal_what_was_counted() -> None:
    """Steps, requests, failures, latency and compiling, of the time between polls."""
    table, loops, routes = FunctionTable(10), Loops(10), Routes(10)
    counters = ChartCounters(table, loops, routes)
    assert dict(counters.poll(1.0)) == {"compiling": 0.0}

    timeline, loop = Timeline(10, clock=lambda: 1.0), loops.of("train")
    mark = loop.begin(timeline, [], timeline)
    for number in range(1, 5):
        timeline.turn(mark, 1.0 + number / 4, finished=True)
    routes.of("predict").count(0.1, "success", "warm")
    routes.of("predict").count(9.0, "success", "cold")
    routes.of("predict").count(0.3, "error", "warm")
    table.named("step").observe_phase("backend_compile", 0.5)

    assert dict(counters.poll(2.0)) == {
        "steps": 2.0,
        "step_seconds": 0.25,
        "requests": 1.5,
        "errors": 0.5,
        "latency": 0.1,
        "compiling": 0.25,
    }
    assert dict(counters.poll(2.0)) == {
        "steps": 0.0,
        "requests": 0.0,
        "errors": 0.0,
        "compiling": 0.0,
    }
