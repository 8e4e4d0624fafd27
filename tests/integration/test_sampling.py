"""
Sampled calls: their times against a clock of the test's own, and what is left alone.
"""

from __future__ import annotations

import gc
import pickle
import time
import weakref
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.calling import calls
from jaxmon.agent.calling.sampling import Sample, Sampling
from tests.instrumented import instrumented, value
from tests.support import run_python, until


# Small enough that one thread multiplies: the machine's other load matters less.
SIZE = 32

# The timer of such an agent does not come round within a test: the test arms.
BY_HAND = {"sample_rate": 0.001, "transfers": False}


@pytest.fixture
def agent() -> Iterator[Agent]:
    """
    Return an agent that samples when told to.
    """
    with instrumented(**BY_HAND) as running:
        yield running


@pytest.fixture
def sampling(agent: Agent) -> Sampling:
    """
    Return what samples in it.
    """
    return agent._parts.sampling


def chain(name: str, length: int, **options: Any) -> Any:
    """
    Return a jitted chain of *length* matrix products, called *name*.
    """

    def work(x: Any) -> Any:
        return jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(y @ y) / SIZE, x)

    work.__qualname__ = work.__name__ = name
    return jax.jit(work, **options)


def operand() -> Any:
    return jnp.ones((SIZE, SIZE))


def timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - started


def arm(sampling: Sampling) -> None:
    """
    Do what the timer does, whatever was spent.
    """
    sampling._saved = 10.0
    sampling.arm()


def idle(sampling: Sampling) -> None:
    """
    Wait until nothing is being watched.
    """
    watcher = sampling._watcher
    until(
        lambda: not watcher._watched and not watcher._submitted.qsize(),
        "the watcher to see the end of everything",
    )


class Comparison:
    """
    Execution times of the function called *name* beside times that the test takes in
    between. Other load on the machine makes single ones of either longer, so the
    shortest are compared: figures that held another call's work would all be too long,
    and those of the dispatch alone next to nothing.
    """

    def __init__(self, sampling: Sampling, name: str) -> None:
        self._values = next(
            found.executions._values
            for function, found in sampling._figures.items()
            if function.name == f"{__name__}.{name}"
        )
        self._seen = len(self._values)
        self._truth: list[float] = []

    def __repr__(self) -> str:
        return f"{self._own()} beside {sorted(self._truth)}"

    def take(self, seconds: float) -> None:
        """
        Take a time of the test's own.
        """
        self._truth.append(seconds)

    def agree(self) -> bool:
        """
        Tell whether they agree.
        """
        own = self._own()
        return bool(own) and 0.5 < own[0] / min(self._truth) < 1.6

    def _own(self) -> list[float]:
        return sorted(list(self._values)[self._seen :])


def agreed_once(attempt: Callable[[], Comparison]) -> None:
    """
    Fail unless one of five attempts agrees: what is wrong is wrong each time, while
    other load on a small machine comes and goes.
    """
    tried = []
    for _ in range(5):
        tried.append(attempt())
        if tried[-1].agree():
            return
    pytest.fail(f"never agreed: {tried}")


def figures(sampling: Sampling, name: str) -> dict[str, Any]:
    found: dict[str, Any] = sampling.snapshot().get(f"{__name__}.{name}", {})
    return found


def executions(agent: Agent, name: str) -> float:
    """
    Return how many execution times of *name* are exported.
    """
    label = f"{__name__}.{name}"
    return value(agent, "jaxmon_execution_seconds_count", function=label)


def calibrated(seconds: float) -> int:
    """
    Return the length of a chain that takes about *seconds*.
    """
    probe, x = chain("probe", 50), operand()
    timed(lambda: probe(x))
    return max(int(seconds * 50 / median(timed(lambda: probe(x)) for _ in range(9))), 1)


@pytest.mark.ground_truth
@pytest.mark.parametrize(("milliseconds", "rounds"), [(1, 30), (10, 12), (100, 4)])
def test_execution_time_is_that_of_a_blocking_call(
    agent: Agent, sampling: Sampling, milliseconds: int, rounds: int
) -> None:
    """
    In a loop that never waits, it is the time of single calls that are waited for,
    taken in between.
    """

    def attempt() -> Comparison:
        step, x = chain("step", calibrated(milliseconds / 1000)), operand()
        timed(lambda: step(x))
        comparison = Comparison(sampling, "step")
        for _ in range(rounds):
            step(x)
            arm(sampling)
            y = x
            for _ in range(6):
                y = step(y)
            jax.block_until_ready(y)
            idle(sampling)
            for _ in range(3):
                comparison.take(timed(lambda: step(x)))
        return comparison

    agreed_once(attempt)
    assert figures(sampling, "step")["samples"] >= rounds / 2
    assert executions(agent, "step") >= 1


