"""
Compiles that fail, on every supported JAX.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jaxmon.agent.agent import Agent
from tests.instrumented import instrumented, value


pytestmark = pytest.mark.ground_truth

COMPILES = "jaxmon_compiles_total"


@pytest.fixture
def agent() -> Iterator[Agent]:
    """
    Return an agent that serves nothing.
    """
    with instrumented() as running:
        yield running


def fail(lowered: Any) -> None:
    """
    Have XLA refuse to compile.
    """
    with pytest.raises(Exception, match="no_such_option"):
        lowered.compile(compiler_options={"no_such_option": "1"})


def test_a_compile_that_failed_is_on_the_next_page(agent: Agent) -> None:
    """
    Also where JAX reports none that fail (to 0.5), and nothing is compiled after it.
    """
    lowered = jax.jit(lambda x: x + 1).lower(np.ones(2, np.float32))
    fail(lowered)

    assert value(agent, COMPILES, outcome="failed") == 1
    assert value(agent, "jaxmon_compiles_in_progress") == 0
    lowered.compile()
    assert value(agent, COMPILES, outcome="failed") == 1
    assert value(agent, COMPILES, outcome="compiled") == 1


def test_a_thread_may_end_with_a_failed_compile(agent: Agent) -> None:
    """
    Its compile counts, although its stack is gone.
    """
    lowered = jax.jit(lambda x: x + 1).lower(np.ones(2, np.float32))
    thread = threading.Thread(target=fail, args=(lowered,))
    thread.start()
    thread.join()

    assert value(agent, COMPILES, outcome="failed") == 1


def test_pages_while_compiling_call_nothing_failed(agent: Agent) -> None:
    """
    What is on its way is neither failed nor counted twice.
    """
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            agent.collect()

    thread = threading.Thread(target=scrape)
    thread.start()
    f = jax.jit(lambda x: x + 1)
    try:
        for size in range(1, 21):
            f(np.ones(size, np.float32))
    finally:
        done.set()
        thread.join()

    assert value(agent, COMPILES, outcome="failed") == 0
    assert value(agent, COMPILES, outcome="compiled") == 20


def test_a_function_does_not_outlive_a_compile_that_failed(agent: Agent) -> None:
    """
    A failed compile that nobody asked about keeps nothing of the user's.
    """

    def run() -> weakref.ref[Any]:
        def f(x: Any) -> Any:
            return x + 1

        fail(jax.jit(f).lower(np.ones(2, np.float32)))
        return weakref.ref(f)

    reference = run()
    jax.clear_caches()
    gc.collect()

    assert reference() is None
