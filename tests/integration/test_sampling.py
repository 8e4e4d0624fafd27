"""Sampled calls: who sees them, what is left alone, and what is not kept."""

import bdb
import gc
import pickle
import time
import weakref
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxmon.agent import Agent, counted
from jaxmon.agent.context import Sample
from jaxmon.agent.own_metrics import Timer
from jaxmon.agent.sampling.part import Sampling
from tests.helpers import inside
from tests.helpers.agents import instrumented, value
from tests.helpers.processes import run_python, until
from tests.helpers.timing import (
    BY_HAND,
    SIZE,
    arm,
    calibrated,
    chain,
    executions,
    figures,
    idle,
    operand,
    timed,
)


AGENT = BY_HAND


@pytest.mark.ground_truth
def test_an_armed_function_is_what_it_was(agent: Agent, sampling: Sampling) -> None:
    """
    While its next call is awaited it is the same object to look at, to copy, to bind
    as a method and to transform; and each call counts once.
    """

    class Model:
        @jax.jit  # type: ignore[untyped-decorator]
        def predict(self: Any) -> Any:
            return self * 2

        predict.attribute = 3

    step: Any = Model.__dict__["predict"]
    plain = repr(step)
    step(1.0), step(1.0)
    arm(sampling)

    assert counted.armed(step)
    assert isinstance(step, counted.CountedFunction)
    assert isinstance(step, jax.stages.Wrapped)
    assert "PjitFunction" in str(type(step))
    assert (repr(step), step.attribute) == (plain, 3)
    assert step.lower(1.0).compile()(1.0) == 2
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        pickle.dumps(step)  # as without us
    assert weakref.ref(step)() is step
    label = f"{__name__}.{Model.predict.__qualname__}"
    assert jax.grad(step)(1.0) == 2
    assert jax.vmap(step)(jnp.ones(2)).tolist() == [2, 2]
    arm(sampling)
    bound: Any = step
    assert bound.__get__(1.0)() == 2
    assert value(agent, "jaxmon_jit_calls_total", function=label) == 3


def test_observers_see_sampled_calls(agent: Agent, sampling: Sampling) -> None:
    """An observer is given the call on its thread; one that fails leaves the others."""
    seen: list[tuple[Any, ...]] = []

    def observe(sample: Sample) -> None:
        seen.append((sample.jitted, sample.args, sample.kwargs, sample.outputs))

    inside.observers(agent).sample.append(observe)
    step = jax.jit(lambda x, y: {"sum": x + y})
    x = jnp.ones(3)
    step(x, y=x), step(x, y=x)
    arm(sampling)
    result = step(x, y=x)
    step(x, y=x)

    assert len(seen) == 1
    jitted, args, kwargs, outputs = seen[0]
    assert jitted is step._jitted
    assert args[0] is x
    assert kwargs["y"] is x
    assert outputs["sum"] is result["sum"]


@pytest.mark.ground_truth
def test_any_call_may_be_the_sampled_one(agent: Agent, sampling: Sampling) -> None:
    """Where long and short runs alternate, it mostly comes during a long one."""
    seen: list[int] = []
    inside.observers(agent).sample.append(
        lambda sample: seen.append(sample.args[0].size)
    )
    step = jax.jit(lambda x: x + 1)
    short, long = jnp.ones(3), jnp.ones(7)
    step(short), step(long), step(short), step(long)
    for turn in range(40):
        sampling._saved, sampling._spent_before = 10.0, sampling.spent
        sampling._tick()
        for _ in range(16):
            step(short), step(long)
        idle(sampling)
        assert len(seen) == turn + 1

    assert set(seen) == {3, 7}


def test_dear_samples_are_taken_rarely_and_not_never(sampling: Sampling) -> None:
    """An expensive sample is paid off over time; the next one checks its cost."""
    step = jax.jit(lambda x: x + 1)
    step(1.0), step(1.0)
    sampling._cost = 5.0
    arm(sampling)
    assert counted.armed(step)

    step(1.0), step(1.0), step(1.0)
    sampling._saved = -1.0
    sampling.arm()
    assert not counted.armed(step)


