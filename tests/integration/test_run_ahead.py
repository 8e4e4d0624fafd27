"""Whether a program is ahead of its device, by calls that are seen now and then."""

import threading
import time
from typing import Any

import jax.numpy as jnp
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.counted import armed, waiting_for
from jaxmon.agent.sampling.execution import Sampler
from jaxmon.agent.sampling.part import Sampling
from jaxmon.agent.sampling.window import CallEnd, DeviceWork, DispatchProbe, RunAhead
from tests.helpers.inside import table
from tests.helpers.processes import until
from tests.helpers.timing import BY_HAND, arm, calibrated, chain, operand


SECONDS = 0.1


AGENT = BY_HAND


class ByHand(RunAhead):
    """Looks when the test does, not when a thread of the agent would."""

    def look(self) -> tuple[float, float]:
        ours = threading.get_ident() == threading.main_thread().ident
        return super().look() if ours else (0.0, 0.0)


@pytest.fixture
def run_ahead(agent: Agent, sampling: Sampling) -> RunAhead:
    """Return what follows the calls, as in a job that calls all functions together."""
    found = sampling.run_ahead = ByHand(lambda: list(table(agent)), sampling.begin)
    return found


def sampled(sampling: Sampling, step: Any) -> None:
    """Call *step* until a call of it has been sampled."""
    x = operand()
    step(x), step(x)
    arm(sampling)
    while armed(step):
        step(x)


@pytest.mark.ground_truth
def test_a_call_shows_whether_the_device_has_work(run_ahead, sampling):
    """From the call, by the test's own clock, until its output is ready; then none."""
    step = chain("step", calibrated(SECONDS))
    sampled(sampling, step)

    def known() -> bool:
        run_ahead._due = 0.0
        run_ahead.look()
        assert isinstance(waiting_for(step), DispatchProbe)
        began = time.perf_counter()
        output = step(operand())
        returned, looks = time.perf_counter(), 0
        while not output.is_ready():
            least = time.perf_counter() - returned
            ahead, behind = run_ahead.look()
            most = time.perf_counter() - began
            if not output.is_ready():
                assert least <= ahead <= most
                assert behind == 0.0
                looks += 1
        run_ahead.look()
        ahead, behind = run_ahead.look()
        assert ahead == 0.0
        assert 0.0 < behind <= time.perf_counter() - began
        return looks > 0

    # Under load it may be finished before it is looked at. The second time, what was
    # seen before has nothing to do with it.
    for _ in range(2):
        until(known, "a call to be in flight")
    # Of a call that was not seen it is not known whether it is finished.
    step(operand())
    step(operand()).block_until_ready()
    run_ahead.look()
    assert run_ahead.look() == (0.0, 0.0)


def test_calls_are_seen_and_sampled(run_ahead: RunAhead, sampling: Sampling) -> None:
    """Whichever of the two begins to wait first, the call after that is sampled."""
    step = chain("step", 1)
    sampled(sampling, step)
    run_ahead.look()
    arm(sampling)
    assert isinstance(waiting_for(step), DispatchProbe)
    step(operand())
    assert isinstance(waiting_for(step), Sampler)
    run_ahead._due = 0.0
    run_ahead.look()
    assert isinstance(waiting_for(step), DispatchProbe)
    step(operand())
    assert isinstance(waiting_for(step), Sampler)


def test_calls_are_seen_now_and_then(run_ahead: RunAhead, sampling: Sampling) -> None:
    """Not as often as someone looks: each of them takes time."""
    step = chain("step", 1)
    sampled(sampling, step)
    run_ahead.look()
    assert isinstance(waiting_for(step), DispatchProbe)
    step(operand())
    run_ahead._due = time.perf_counter() + 60.0
    run_ahead.look()
    assert not isinstance(waiting_for(step), DispatchProbe)
    run_ahead._due = 0.0
    run_ahead.look()
    assert isinstance(waiting_for(step), DispatchProbe)


def test_large_outputs_are_not_kept(run_ahead: RunAhead) -> None:
    """They would take memory of the device until the next look."""
    for size, kept in ((1000, True), (2000, False)):
        work = DeviceWork((jnp.ones(size),))
        begun: Any = None
        run_ahead.dispatched(CallEnd(begun, 1.0, work, None, None, (), {}, None))
        assert (run_ahead._work is work) is kept


def test_what_other_processes_take_no_part_in_is_not_followed(agent, sampling):
    """A program on its own devices says nothing about what others wait for."""
    assert agent.running
    step = chain("step", 1)
    sampled(sampling, step)
    sampling.run_ahead.look()
    assert not armed(step)
