"""
Loops, requests and activities of real JAX programs.

Times are compared with a clock that is read in the same run, never with what a
machine should need.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import jaxmon
from jaxmon.agent import Agent
from jaxmon.catalog import (
    COMPILE_SECONDS,
    COMPILES,
    DATA_WAIT_SECONDS,
    ERRORS,
    ITEMS,
    REQUESTS,
    STEP_SECONDS,
    STEPS,
    TIME_SECONDS,
)
from tests.helpers.agents import at_once, instrumented, samples, value


pytestmark = pytest.mark.ground_truth

STEP_COUNT = 30
DELAY_SECONDS = 0.02


class Loader:
    """Yields batches, each after a delay, and keeps its own books of the waiting."""

    def __init__(self, shape: Callable[[int], int] = lambda _: 64) -> None:
        self.pulled = self.waited = 0.0
        self.items = 0
        self._shape = shape

    def __iter__(self) -> Iterator[np.ndarray]:
        for number in range(STEP_COUNT):
            started = time.perf_counter()
            self.pulled = self.pulled or started
            time.sleep(DELAY_SECONDS)
            batch = np.ones(self._shape(number), np.float32)
            self.items += len(batch)
            self.waited += time.perf_counter() - started
            yield batch


def make_step() -> Callable[[Any], Any]:
    def train_step(x: Any) -> Any:
        for _ in range(20):
            x = jnp.tanh(jnp.sin(x) * 2)
        return x.sum()

    jitted: Callable[[Any], Any] = jax.jit(train_step)
    return jitted


def activities(agent: Agent) -> dict[str, float]:
    """Return seconds by activity."""
    lead = f"{TIME_SECONDS.name}{{"
    return {
        one.split('"')[1]: seconds
        for one, seconds in samples(agent).items()
        if one.startswith(lead)
    }


def test_a_training_loop_is_measured(agent: Agent) -> None:
    """Counts are exact; times lie between two clocks just inside and just outside."""
    loader, train_step = Loader(), make_step()
    outside = 0.0
    started = left = time.perf_counter()
    for batch in jaxmon.steps(loader, items=len, item="row"):
        outside += time.perf_counter() - left
        train_step(batch).block_until_ready()
        left = time.perf_counter()
    ended = time.perf_counter()
    with jaxmon.activity("checkpoint"):
        time.sleep(0.1)
    time.sleep(0.1)
    slept = time.perf_counter()
    found = activities(agent)
    read = time.perf_counter()

    assert value(agent, STEPS.name, loop="train") == STEP_COUNT
    assert value(agent, ITEMS.name, item="row") == loader.items
    steps = value(agent, f"{STEP_SECONDS.name}_sum")
    assert left - loader.pulled <= steps <= ended - started
    assert slept - loader.pulled <= sum(found.values()) <= read - started
    for waited in (value(agent, DATA_WAIT_SECONDS.name), found["data_wait"]):
        assert loader.waited <= waited <= outside + ended - left
    assert found["checkpoint"] >= 0.1
    assert found["other"] >= 0.1


def test_time_to_compile_is_no_time_of_the_step(agent: Agent) -> None:
    """Tracing, lowering and compiling count as ``compile``, wherever they happen."""

    def reported() -> float:
        phases = ("trace", "lower", "backend_compile")
        total = f"{COMPILE_SECONDS.name}_sum"
        return sum(value(agent, total, phase=phase) for phase in phases)

    train_step = make_step()
    before = reported()
    for batch in jaxmon.steps(Loader(shape=lambda number: 8 + number // 10)):
        train_step(batch).block_until_ready()
    found = activities(agent)

    assert value(agent, COMPILES.name, outcome="compiled") >= 3
    # What lies around the phases that JAX reports is compiling as well.
    assert found["compile"] >= 0.9 * (reported() - before)
    assert found["step"] < 0.5 * (found["step"] + found["compile"])


def test_a_slow_trace_is_charged_though_somebody_looks(agent: Agent) -> None:
    """A scrape in the middle of a trace takes none of it away from ``compile``."""
    looks = []

    def slow(x: Any) -> Any:
        for _ in range(5):
            time.sleep(0.05)
            looks.append(activities(agent)["compile"])
        return x + 1

    step = jax.jit(slow)
    started = time.perf_counter()
    for batch in jaxmon.steps([np.ones(3)]):
        step(batch)
    spent = time.perf_counter() - started

    assert looks == sorted(looks)
    assert looks[0] >= 0.05
    assert activities(agent)["compile"] >= 0.25
    assert activities(agent)["step"] <= spent - 0.25


def test_compiles_elsewhere_take_no_time_of_the_loop(agent: Agent) -> None:
    """What another thread compiles meanwhile is beside the loop's time."""
    begun, ended = threading.Event(), threading.Event()
    compiles_elsewhere = make_step()

    def work() -> None:
        begun.wait()
        compiles_elsewhere(np.ones(5)).block_until_ready()
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    for _ in jaxmon.steps([1]):
        begun.set()
        ended.wait()
    thread.join()

    assert activities(agent)["compile"] == 0
    assert value(agent, f"{COMPILE_SECONDS.name}_sum") > 0


