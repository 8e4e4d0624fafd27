"""Counts stay exact and memory bounded with many functions, threads and arrays."""

import gc
import sys
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.agent.tracing.part import TraceMistakes
from tests.helpers import inside
from tests.helpers.agents import at_once, instrumented, samples, value


CALLS = "jaxmon_jit_calls_total"
HITS = "jaxmon_jit_cache_hits_total"
MISSES = "jaxmon_jit_cache_misses_total"
COMPILES = "jaxmon_compiles_total"
OVERFLOW = "jaxmon_label_overflow_total"

FUNCTIONS = 5_000
LIMIT = 50


AGENT = {"max_functions": LIMIT}


def distinct(number: int) -> Any:
    """Return a function with a name of its own that runs without being compiled."""

    def function(x: Any) -> Any:
        return x

    function.__name__ = function.__qualname__ = f"function_{number}"
    return function


def functions(agent: Agent, name: str) -> set[str]:
    return {
        series.partition('function="')[2].partition('"')[0]
        for series in samples(agent)
        if series.startswith(name + "{")
    }


def test_five_thousand_functions_share_few_labels(agent: Agent) -> None:
    """Labels are bounded, overflow is counted, and no call is lost."""
    calls = 3
    with jax.disable_jit():  # the call layer only: 5,000 compiles say nothing more
        for number in range(FUNCTIONS):
            jitted = jax.jit(distinct(number))
            for _ in range(calls):
                jitted(1.0)
    table = inside.table(agent)
    entered = {function.name: function.objects.calls for function in table}

    assert value(agent, CALLS) == sum(entered.values()) == FUNCTIONS * calls
    assert len(entered) == LIMIT + 2
    assert entered["other"] == (FUNCTIONS - LIMIT) * calls
    assert entered["unknown"] == 0
    assert value(agent, OVERFLOW, label="function") == FUNCTIONS - LIMIT
    assert len(table._by_short_name) == LIMIT
    assert len(samples(agent)) < LIMIT * 40


@pytest.mark.exhaustive
def test_many_compiled_functions_keep_their_totals(agent: Agent) -> None:
    """Calls, misses and compiles over all labels, ``other`` included, are exact."""
    number = LIMIT * 3
    argument = np.ones(2, np.float32)
    for index in range(number):
        jitted = jax.jit(distinct(index))
        for _ in range(4):
            jitted(argument)

    names = functions(agent, CALLS)
    assert len(names) == LIMIT + 1
    assert "other" in names
    assert value(agent, CALLS) == number * 4
    assert value(agent, HITS) == number * 3
    assert value(agent, MISSES) == number
    assert value(agent, "jaxmon_compiles_total", outcome="compiled") == number
    assert value(agent, "jaxmon_recompiles_total") == 0