@pytest.mark.ground_truth
def test_calls_that_jax_traces_are_not_sampled(sampling: Sampling) -> None:
    """A call inside another function's trace has no time of its own."""
    inner = jax.jit(lambda x: x + 1)
    inner(1.0), inner(1.0)
    arm(sampling)
    jax.jit(lambda x: inner(x) * 2)(2.0)
    once = lambda x: x - 1  # noqa: E731 - has a name of its own below
    once.__qualname__ = "once"
    jax.jit(once)(3.0)
    sampling.arm()

    assert not sampling.snapshot()
    # Programs have hundreds of functions that are called once.
    assert not any("once" in function.name for function in sampling._figures)


def test_missed_and_failed_calls_are_not_timed(sampling: Sampling) -> None:
    """A call that compiles or raises is no sample, nor is the next one."""

    def check(x: Any) -> Any:
        return x + 1

    step = jax.jit(check)
    for size in (3, 4):
        step(jnp.ones(size)), step(jnp.ones(size))
        arm(sampling)
        step(jnp.ones(size + 1))
        step(jnp.ones(size + 1))
    arm(sampling)
    with pytest.raises(TypeError):
        step(object())
    step(jnp.ones(5))

    assert not sampling.snapshot()


def test_outputs_without_arrays_have_no_execution_time(agent, sampling):
    """What returns nothing can be dispatched, but not waited for."""

    def nothing(_: Any) -> None:
        return None

    nothing.__qualname__ = "nothing"
    step = jax.jit(nothing)
    step(jnp.ones(3)), step(jnp.ones(3))
    for _ in range(3):
        arm(sampling)
        step(jnp.ones(3)), step(jnp.ones(3))
    idle(sampling)

    assert figures(sampling, "nothing")["samples"] >= 1
    assert executions(agent, "nothing") == 0


def test_keys_are_arrays_like_others(agent: Agent, sampling: Sampling) -> None:
    """PRNG keys in the making pass through sampled calls, which are timed."""
    length = calibrated(0.03)

    def draw(key: Any) -> Any:
        x = jax.random.normal(key, (SIZE, SIZE))
        x = jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(y @ y) / SIZE, x)
        return jax.random.fold_in(key, (x.sum() > 0).astype(int))

    draw.__qualname__ = "draw"
    step = jax.jit(draw)
    key = step(step(jax.random.key(0)))
    # A time that is not known well enough is not exported: some rounds give none.
    deadline = time.monotonic() + 300
    while not executions(agent, "draw"):
        assert time.monotonic() < deadline, "no execution time of a function of keys"
        arm(sampling)
        for _ in range(3):
            key = step(key)
        jax.block_until_ready(key)
        idle(sampling)

    assert value(agent, "jaxmon_internal_errors_total") == 0


def test_deleted_outputs_are_let_go(agent: Agent, sampling: Sampling) -> None:
    """An output deleted before it is ready ends the watch without a failure."""
    step, x = chain("gone", calibrated(0.05)), operand()
    timed(lambda: step(x))
    step(x).block_until_ready()
    arm(sampling)
    outputs = [step(x) for _ in range(3)]
    for output in outputs:
        output.delete()
    idle(sampling)

    assert executions(agent, "gone") == 0
    assert value(agent, "jaxmon_internal_errors_total") == 0


@pytest.mark.contained
def test_a_failing_sample_is_contained(agent: Agent, sampling: Sampling) -> None:
    """A failure of ours in a sampled call is counted; the result arrives."""

    def fail(_: Any) -> None:
        raise RuntimeError

    step = jax.jit(lambda x: x + 1)
    step(1.0), step(1.0)
    window = sampling._window
    assert window is not None
    window._on_end = fail
    inside.observers(agent).sample.append(fail)
    arm(sampling)

    assert step(1.0) == 2
    assert value(agent, "jaxmon_internal_errors_total", site="sampling") == 1
    assert step(1.0) == 2


@pytest.mark.contained
def test_an_observer_that_fails_costs_no_execution_time(agent, sampling):
    """Times are exported, and samples are taken, whatever is done with them."""

    def fail(*_: Any) -> None:
        raise RuntimeError

    observers = inside.observers(agent)
    observers.executed.insert(0, fail)
    observers.timer.insert(0, fail)
    seen: list[int] = []
    observers.timer.append(lambda: seen.append(1))
    step, x = chain("observed", calibrated(0.02)), operand()
    jax.block_until_ready(step(x))

    def measured() -> bool:
        sampling._saved, sampling._spent_before = 10.0, sampling.spent
        inside.part(agent, Timer)._ring()
        for _ in range(20):
            jax.block_until_ready(step(x))
        idle(sampling)
        return executions(agent, "observed") > 0

    until(measured, "an execution time", seconds=120)
    assert seen
    assert value(agent, "jaxmon_internal_errors_total", site="observers") > 1
    assert inside.guard(agent).on("watcher")


