"""Programs that put something else in the place of Python's clocks and threads."""

import itertools
import json

import pytest

from tests.helpers import session
from tests.helpers.processes import HEAD, Result, some


CLOCKS = {
    "nan": "lambda: float('nan')",
    "backwards": "functools.partial(next, itertools.count(1e9, -1))",
    "standing": "lambda: 1e9",
}

PROGRAM = """
import functools, itertools, math, time
import numpy as np
from tests.helpers import inside
agent = jaxmon.instrument(port=0, memory_interval=0.1, sample_rate=20)
function = jax.jit(lambda x: x + 1)
looks = threading.Semaphore(0)
routine = inside.memory(agent)._worker._routine
def look():
    routine()
    looks.release()
inside.memory(agent)._worker._routine = look
for patch in sys.argv[1:]:
    exec(patch)
    for number in range(5):
        function(np.ones(3))
        jax.jit(lambda x: x * number)(1.0)
        with jaxmon.request("r"), jaxmon.activity("a"):
            for batch in jaxmon.steps(range(3)):
                np.asarray(function(1.0))
        looks.acquire()
from jaxmon.threads import running
threads = sorted(t.name for t in running())
figures = {s: v for f in agent.collect() for s, v in f.samples}
ours = {s: v for s, v in figures.items() if s.startswith("jaxmon_")}
from jaxmon_exporter.collectors import agents as agent_page
page = len(agent_page.page_families("1", get(agent.url)))
jaxmon.uninstrument()
lost = {s: str(v) for s, v in ours.items() if not 0 <= v < math.inf}
print(json.dumps([threads, lost, page]))
"""


@pytest.mark.parametrize("early", [*some(CLOCKS), ""])
def test_a_clock_that_makes_no_sense_ends_no_thread(preloaded_script, early):
    """
    What is done regularly is done on, no figure is lost to it for good or becomes one
    that a sidecar refuses, and Python prints nothing of our threads; whether the clock
    is replaced before jaxmon is imported, or later, by one after the other.
    """
    names = ("time", "monotonic", "perf_counter", "perf_counter_ns")
    patches = {
        clock: "\n".join(f"time.{name} = {made}" for name in names)
        for clock, made in CLOCKS.items()
    }
    head = f"import functools, itertools, time\n{patches[early]}\n" if early else ""
    given = ("",) if early else patches.values()
    result = preloaded_script(head + HEAD + PROGRAM, *given)

    threads, lost, page = result.json()
    assert set(session.THREADS) <= set(threads)
    assert lost == {}
    assert page
    assert "Exception in thread" not in result.err
    assert "Exception ignored" not in result.err


# gevent and eventlet patch whatever the program asks for, whenever it does.
GREENLETS = """
import sys
def patch(when):
    if sys.argv[1] == when:
        exec(f"import {sys.argv[2]}; {sys.argv[2]}.{sys.argv[3]}")
patch("early")
import json, logging, os, socket, threading
import jax, jaxmon
from tests.helpers import inside
patch("between")
def listed():
    counts = threading.active_count(), len(threading._active), len(threading._dangling)
    return [*counts, sorted(t.name for t in threading.enumerate())]
def get(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(agent.socket)
        client.sendall(f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
        with client.makefile("rb") as answer:
            return answer.read()
agent = jaxmon.instrument(port=0, report=True)
patch("late")
threads = []
class Threads(logging.Handler):
    def emit(self, record):
        threads.append([record.threadName, listed()])
        threading.current_thread()
log = logging.getLogger("jaxmon")
log.addHandler(Threads())
log.propagate = False
step = jax.jit(lambda x: x + 1)
total = float(step(1.0))
def work():
    global total
    for size in range(2, 5):
        total += float(step(jax.numpy.ones(size)).sum())
worker = threading.Thread(target=work)
worker.start()
worker.join()
before = listed()
scraped = b"jaxmon_compiles_total{" in get("/metrics")
ours = inside.memory(agent)._worker
ours.submit(lambda: log.warning("on a thread of ours"))
drained = ours.drain(60)
profile = get("/debug/profile?seconds=0.1")[:15]
for thread in threading.enumerate():
    if thread not in (threading.main_thread(), threading.current_thread()):
        thread.join()
after = listed()
print(json.dumps([total, scraped, drained, profile.decode(), threads, before, after]))
sys.exit(3)
"""

_CALLS = (
    *("patch_all()", "patch_all(select=False)", "patch_thread()"),
    *(f"patch_all({one}=False)" for one in ("thread", "socket", "time")),
    *(f"patch_all({one}=False)" for one in ("queue", "os", "subprocess")),
    *(f"patch_{one}()" for one in ("socket", "select", "time", "queue", "os")),
)
_ALWAYS = (("early", _CALLS[0]), ("late", _CALLS[0]))
_GEVENT = [
    pytest.param(*of, marks=[] if of in _ALWAYS else pytest.mark.exhaustive)
    for of in itertools.product(("early", "late"), _CALLS)
]


@pytest.mark.parametrize(("when", "call"), _GEVENT)
def test_a_program_of_greenlets_ends_as_without_us(
    python_script, preloaded_script, when, call
):
    """
    Whatever gevent has replaced, before jaxmon is imported or after it runs: what the
    program computes and its exit code are its own, what it joins ends, and scrape, log
    line and profile leave nothing in `threading`; the report comes, and no traceback.
    """
    run = python_script if when == "early" else preloaded_script
    checked(run(GREENLETS, when, "gevent.monkey", call))


@pytest.mark.parametrize(
    ("when", "library", "call"),
    [
        ("never", "", ""),
        ("between", "gevent.monkey", "patch_all()"),
        ("late", "eventlet", "monkey_patch()"),
        pytest.param(
            *("between", "eventlet", "monkey_patch()"), marks=pytest.mark.exhaustive
        ),
    ],
)
def test_threads_are_listed_as_without_us(preloaded_script, when, library, call):
    """Likewise without greenlets, with jaxmon imported before, and with eventlet."""
    checked(preloaded_script(GREENLETS, when, library, call))


def checked(result: Result) -> None:
    """Check what such a program has printed."""
    assert result.code == 3, result.err
    total, scraped, drained, profile, threads, before, after = json.loads(
        result.out.splitlines()[-1]
    )
    assert total == 2.0 + 2 * (2 + 3 + 4)
    assert (scraped, drained, profile) == (True, True, "HTTP/1.1 200 OK")
    assert threads == [["jaxmon-worker", before]]
    assert before == after
    assert before[0] == 1
    assert "FINDINGS" in result.err
    for word in ("Traceback", "Exception ignored", "cannot attach", "jaxmon failed"):
        assert word not in result.err, result.err


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


def test_a_clock_that_the_program_scripts_is_not_read(preloaded_script):
    """A test may replace a clock by one with so many readings; none of them is ours."""
    head = "import contextlib\nimport jax.numpy as jnp\n"
    assert preloaded_script(head + HEAD + SCRIPTED).json() == []