@pytest.mark.ground_truth
def test_work_of_others_is_not_charged(agent: Agent, sampling: Sampling) -> None:
    """
    A short program behind long ones of other functions, counted or not, on the same
    device and without a common array, has its own time.
    """

    def attempt() -> Comparison:
        unit = calibrated(0.005)
        long, short = chain("long", 3 * unit), chain("short", unit)
        x, z = operand(), operand() + 1
        ready = chain("ahead", 3 * unit).lower(z).compile()
        for call in (long, short, ready):
            timed(lambda call=call: call(x))  # type: ignore[misc]
        short(x)
        comparison = Comparison(sampling, "short")
        for turn in range(16):
            arm(sampling)
            for _ in range(3):
                (long if turn % 2 else ready)(z)
                last = short(x)
            jax.block_until_ready(last)
            idle(sampling)
            for _ in range(3):
                comparison.take(timed(lambda: short(x)))
        return comparison

    agreed_once(attempt)
    assert executions(agent, "short") >= 1


def nap(_: Any) -> Any:
    time.sleep(0.02)
    return np.float32(1)


@pytest.mark.ground_truth
@pytest.mark.skipif(
    jax.__version_info__ < (0, 8), reason="callbacks leave the fast path before JAX 0.8"
)
def test_execution_within_the_call_is_timed_too(sampling: Sampling) -> None:
    """
    What a CPU runs before the call returns has an execution time, within 10 % here,
    where it is that of a clock.
    """

    def napping(x: Any) -> Any:
        return jax.pure_callback(nap, jax.ShapeDtypeStruct((), jnp.float32), x)

    napping.__qualname__ = "napping"
    step, x = jax.jit(napping), jnp.float32(1)
    step(x), step(x)
    for _ in range(9):
        arm(sampling)
        step(x), step(x)
    idle(sampling)

    execution = figures(sampling, "napping")["execution_seconds"]
    assert 0.02 <= execution < 0.022 or execution == pytest.approx(
        median(timed(lambda: step(x)) for _ in range(9)), rel=0.25
    )


@pytest.mark.ground_truth
def test_donated_state_leaves_the_time_known(agent: Agent, sampling: Sampling) -> None:
    """
    A step that is given its own state back is timed by its other output; one without
    another output is only dispatched.
    """
    unit = calibrated(0.01)

    def train(state: Any) -> Any:
        state = jax.lax.fori_loop(0, unit, lambda _, y: jnp.tanh(y @ y) / SIZE, state)
        return state, state.sum()

    def alone(state: Any) -> Any:
        return train(state)[0]

    train.__qualname__, alone.__qualname__ = "train", "alone"
    step, lonely = (jax.jit(one, donate_argnums=0) for one in (train, alone))

    def attempt() -> Comparison:
        state, loss = step(operand())
        other = lonely(lonely(operand()))
        state, loss = step(state)
        comparison = Comparison(sampling, "train")
        for _ in range(8):
            arm(sampling)
            for _ in range(5):
                state, loss = step(state)
            jax.block_until_ready(loss)
            for _ in range(5):
                other = lonely(other)
            jax.block_until_ready(other)
            idle(sampling)
            started = time.perf_counter()
            state, loss = step(state)
            jax.block_until_ready(loss)
            comparison.take(time.perf_counter() - started)
        return comparison

    agreed_once(attempt)
    assert executions(agent, "train") >= 1
    assert figures(sampling, "alone")["samples"] >= 4


@pytest.mark.ground_truth
def test_caller_is_not_blocked(sampling: Sampling) -> None:
    """
    A sampled call returns while its work goes on.
    """
    step, x = chain("slow", calibrated(0.6)), operand()
    timed(lambda: step(x))
    step(x).block_until_ready()
    arm(sampling)
    pending = [not step(x).is_ready() for _ in range(2)]
    taken = calls.taken(step)
    idle(sampling)

    assert pending == [True, True]
    assert taken == 4
    assert figures(sampling, "slow")["samples"] == 1


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

    assert calls.armed(step)
    assert isinstance(step, calls.CountedFunction)
    assert isinstance(step, jax.stages.Wrapped)
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


def test_observers_see_sampled_calls(sampling: Sampling) -> None:
    """
    An observer is given the call on its thread; one that fails leaves the others.
    """
    seen: list[tuple[Any, ...]] = []

    def observe(sample: Sample) -> None:
        seen.append((sample.jitted, sample.args, sample.kwargs, sample.outputs))

    sampling.observers.append(observe)
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


def test_calls_that_jax_traces_are_not_sampled(sampling: Sampling) -> None:
    """
    A call inside another function's trace has no time of its own.
    """
    inner = jax.jit(lambda x: x + 1)
    inner(1.0), inner(1.0)
    arm(sampling)
    jax.jit(lambda x: inner(x) * 2)(2.0)

    assert not sampling.snapshot()


def test_missed_and_failed_calls_are_not_timed(sampling: Sampling) -> None:
    """
    A call that compiles, or raises, is no sample, and neither is the one after it with
    its clock.
    """

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


