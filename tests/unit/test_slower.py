"""Verdicts on run times: slower, not slower, or unclear, with the reason."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from jaxmon.errors import BaselineError
from jaxmon.limits import Limits
from jaxmon.preflight.baseline.compare import CostChange, compare, judge, lines
from jaxmon.preflight.baseline.record import (
    RUN_SECONDS,
    TOLERANCES,
    Baseline,
    RunTimes,
    TimedRun,
    Tolerance,
    from_processes,
    from_runs,
    read,
    tolerances,
    write,
)
from jaxmon.preflight.baseline.run import compare_runs


STEADY = (0.010, 0.0101, 0.0099, 0.0102, 0.0098)
CPU = {"jax": "0.10.2", "platform": "cpu", "device": "cpu", "processor": "Xeon"}
GPU = {"jax": "0.10.2", "platform": "gpu", "device": "H100", "processor": "Xeon"}


def run(
    wall: float,
    processor: float | None = None,
    *,
    waited: float | None = 0.0,
    work: float = 2e-4,
    shapes: Sequence[str] = ("float32[8]",),
) -> TimedRun:
    """Return a run in which the function ``f`` took so many seconds."""
    times = RunTimes(9, (wall,) * 5, (wall if processor is None else processor,) * 5)
    return TimedRun(waited, (work,) * 5, {"f": dict.fromkeys(shapes, times)})


def runs(
    factor: float, processor: float | None = None, **options: Any
) -> list[TimedRun]:
    """Return five runs that took *factor* times as long as usual."""
    return [
        run(factor * one, (factor if processor is None else processor) * one, **options)
        for one in STEADY
    ]


def judged(
    before: list[TimedRun], after: list[TimedRun], platform: str = "cpu"
) -> CostChange:
    """Return the verdict on the function."""
    tolerance = TOLERANCES[RUN_SECONDS]
    (found,) = judge(before, after, tolerance, platform=platform)
    return found


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1, "within"), (1.15, "within"), (1.4, "worse"), (5, "worse"), (0.5, "better")],
)
def test_steady_runs_are_judged(platform: str, factor: float, verdict: str) -> None:
    """Slower beyond the tolerance is worse, anything less is not."""
    assert judged(runs(1), runs(factor), platform).verdict == verdict


@pytest.mark.parametrize(
    ("before", "after", "verdict", "reason"),
    [
        # Others took half of the processors: twice the wall time, the same work.
        (runs(1), runs(2, 1, waited=0.4), "unclear", "others held the processors"),
        (runs(1), runs(2, 1, waited=None), "unclear", "others held the processors"),
        # As little as nobody waited for a processor, the program uses fewer.
        (runs(1), runs(2, 1), "worse", ""),
        # The baseline was recorded on a busy machine.
        (runs(2, 1), runs(1, 1.5), "unclear", "but no longer"),
        # The machine is slower, at everything.
        (runs(1), runs(2, work=4e-4), "within", ""),
        # A faster machine is no excuse, and no reproach.
        (runs(1), runs(1, work=1e-4), "within", ""),
        (runs(1), runs(1)[:4] + runs(9)[:1], "within", ""),
        (runs(1), runs(1)[:2] + runs(9)[:3], "unclear", "differ too much"),
        (runs(1)[:1], runs(2), "unclear", "1 and 5 runs are too few"),
        (runs(1)[:1], runs(1), "within", ""),
    ],
    ids=[
        "crowded",
        "unknown_waiting",
        "fewer_threads",
        "crowded_before",
        "slower_machine",
        "faster_machine",
        "outlier",
        "noise",
        "too_few",
        "few_but_same",
    ],
)
def test_what_is_not_the_programs_fault_is_no_regression(
    before, after, verdict, reason
):
    """A busy or slower machine and noise are told apart from a slower program."""
    found = judged(before, after)
    assert found.verdict == verdict
    assert reason in found.reason


def test_same_distribution_is_rarely_accused_whatever_it_is() -> None:
    """Of noise with outliers, on both sides the same, nothing is called slower."""
    chance = random.Random(1)  # noqa: S311 - noise, the same each time
    for _ in range(500):
        before, after = (
            [run(0.01 * chance.lognormvariate(0, 0.4)) for _ in range(5)]
            for _ in range(2)
        )
        assert judged(before, after, "gpu").verdict != "worse"


def test_programs_of_one_function_are_compared_by_shapes() -> None:
    """Another shape is another program: it is not compared with the first."""
    before, after = runs(1, shapes=("a", "b")), runs(3, shapes=("b", "c"))
    assert judged(before, after).verdict == "worse"
    assert not list(judge(before, runs(3, shapes=("c",)), Tolerance(), platform="cpu"))
    two = list(judge(before, before, Tolerance(), platform="cpu"))
    assert [one.shapes for one in two] == ["a", "b"]


def record(found: list[TimedRun], versions: dict[str, str] | None = None) -> Baseline:
    return Baseline(versions or CPU, {"f": {"compiles": 1}}, tuple(found))


def test_regression_is_shown_with_what_changed_beside_it() -> None:
    """The gate fails, and the last line names the flag."""
    after = {**CPU, "XLA_FLAGS": "--slow"}
    found = compare(record(runs(1)), record(runs(3), after), tolerances((), Limits()))
    assert len(found.worse) == 1
    shown = list(lines(found))
    assert "changed: XLA_FLAGS: none → --slow" in shown
    assert shown[-1] == (
        "1 regression in 1 of 1 function; changed: XLA_FLAGS: none → --slow"
    )
    row = next(line.split() for line in shown if "processor_seconds" in line)
    assert row[-3:] == ["+200.0%", "25%+0.00002", "WORSE"]


def test_what_cannot_be_told_is_said() -> None:
    """Noise and another processor are named, and are no regression."""
    noisy = compare(
        record(runs(1)), record(runs(2, 1, waited=1)), tolerances((), Limits())
    )
    assert not noisy.worse
    assert any("cannot tell whether f is slower" in one for one in lines(noisy))
    other = record(runs(9), {**CPU, "processor": "EPYC"})
    elsewhere = compare(record(runs(1)), other, tolerances((), Limits()))
    assert (elsewhere.times, elsewhere.worse) == ((), ())
    assert any("the baseline is of another processor" in o for o in lines(elsewhere))
    # Of the device, which does the work, the model is the same.
    moved = record(runs(9), {**GPU, "processor": "EPYC"})
    assert compare(record(runs(1), GPU), moved, tolerances((), Limits())).worse


def test_tolerance_of_run_times_is_an_option() -> None:
    """It may be larger, or off."""
    before, after = record(runs(1)), record(runs(3))
    assert not compare(before, after, tolerances(["run_seconds=300%"], Limits())).worse
    assert not compare(before, after, tolerances(["run_seconds=off"], Limits())).times


def test_records_with_times_survive_their_file(tmp_path: Any) -> None:
    """What is written is read; quantiles take a line each."""
    one = from_runs([record([found]) for found in runs(1)])
    write(one, tmp_path / "b.json")
    assert read(tmp_path / "b.json") == one
    assert "[ 0.01, 0.01, 0.01, 0.01, 0.01 ]" in (tmp_path / "b.json").read_text()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"wall": [ 0.01,', '"wall": ['),
        lambda text: text.replace('"calls": 9', '"calls": -1'),
        lambda text: text.replace('"waited": 0.0', '"waited": "0"'),
        lambda text: text.replace('"wall"', '"walls"'),
        lambda text: text.replace('"runs": [', '"runs": [ 1,'),
        lambda text: text.replace('"runs": [', '"runs": 1, "x": ['),
    ],
)
def test_damaged_times_are_refused(tmp_path: Any, damage: Any) -> None:
    """They are an error, and not a comparison of something else."""
    path = tmp_path / "b.json"
    text = str(record([run(0.01)]))
    assert damage(text) != text
    path.write_text(damage(text))
    with pytest.raises(BaselineError, match="is not a baseline"):
        read(path)


def test_processes_of_a_run_are_put_together() -> None:
    """Of a program that several processes run, the one with most calls counts."""
    many = run(0.01)
    few = TimedRun(
        0.5, (), {"f": {"float32[8]": RunTimes(1, (0.02,) * 5, (0.02,) * 5)}}
    )
    documents = [
        {"versions": CPU, "functions": {}, "times": one.as_json()}
        for one in (few, many)
    ]
    (found,) = from_processes(documents).runs
    assert found.functions == many.functions
    assert (found.waited, found.calibration) == (0.5, many.calibration)


class Command:
    """A command that takes so long, run by run; it says which ran in which order."""

    def __init__(self, name: str, taken: list[TimedRun], order: list[str]) -> None:
        self._name, self._taken, self._order = name, taken, order

    def __call__(self, number: int) -> Baseline:
        self._order.append(self._name)
        return record([self._taken[number]])


@pytest.mark.parametrize(
    ("after", "needed"), [(runs(1), 1), (runs(1.6), 5), (runs(9)[:1] + runs(1), 3)]
)
def test_command_runs_only_as_often_as_needed(after, needed):
    """Once nothing can turn out slower, it does not run again."""
    order: list[str] = []
    before = record(runs(1))
    command = Command("new", after, order)
    found = compare_runs(before, command, 5, tolerances((), Limits()))
    assert len(order) == needed
    assert bool(found.worse) == (needed == 5)


def test_two_commands_run_alternately() -> None:
    """What happens to the machine happens to both."""
    order: list[str] = []
    old, new = Command("old", runs(1), order), Command("new", runs(2), order)
    assert compare_runs(old, new, 5, tolerances((), Limits())).worse
    assert order == ["old", "new"] * 5
    order.clear()
    assert not compare_runs(old, old, 5, tolerances((), Limits())).worse


def test_few_runs_of_the_baseline_do_not_cost_more_runs() -> None:
    """If no number of runs could show anything, one is enough."""
    order: list[str] = []
    command = Command("new", runs(9), order)
    found = compare_runs(record(runs(1)[:1]), command, 5, tolerances((), Limits()))
    assert len(order) == 1
    assert "too few" in found.unclear[0].reason


@pytest.mark.parametrize(
    ("seconds", "waited", "verdict", "needed"),
    [
        ([3, 3, 3, 3, 3], 0.0, "worse", 5),
        ([3, 3, 3, 3, 3], 0.5, "unclear", 5),
        ([3, 3, 1, 3, 3], 0.5, None, 3),
        ([1, 3, 3, 3, 3], 0.5, None, 1),
    ],
    ids=["slow", "crowded", "slow_at_first", "as_before"],
)
def test_slow_compiles_get_another_chance(
    seconds: list[float], waited: float, verdict: str | None, needed: int
) -> None:
    """The fastest counts, unless others held processors."""
    order: list[int] = []

    def command(number: int) -> Baseline:
        order.append(number)
        figures = {"f": {"compiles": 1, "compile_seconds": seconds[number]}}
        return Baseline(CPU, figures, (run(0.01, waited=waited),))

    before = Baseline(CPU, {"f": {"compiles": 1, "compile_seconds": 1}}, tuple(runs(1)))
    found = compare_runs(before, command, 5, tolerances((), Limits()))
    assert [change.verdict for change in found.changes] == (
        [verdict] if verdict else []
    )
    assert len(order) == needed
