"""FLOPs of the calls of a function that has one program, or several."""

from types import SimpleNamespace
from typing import Any

from jaxmon.agent.context import context_of
from jaxmon.agent.flops.part import FunctionTally, UtilizationPart
from jaxmon.agent.flops.roofline import CallCost, Executions, roofline
from jaxmon.facts.functions import Uncounted
from jaxmon.settings import Settings


SMALL = CallCost({"model": 2.0}, {"model": 0.5})
LARGE = CallCost({"model": 10.0, "recomputed": 5.0}, {"model": 2.0, "recomputed": 1.0})
A, B = ("float32[2]",), ("float32[8]",)


def compiled(tally: FunctionTally, cost: Any, shapes: Any, calls: int) -> None:
    """Compile a program in the latest of so many *calls*."""
    tally.expect(calls)
    tally.add(cost, shapes)


def test_programs_that_need_as_much_are_as_one() -> None:
    """Another sharding is another program with the same FLOPs."""
    tally = FunctionTally()
    compiled(tally, SMALL, A, 1)
    compiled(tally, SMALL, B, 3)
    compiled(tally, SMALL._replace(part=0.5), A, 4)

    assert not tally.mixed
    assert tally.totals(10).flops == {"model": 20.0}
    assert tally.cost(A) == SMALL._replace(part=0.0)
    assert tally.unknown is None


def test_programs_may_be_counted_after_others_are_compiled() -> None:
    """The calls before each program are known when its FLOPs are."""
    tally = FunctionTally()
    tally.expect(1)
    tally.expect(5)
    tally.expect(6)
    assert tally.totals(6).flops == {}

    tally.add(SMALL, A)
    assert tally.totals(6).flops == {"model": 4 * 2.0}
    tally.add(SMALL._replace(part=0.5), A)
    assert tally.totals(6).flops == {"model": 5 * 2.0}
    tally.add(LARGE, B)
    assert tally.mixed
    assert tally.totals(9).flops == {"model": 5 * 2.0}


def test_what_cannot_be_told_apart_is_unknown() -> None:
    """Programs that differ in static arguments only; samples of no known program."""
    same, other, loop = FunctionTally(), FunctionTally(), FunctionTally()
    compiled(same, SMALL, A, 1)
    compiled(same, LARGE, A, 2)
    compiled(other, SMALL, A, 1)
    compiled(other, LARGE, B, 2)
    other.sampled(("int8[]",), 3)
    compiled(loop, SMALL, A, 1)
    compiled(loop, Uncounted("loop"), B, 2)

    assert same.unknown == Uncounted("programs")
    assert other.unknown == Uncounted("programs")
    assert loop.unknown == Uncounted("loop")


def test_an_unknown_peak_leaves_the_flops() -> None:
    """There is no time at the peak then, also not of other programs."""
    tally = FunctionTally()
    compiled(tally, SMALL._replace(ideal=None), A, 1)

    assert tally.totals(3) == CallCost({"model": 6.0}, None)


def test_executions_are_compared_with_the_devices_that_run_them() -> None:
    """Half of the devices at a quarter of their peak are an eighth of all."""
    found: Any = Executions()
    assert (found.achieved, found.of_peak) == (None, None)
    for _ in range(2):
        found.add(CallCost({"model": 6.0}, {"model": 0.5}, part=0.5), 4.0)

    assert found.achieved == 1.5
    assert found.of_peak == 0.25
    found.add(CallCost({"model": 6.0}, {"model": 0.5}, part=0.5), 400.0)  # delayed
    assert (found.achieved, found.of_peak) == (1.5, 0.25)
    found.add(SMALL._replace(part=0.0), 1.0)
    assert found.of_peak is None


def test_a_process_has_its_share_of_a_program() -> None:
    """Two of eight devices compute a quarter, and are all that the process has."""
    jax = SimpleNamespace(local_devices=lambda: ["cpu:0", "cpu:1"])
    part = UtilizationPart(context_of(jax, Settings()))

    mine = part._share(CallCost({"model": 80.0}, {"model": 16.0}), 2, 8)
    assert mine == CallCost({"model": 20.0}, {"model": 2.0}, part=1.0)
    alone = part._share(CallCost({"model": 80.0}, {"model": 16.0}), 1, 1)
    assert alone == CallCost({"model": 80.0}, {"model": 8.0}, part=0.5)


def test_the_roof_has_two_sides() -> None:
    """A program with fewer FLOPs per byte than the ridge is bound by memory."""
    # 100 FLOP/s, 10 bytes per second: the ridge is at 10 FLOPs per byte.
    low, high = roofline(200, 2.0, 40, 10), roofline(200, 2.0, 4, 10)
    assert low is not None
    assert high is not None
    assert (low.intensity, low.ridge, low.bound) == (5, 10, "memory")
    assert (high.intensity, high.bound) == (50, "arithmetic")
    for unknown in ((200, None, 4, 10), (200, 2, None, 10), (200, 2, 4, None)):
        assert roofline(*unknown) is None
    assert roofline(0, 0.0, 4, 10) is None


def test_calls_of_a_program_that_is_not_counted_yet_wait() -> None:
    """They would count as calls of the program before."""
    tally = FunctionTally()
    compiled(tally, SMALL, A, 1)
    tally.expect(5)
    assert tally.totals(8).flops == {"model": 4 * 2.0}
    tally.add(LARGE, B)
    tally.sampled(B, 9)

    assert tally.totals(9).flops["model"] == 4 * 2.0 + 5 * 10.0
    tally.expect(10)
    tally.expect_none()
    assert tally.unknown == Uncounted("untraced")