def test_outputs_without_arrays_have_no_execution_time(
    agent: Agent, sampling: Sampling
) -> None:
    """
    What returns nothing can be dispatched, but not waited for.
    """

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
    """
    PRNG keys that are still being made may come and go through sampled calls: these
    are timed, and no look at a key fails.
    """
    length = calibrated(0.005)

    def draw(key: Any) -> Any:
        x = jax.random.normal(key, (SIZE, SIZE))
        x = jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(y @ y) / SIZE, x)
        return jax.random.fold_in(key, (x.sum() > 0).astype(int))

    draw.__qualname__ = "draw"
    step = jax.jit(draw)
    key = step(step(jax.random.key(0)))
    # A time that is not known well enough is not exported: some rounds give none.
    for _ in range(30):
        arm(sampling)
        for _ in range(3):
            key = step(key)
        jax.block_until_ready(key)
        idle(sampling)
        if executions(agent, "draw"):
            break
    else:
        pytest.fail("no execution time of a function of keys")

    assert value(agent, "jaxmon_internal_errors_total") == 0


def test_deleted_outputs_are_let_go(agent: Agent, sampling: Sampling) -> None:
    """
    An output that its owner deletes before it is ready ends the watch, and nothing is
    said or counted as a failure of ours.
    """
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
    """
    A failure of ours in a sampled call is counted, and the program gets its result.
    """

    def fail(_: Any) -> None:
        raise RuntimeError

    step = jax.jit(lambda x: x + 1)
    step(1.0), step(1.0)
    window = sampling._window
    assert window is not None
    window._on_end = fail
    sampling.observers.append(fail)
    arm(sampling)

    assert step(1.0) == 2
    assert value(agent, "jaxmon_internal_errors_total", site="sampling") == 1
    assert step(1.0) == 2


def test_nothing_is_kept_alive(sampling: Sampling) -> None:
    """
    Neither outputs nor jitted functions outlive their owner's interest in them.
    """
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


def test_functions_are_disarmed_with_the_agent() -> None:
    """
    After `jaxmon.uninstrument` nothing waits for a call, and JAX's place is empty.
    """
    with instrumented(**BY_HAND) as agent:
        sampling = agent._parts.sampling
        step = jax.jit(lambda x: x + 1)
        step(1.0), step(1.0)
        arm(sampling)
        assert calls.armed(step)
        step(1.0)
        assert calls.armed(step)  # the window is open, for the call that follows
        window = sampling._window
        assert window is not None
        place = window._place
        assert place._get() is not None

    assert not calls.armed(step)
    assert place._get() is None
    assert step(1.0) == 2


ENDS_EARLY = """
import jax, jax.numpy as jnp, jaxmon
agent = jaxmon.instrument(port=None, socket=False, sample_rate=0.001)
step = jax.jit(lambda x: jax.lax.fori_loop(0, 500, lambda _, y: jnp.tanh(y @ y), x))
x = jnp.ones((400, 400))
step(x)
step(x)
sampling = agent._parts.sampling
sampling.arm()
step(x)
step(x)
assert sampling._watcher._watched or sampling._watcher._submitted.qsize()
print("ends")
"""


def test_a_process_may_end_while_a_call_is_watched() -> None:
    """
    The interpreter ends as it would without us, with work still on the device.
    """
    result = run_python("-c", ENDS_EARLY).ok()

    assert result.out.split() == ["ends"]


SEVERAL_DEVICES = """
import jax, jax.numpy as jnp, jaxmon, time
agent = jaxmon.instrument(port=None, socket=False, sample_rate=0.001)
sampling = agent._parts.sampling
def work(length):
    def f(x):
        return jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(y @ y), x)
    f.__qualname__ = f"work{length}"
    return jax.jit(f)
slow, fast = work(20000), work(1000)
one, two = (jax.device_put(jnp.ones((32, 32)), device) for device in jax.devices())
for _ in range(2):
    jax.block_until_ready([slow(one), fast(two)])
for _ in range(40):
    values = [f.executions._values for f in sampling._figures.values()]
    if all(len(some) > 2 for some in values):
        break
    sampling._saved = 10.0
    sampling.arm()
    for _ in range(3):
        slow(one)
        last = fast(two)
    jax.block_until_ready([slow(one), last])
    while sampling._watcher._watched or sampling._watcher._submitted.qsize():
        time.sleep(0.01)
for function, figures in sampling._figures.items():
    for shortest in sorted(figures.executions._values)[:1]:
        print(function.name.rpartition(".")[2], shortest)
"""


@pytest.mark.ground_truth
def test_each_device_has_a_queue_of_its_own() -> None:
    """
    A short program on one device does not wait for a long one on another.
    """
    devices = "--xla_force_host_platform_device_count=2"
    result = run_python("-c", SEVERAL_DEVICES, env={"XLA_FLAGS": devices}).ok()
    found = dict(line.split() for line in result.out.splitlines())

    if jax.__version_info__ < (0, 6):
        # There the order holds for all devices together, on a CPU: of the short one
        # nothing is known.
        assert "work1000" not in found
        return
    # It has a twentieth to do; one behind the other, it would take longer.
    assert float(found["work1000"]) < float(found["work20000"]) / 2
