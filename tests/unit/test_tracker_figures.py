"""Figures of a loop between two of its steps, by a clock moved by hand."""

import pytest

from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.trackers import LoopReading, Sources, reading, times, totals
from jaxmon.catalog import ACCELERATOR_UTILIZATION_RATIO, DEVICE_MEMORY_BYTES
from jaxmon.exposition.families import Family, series
from jaxmon.indicators.loops import StepLoop
from jaxmon.indicators.marks import STEP
from jaxmon.indicators.timeline import Timeline


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _memory(kind: str, *amounts: float) -> Family:
    metric = DEVICE_MEMORY_BYTES
    labels = [name if name != "kind" else kind for name in metric.labels]
    return Family(metric, [(series(metric, *labels), one) for one in amounts])


def test_times_are_those_since_the_figures_before() -> None:
    """Four steps of 2 s, of which each waits half a second; 3 s of something else."""
    clock, loop = Clock(), StepLoop("train")
    timeline = Timeline(10, clock=clock)
    mark = loop.begin(timeline, [], timeline)
    sources = Sources(FunctionTable(10), timeline, (), lambda: None)
    before = reading(loop, sources)
    for _ in range(4):
        clock.now += 0.5
        timeline.turn(mark, clock.now, finished=False)
        clock.now += 1.5
        timeline.turn(mark, clock.now, finished=True)
    timeline.open("evaluate", [])
    clock.now += 3.0
    found = times(reading(loop, sources), before)

    assert mark.body == STEP
    assert found["step_seconds"] == 2.0
    assert found["data_wait_seconds"] == 0.5
    assert found["goodput"] == pytest.approx(6 / 11)
    assert "mfu" not in found


def test_utilization_is_of_the_time_between() -> None:
    """Two seconds of work at the peak in eleven; none if a call's FLOPs are unknown."""
    before = LoopReading(0, 0.0, 0.0, 0.0, 100.0, ideal=(5.0, 3))
    now = LoopReading(4, 8.0, 2.0, 6.0, 111.0, ideal=(7.0, 3))

    assert times(now, before)["mfu"] == pytest.approx(2 / 11)
    assert times(now, before, ideal=0.5)["mfu"] == pytest.approx(0.5 * 4 / 8)
    for unknown in (None, (7.0, 4)):
        assert "mfu" not in times(now._replace(ideal=unknown), before)
    assert "mfu" not in times(now, None)


def test_the_fullest_device_and_the_mean_utilisation_count() -> None:
    """What is not known is left out."""
    sources = Sources(
        FunctionTable(10),
        Timeline(10),
        (
            lambda: [_memory("peak", 5, 9), _memory("in_use", 4, 3)],
            lambda: [Family(ACCELERATOR_UTILIZATION_RATIO, [("a", 0.5), ("b", 1.0)])],
        ),
        lambda: None,
    )

    assert totals(sources) == {
        "compiles": 0,
        "recompiles": 0,
        "compile_seconds": 0.0,
        "device_memory_peak_bytes": 9,
        "device_memory_in_use_bytes": 4,
        "accelerator_utilization_ratio": 0.75,
    }