def starts(agent: Agent) -> dict[str, float]:
    """Return the number of requests by start."""
    return {
        start: value(agent, REQUESTS.name, start=start) for start in ("cold", "warm")
    }


def test_requests_are_cold_once_for_each_shape(agent: Agent) -> None:
    """As many are cold as the Python body was traced."""
    traced = []

    def double(x: Any) -> Any:
        traced.append(x.shape)
        return x * 2

    model = jax.jit(double)

    @jaxmon.request("predict")
    def predict(length: int) -> Any:
        return model(np.ones(length))

    for length in (3, 3, 4, 4, 3, 5, 3):
        predict(length)

    assert len(traced) == 3
    assert starts(agent) == {"cold": 3, "warm": 4}


def test_a_compile_finds_its_request_through_the_context(agent: Agent) -> None:
    """On a thread of asyncio, of an executor with or without a context, in a task."""
    model = jax.jit(lambda x: x * 3)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            async with jaxmon.request("to_thread"):
                await asyncio.to_thread(model, np.ones(3))
            async with jaxmon.request("task"):
                await asyncio.create_task(asyncio.to_thread(model, np.ones(4)))
            async with jaxmon.request("bare"):
                await loop.run_in_executor(pool, model, np.ones(5))
            async with jaxmon.request("warm"):
                await loop.run_in_executor(pool, model, np.ones(5))

    asyncio.run(serve())

    cold = functools.partial(value, agent, REQUESTS.name, start="cold")
    assert {r: cold(route=r) for r in ("to_thread", "task", "bare", "warm")} == {
        "to_thread": 1,
        "task": 1,
        "bare": 1,
        "warm": 0,
    }


def test_what_the_persistent_cache_holds_is_cold_as_well(tmp_path, agent):
    """Loading a program is what the request waits for, if it is not compiled."""
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
    )
    before = [getattr(jax.config, name) for name in names]
    try:
        for name, setting in zip(names, (str(tmp_path), 0.0, -1), strict=True):
            jax.config.update(name, setting)
        compilation_cache.reset_cache()  # it was found to be off before
        for _ in range(2):
            jax.clear_caches()
            with jaxmon.request("predict"):
                make_step()(np.ones(3))
    finally:
        for name, setting in zip(names, before, strict=True):
            jax.config.update(name, setting)
        compilation_cache.reset_cache()

    assert value(agent, COMPILES.name, outcome="cache_hit") >= 1
    assert starts(agent) == {"cold": 2, "warm": 0}


def errors_by_function(agent: Agent) -> dict[str, float]:
    """Return the number of errors by the last part of the function's name."""
    found: dict[str, float] = {}
    for one, count in samples(agent).items():
        if one.startswith(ERRORS.name) and count:
            name = one.split('"')[1].rpartition(".")[2]
            found[name] = found.get(name, 0) + count
    return found


def out_of_memory() -> Callable[[Any], Any]:
    """Return a jitted function that compiles and can never run."""

    def greedy(x: Any) -> Any:
        return jnp.zeros((1 << 44,)) + x

    jitted: Callable[[Any], Any] = jax.jit(greedy)
    return jitted


def test_an_error_beside_the_miss_path_is_counted_where_it_surfaces(
    agent: Agent,
) -> None:
    """Once, in a request or an activity, whichever sees it first."""
    compiled: Any = out_of_memory().lower(1.0).compile()  # type: ignore[attr-defined]
    for mark in (jaxmon.request("predict"), jaxmon.activity("evaluate")):
        with (
            pytest.raises(Exception, match="RESOURCE_EXHAUSTED"),
            mark,
            jaxmon.activity("inside"),
        ):
            compiled(1.0).block_until_ready()

    assert errors_by_function(agent) == {"unknown": 2}
    assert value(agent, ERRORS.name, kind="oom") == 2
    assert value(agent, REQUESTS.name, outcome="error") == 1


def test_an_error_that_was_counted_is_not_counted_again(agent: Agent) -> None:
    """What left a call on the miss path counts for its function alone."""
    together = threading.Barrier(8, timeout=60)
    failed: list[BaseException] = []

    def serve() -> None:
        model = out_of_memory()
        try:
            with jaxmon.request("predict"):
                try:
                    model(1.0)
                finally:
                    together.wait()
        except Exception as error:  # noqa: BLE001 - asserted below
            failed.append(error)

    at_once(*[serve] * 8)

    assert ["RESOURCE_EXHAUSTED" in str(error) for error in failed] == [True] * 8
    assert errors_by_function(agent) == {"greedy": 8}
    assert value(agent, REQUESTS.name, outcome="error") == 8


def test_a_second_agent_begins_at_zero() -> None:
    """Also in the middle of a loop; nothing reaches the agent that is gone."""
    run = iter(jaxmon.steps(range(9)))
    with instrumented() as first:
        next(run)
        next(run)
        across = jaxmon.request("across")
        across.__enter__()
    next(run)
    with instrumented() as second:
        next(run)
        across.__exit__(None, None, None)
        with jaxmon.request("own"):
            next(run)

    assert value(first, STEPS.name) == value(second, STEPS.name) == 1
    assert value(first, REQUESTS.name) == 0
    assert value(second, REQUESTS.name) == value(second, REQUESTS.name, route="own")
    assert value(second, REQUESTS.name) == 1