def test_nothing_is_kept_alive(sampling: Sampling) -> None:
    """Neither outputs nor jitted functions outlive their owner's interest in them."""
    step, x = chain("kept", 1), operand()
    step(x), step(x)
    arm(sampling)
    output = step(x)
    output = step(x)
    jax.block_until_ready(output)
    idle(sampling)
    sampling._window.close()  # type: ignore[union-attr]
    references = [weakref.ref(output), weakref.ref(step)]
    del output, step
    gc.collect()

    assert [reference() for reference in references] == [None, None]


@pytest.mark.ground_truth
def test_debugging_of_nans_keeps_its_place(sampling: Sampling) -> None:
    """
    JAX shows calls to one observer; where the user debugs, that is his. What his
    debugging leaves behind in the thread does not blind us.
    """
    step = jax.jit(lambda x: jnp.log(x) + 1)
    with jax.debug_nans(True):  # noqa: FBT003 - JAX's signature
        step(1.0), step(1.0)
        arm(sampling)
        step(1.0), step(1.0)
        with pytest.raises(FloatingPointError):
            step(-1.0)
        assert not sampling.snapshot()
    step(1.0), step(1.0)
    arm(sampling)
    step(1.0)

    assert sampling.snapshot()


def test_a_debugger_steps_over_a_jitted_call(sampling: Sampling) -> None:
    """It stops only in the program; once it has left, calls are sampled again."""
    step = jax.jit(lambda x: x * 2)
    step(1.0), step(1.0)
    arm(sampling)
    assert counted.armed(step)
    stops = []

    class Debugger(bdb.Bdb):
        def user_call(self, frame: FrameType, argument_list: None) -> None:  # noqa: ARG002 - as bdb calls it
            self.user_line(frame)

        def user_line(self, frame: FrameType) -> None:
            arm(sampling)  # as the timer does while the user reads
            stops.append(frame.f_code.co_name)
            self.set_step()

        def user_return(self, frame: FrameType, return_value: object) -> None:  # noqa: ARG002 - likewise
            if frame.f_code is program.__code__:
                self.set_continue()

    def program() -> None:
        Debugger().set_trace()
        step(1.0)
        step(1.0)

    program()
    assert stops == ["program"] * 2
    gc.collect()  # while the collector is due, no stack is read
    arm(sampling)
    assert counted.armed(step)


def test_functions_are_disarmed_with_the_agent() -> None:
    """After `jaxmon.uninstrument` no call is awaited, and JAX's place is empty."""
    with instrumented(**BY_HAND) as agent:
        sampling = inside.sampling(agent)
        step = jax.jit(lambda x: x + 1)
        step(1.0), step(1.0)
        arm(sampling)
        assert counted.armed(step)
        step(1.0)
        assert counted.armed(step)  # the window is open, for the call that follows
        window = sampling._window
        assert window is not None
        place = window._place
        assert place._get() is not None

    assert not counted.armed(step)
    assert place._get() is None
    assert step(1.0) == 2


ENDS_EARLY = """
import jax, jax.numpy as jnp, jaxmon
from tests.helpers import inside
agent = jaxmon.instrument(port=None, socket=False, sample_rate=0.001)
step = jax.jit(lambda x: jax.lax.fori_loop(0, 500, lambda _, y: jnp.tanh(y @ y), x))
x = jnp.ones((400, 400))
step(x)
step(x)
sampling = inside.sampling(agent)
sampling.arm()
step(x)
step(x)
assert sampling._watcher._held
print("ends")
"""


@pytest.mark.exhaustive
def test_a_process_may_end_while_a_call_is_watched() -> None:
    """The interpreter ends as it would without us, with work still on the device."""
    result = run_python("-c", ENDS_EARLY).ok()

    assert result.out.split() == ["ends"]
