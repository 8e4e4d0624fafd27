"""Programs that put something else in the place of Python's clocks and threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import leaks
from tests.processes import HEAD
from tests.support import Result


CLOCKS = {
    "nan": "lambda: float('nan')",
    "backwards": "functools.partial(next, itertools.count(1e9, -1))",
    "standing": "lambda: 1e9",
}

PROGRAM = """
import functools, itertools, math, time
import numpy as np
from tests import inside
agent = jaxmon.instrument(port=0, memory_interval=0.1, sample_rate=20)
function = jax.jit(lambda x: x + 1)
looks = threading.Semaphore(0)
routine = inside.memory(agent)._worker._routine
def look():
    routine()
    looks.release()
inside.memory(agent)._worker._routine = look
PATCH
for number in range(5):
    function(np.ones(3))
    jax.jit(lambda x: x * number)(1.0)
    with jaxmon.request("r"), jaxmon.activity("a"):
        for batch in jaxmon.steps(range(3)):
            np.asarray(function(1.0))
    looks.acquire()
threads = sorted(t.name for t in threading.enumerate() if t.name.startswith("jaxmon"))
figures = {s: v for f in agent.collect() for s, v in f.samples}
ours = {s: v for s, v in figures.items() if s.startswith("jaxmon_")}
from jaxmon_exporter.collectors.agents import page as agent_page
page = len(agent_page.families("1", get(agent.url)))
jaxmon.uninstrument()
lost = {s: str(v) for s, v in ours.items() if not 0 <= v < math.inf}
print(json.dumps([threads, lost, page]))
"""


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
def test_a_clock_that_makes_no_sense_ends_no_thread(
    preloaded_script: Callable[..., Result], clock: str, *, early: bool
) -> None:
    """
    What is done regularly is done on, no figure is lost to it for good or becomes one
    that a sidecar refuses, and Python prints nothing of our threads; whether the clock
    is replaced before jaxmon is imported, or later.
    """
    names = ("time", "monotonic", "perf_counter", "perf_counter_ns")
    patch = "\n".join(f"time.{name} = {CLOCKS[clock]}" for name in names)
    program = HEAD + PROGRAM.replace("PATCH", "" if early else patch)
    head = f"import functools, itertools, time\n{patch}\n" if early else ""
    result = preloaded_script(head + program)

    threads, lost, page = result.json()
    assert set(leaks.THREADS) <= set(threads)
    assert lost == {}
    assert page
    assert "Exception in thread" not in result.err
    assert "Exception ignored" not in result.err


PATCHED = """
import _thread, threading
from jaxmon.threads import DaemonThread
go = threading.Semaphore(0)
thread = DaemonThread("jaxmon-test", go.acquire)
thread.start()
numbers = threading.get_ident
threading.get_ident = lambda: numbers() + 1
go.release()
thread.join(90)
threading.get_ident = numbers
print("jaxmon-test" in [one.name for one in threading.enumerate()])
_thread.start_new_thread = None
try:
    DaemonThread("jaxmon-other", go.release).start()
except RuntimeError as error:
    print(error)
"""


def test_threads_that_are_patched_later_print_nothing(
    python_script: Callable[..., Result],
) -> None:
    """
    As by gevent: threads have other numbers then, and new ones would be greenlets,
    which hold up the program as they wait. None are started.
    """
    result = python_script(PATCHED).ok()

    assert result.err == ""
    known, refused = result.out.splitlines()
    assert known == "False"
    assert refused.startswith("threading was patched after jaxmon was loaded")


SCRIPTED = """
import sys, threading, time
from unittest import mock

read = set()

def ticks(real):
    def tick():
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.startswith("jaxmon"):
            read.add(caller)
        return real()
    return tick

agent = jaxmon.instrument(port=0, sample_rate=1.0)
names = ("time", "monotonic", "perf_counter", "thread_time")
with contextlib.ExitStack() as stack:
    pause = threading.Event()
    for name in names:
        patch = mock.patch(f"time.{name}", ticks(getattr(time, name)))
        stack.enter_context(patch)
    step = jax.jit(lambda x: x + 1)
    for size in (1, 2, 2, 2):
        with jaxmon.request("route"):
            float(step(jnp.ones(size))[0])
    for _ in jaxmon.steps([1, 2], items=1):
        pass
    with contextlib.suppress(ZeroDivisionError):
        jax.jit(lambda x: 1 / 0)(1)
    pause.wait(3)
    agent.collect()
    agent.memory()
print(json.dumps(sorted(read)))
jaxmon.uninstrument()
"""


def test_a_clock_that_the_program_scripts_is_not_read(
    preloaded_script: Callable[..., Result],
) -> None:
    """A test may replace a clock by one with so many readings; none of them is ours."""
    head = "import contextlib\nimport jax.numpy as jnp\n"
    assert preloaded_script(head + HEAD + SCRIPTED).json() == []