def test_functions_of_jax_leave_room_for_those_of_the_user(agent: Agent) -> None:
    """However many operations of JAX are compiled, most labels are the user's."""
    # As JAX defines and jits them, in a file of its own.
    define = compile(
        "def define(name):\n"
        "    def operation(x): return x\n"
        "    operation.__qualname__ = operation.__name__ = name\n"
        "    return jit(operation)\n",
        jax.__file__,
        "exec",
    )
    theirs: dict[str, Any] = {"__name__": "jax.numpy", "jit": jax.jit}
    exec(define, theirs)  # noqa: S102 - the source is above

    for number in range(LIMIT):
        theirs["define"](f"operation_{number}").lower(1.0)
    for number in range(LIMIT // 2):
        jax.jit(distinct(number)).lower(1.0)

    names = {function.name for function in inside.table(agent)}
    assert len([name for name in names if name.startswith(__name__)]) == LIMIT // 2
    assert len([name for name in names if name.startswith("jax.")]) <= LIMIT // 4


@pytest.mark.exhaustive
def test_lambdas_in_a_loop_leave_nothing_in_the_agent(agent: Agent) -> None:
    """What the agent keeps of a function goes with the function."""
    argument = np.ones(2, np.float32)

    def loop(times: int) -> None:
        for _ in range(times):
            jax.jit(lambda x: x)(argument)

    registry = inside.registry(agent)
    causes = inside.causes(agent)
    loop(20)
    jax.clear_caches()
    gc.collect()
    lines = causes._recreations._lines
    before = len(registry._entries), len(causes._seen), len(lines)
    with jax.disable_jit():
        for _ in range(500):
            jax.jit(lambda x: x)(argument)
    loop(100)
    jax.clear_caches()
    gc.collect()

    assert (len(registry._entries), len(causes._seen), len(lines)) == before
    assert len(registry._entries) < 5
    assert value(agent, CALLS) == 620
    assert inside.compiles(agent).in_progress() == (0, 0.0, "")
    assert len(inside.compiles(agent)._unsettled) == 0


class SelfReferring:
    """Holds a jitted function that holds the instance."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.step = jax.jit(self.times)
        self.closure = jax.jit(lambda x: x * self.scale)

    def times(self, x: Any) -> Any:
        return x * self.scale


def test_an_instance_that_its_jitted_methods_refer_to_is_collected(agent):
    """Cycles through a counted function are garbage as through a jitted one."""
    instance = SelfReferring()
    instance.step(np.ones(2))
    instance.step(np.ones(2))
    instance.closure(np.ones(2))
    reference = weakref.ref(instance)
    # It holds the function that it reads.
    inside.part(agent, TraceMistakes).finish(30)

    del instance
    jax.clear_caches()
    gc.collect()

    assert reference() is None
    assert inside.registry(agent)._entries == {}


def test_a_miss_keeps_neither_arguments_nor_results(agent: Agent) -> None:
    """Arrays of a miss, a hit or a failing call are freed with the program."""
    jitted = jax.jit(lambda x: x + 1)
    argument = jnp.ones(17)
    result = jitted(argument)
    jitted(argument)
    with pytest.raises(TypeError):
        jax.jit(lambda x, _: x)(argument)
    samples(agent)
    references = weakref.ref(argument), weakref.ref(result)

    del argument, result
    gc.collect()

    assert [reference() for reference in references] == [None, None]


THREADS = 64
ROUNDS = 20
OTHER_SHAPES = (5, 15)


@pytest.mark.exhaustive
def test_sixty_four_threads_count_exactly() -> None:  # noqa: C901 - one scene
    """Calls, hits, misses and compiles are exact; a scrape meanwhile sees none fall."""
    switch = sys.getswitchinterval()
    with instrumented(max_functions=500) as agent:
        shared = jax.jit(lambda x: x * 3)
        shared(np.float32(1))
        barrier = threading.Barrier(THREADS + 3)
        done = threading.Event()
        falls: list[str] = []
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                own = jax.jit(distinct(number))
                barrier.wait(90)
                for turn in range(ROUNDS):
                    shared(np.float32(turn))
                    own(np.float32(turn))
                    if turn in OTHER_SHAPES:
                        own(np.ones(turn, np.float32))
            except BaseException as error:
                failures.append(error)
                raise

        def scrape() -> None:
            last: dict[str, float] = {}
            barrier.wait(90)
            # The others work, too.
            while not done.wait(0.01):
                now = samples(agent)
                falls.extend(
                    f"{series}: {last[series]} to {number}"
                    for series, number in now.items()
                    if series in last
                    and number < last[series]
                    and series.partition("{")[0].endswith(("_total", "_count"))
                )
                last = now

        threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
        scrapers = [threading.Thread(target=scrape) for _ in range(3)]
        # Ten times as often as usual. More often, threads only take turns.
        sys.setswitchinterval(5e-4)
        try:
            for thread in threads + scrapers:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(switch)
            done.set()
        for thread in scrapers:
            thread.join()

        assert failures == []
        assert falls == []
        name = "test_sixty_four_threads_count_exactly.<locals>.<lambda>"
        shapes = 1 + len(OTHER_SHAPES)
        assert value(agent, CALLS, function=f"{__name__}.{name}") == (
            1 + THREADS * ROUNDS
        )
        assert value(agent, MISSES, function=f"{__name__}.{name}") == 1
        assert value(agent, HITS, function=f"{__name__}.{name}") == THREADS * ROUNDS
        for number in range(THREADS):
            function = f"{__name__}.function_{number}"
            assert value(agent, CALLS, function=function) == ROUNDS + shapes - 1
            assert value(agent, MISSES, function=function) == shapes
            assert value(agent, HITS, function=function) == ROUNDS - 1
            assert (
                value(agent, COMPILES, function=function, outcome="compiled") == shapes
            )


def test_threads_that_compile_one_function_at_once_lose_no_call() -> None:
    """Each of many threads with a cold function makes one call, counted once."""
    with instrumented() as agent:
        cold = jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x).T)
        barrier = threading.Barrier(16)
        argument = np.ones((8, 8), np.float32)

        def work() -> None:
            barrier.wait(90)
            cold(argument)

        at_once(*[work] * 16)
        for _ in range(3):
            cold(argument)

        name = cold.__wrapped__.__qualname__
        function = f"{__name__}.{name}"
        misses = value(agent, MISSES, function=function)
        assert value(agent, CALLS, function=function) == 19
        assert 1 <= misses <= 16
        assert value(agent, HITS, function=function) == 19 - misses
        assert value(agent, "jaxmon_compiles_in_progress") == 0


# Where the arrays of the test below are.
ON = {"device": "0", "dtype": "float32"}


def test_a_look_at_ten_thousand_arrays_keeps_none() -> None:
    """Live arrays are counted, and die with the program's last reference."""
    with instrumented() as agent:
        zero = jnp.zeros(())
        jax.block_until_ready(zero)
        gc.collect()
        agent.refresh()
        base = value(agent, "jaxmon_live_arrays", **ON)
        base_bytes = value(agent, "jaxmon_live_array_bytes", **ON)
        device = jax.devices()[0]
        arrays = [
            jax.device_put(np.float32(number), device) for number in range(10_000)
        ]
        references = [weakref.ref(array) for array in arrays]

        agent.refresh()

        assert value(agent, "jaxmon_live_arrays", **ON) == base + 10_000
        assert value(agent, "jaxmon_live_array_bytes", **ON) == base_bytes + 40_000
        del arrays
        gc.collect()
        assert [one for one in references if one() is not None] == []
        agent.refresh()
        assert value(agent, "jaxmon_live_arrays", **ON) == base


def test_jitting_from_many_threads_makes_one_entry_each() -> None:
    """Threads that name the same function at once share its entry and its count."""
    with instrumented() as agent:
        barrier = threading.Barrier(32)

        def work() -> None:
            barrier.wait(90)
            with jax.disable_jit():
                for number in range(20):
                    jax.jit(distinct(number))(1.0)

        at_once(*[work] * 32)

        entered = [function.objects.calls for function in inside.table(agent)]
        assert sorted(entered)[1:] == [32] * 20
        assert value(agent, OVERFLOW) == 0
        jaxmon.uninstrument()
