"""The ledger of time against clocks inside the program."""

from __future__ import annotations

import json
import sys
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jaxmon.agent.walltime.part import WallTimePart
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


PROGRAM = ROOT / "tests" / "programs" / "wall_time.py"
# Of the wall time. Three standard deviations of 400 looks are as much.
NEAR = 0.08
# More if a machine with other work to do delays looks and programs.
ATTEMPTS = 3
# Longer where a loop is to be recognised, shorter where only one share is looked at.
SECONDS = {"blocked": "8", "loading": "2"}

# By kind of program: the states that are compared with its clocks.
CASES: dict[str, tuple[str, ...]] = {
    "slow_data": ("data_wait",),
    "python_data": ("data_wait",),
    "eager": ("eager",),
    "computing": ("fetch", "python", "compile"),
    "blocked": ("blocked", "fetch"),
    "serving": ("idle", "fetch"),
    "hanging": ("data_wait", "fetch"),
    "calling_back": ("blocked",),
}
# Other programs are in the same states.
ALIKE = {"python_data", "hanging"}


@cache
def measured(kind: str, attempt: int) -> dict[str, Any]:
    """Return what a program has measured, and what was measured of it."""
    found: dict[str, Any] = json.loads(
        run_preloaded(str(PROGRAM), kind, SECONDS.get(kind, "4"), optimised=True)
        .ok()
        .out
    )
    return found


@pytest.mark.ground_truth
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.exhaustive] if kind in ALIKE else [])
        for kind in CASES
    ],
)
def test_shares_are_those_of_the_programs_own_clocks(kind):
    """Each share is right, and all of them are the wall time."""
    for attempt in range(ATTEMPTS):
        found = measured(kind, attempt)
        far = {
            state: (found["states"].get(state, 0.0), found["truth"][state])
            for state in CASES[kind]
            if abs(found["states"].get(state, 0.0) - found["truth"][state])
            > NEAR + found["delayed"]
        }
        if not far and found["closed"] == pytest.approx(1, abs=0.02):
            break
        assert attempt < ATTEMPTS - 1, (far, found)
    assert sum(found["states"].values()) == pytest.approx(1, abs=0.02)


def test_a_wait_for_a_queue_is_on_the_line_that_makes_its_items():
    """Of a loader in a thread, the line of its work says more than that of the wait."""
    for attempt in range(ATTEMPTS):  # the machine may be busy
        found = measured("loading", attempt)
        if found["states"]["data_wait"] > 0.3:
            break
    spin = PROGRAM.read_text().partition("def spin(")[0].count("\n") + 1
    line = int(found["place"]["data_wait"].rpartition(":")[2])

    assert found["states"]["data_wait"] > 0.3
    assert spin <= line <= spin + 4


def test_marked_activities_keep_their_names():
    """A checkpoint is a checkpoint, whatever it does."""
    for attempt in range(ATTEMPTS):
        found = measured("marked", attempt)
        far = abs(found["activities"]["checkpoint"] - found["truth"]["checkpoint"])
        if far <= NEAR + found["delayed"]:
            break
        assert attempt < ATTEMPTS - 1, found


def test_a_loop_that_is_not_marked_is_recognised():
    """With its line, and its calls a second; not in a program that marks requests."""
    line = PROGRAM.read_text().partition("for batch in batches(wait)")[0].count("\n")
    for attempt in range(ATTEMPTS):
        found = measured("blocked", attempt)
        calling = found["calling"]
        assert calling["function"] == "__main__.step"
        assert calling["loop"].endswith(f"wall_time.py:{line + 1}")
        near = pytest.approx(found["calls"], rel=0.2 + found["delayed"])
        if calling["rate"] == near:
            break
        assert attempt < ATTEMPTS - 1, found
    assert measured("serving", 0)["calling"] == {}


def test_what_goes_on_now_counts_while_it_lasts():
    """A wait that has not ended is in the ledger, with its line and since when."""
    now = measured("hanging", 0)["now"]

    assert now["state"] == "data_wait"
    # The wait may end between the last look and the reading.
    assert max(now["seconds"], now["longest_there"]) > 3


TRACED = """
import json, time
import jax, jax.numpy as jnp, jaxmon
agent = jaxmon.instrument(port=0, socket=False, memory_interval=0, time_interval=0.02)
@jax.jit
def known(x):
    return x + 1
@jax.jit
def model(x):
    began = time.perf_counter()
    while time.perf_counter() < began + 2:
        sum(range(10_000))
    return x * 2
x = jnp.ones(3)
for _ in range(100):
    known(x)
model(x)
print(json.dumps({
    series: seconds
    for family in agent.collect() for series, seconds in family.samples
    if series.startswith("jaxmon_wall_seconds")
}))
jaxmon.uninstrument()
"""


@pytest.mark.ground_truth
def test_python_that_runs_while_it_is_traced_is_compile_time() -> None:
    """A model that takes long to trace is no fault of the loop that calls it."""
    found = run_preloaded("-c", TRACED).ok().json()

    compiling, python = (
        found.get(f'jaxmon_wall_seconds_total{{state="{state}"}}', 0.0)
        for state in ("compile", "python")
    )
    assert compiling > 1
    assert python < compiling


QUEUES = """
import json, queue, socketserver, threading, time
import jax, jax.numpy as jnp, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.walltime.part import WallTimePart
from jaxmon.threads import DaemonThread, is_ours
agent = jaxmon.instrument(port=None, socket=False, time_interval=0.02)
ledger = runtime_of(agent).part(WallTimePart)
step = jax.jit(lambda x: x + 1)
def work(items, called):
    jax.jit(lambda x: -x)(1.0)  # a miss, from this thread
    while (x := items.get()) is not None:
        step(x)
        called.append(time.monotonic())
class Condition:
    def __init__(self):
        self.items, self.some = [], threading.Condition()
    def put(self, x):
        with self.some:
            self.items.append(x)
            self.some.notify()
    def get(self):
        with self.some:
            while not self.items:
                self.some.wait()
            return self.items.pop(0)
def seen(meanwhile, end, queue=queue.Queue):
    items, states, called = queue(), [], []
    def watch():
        items.put(1.0)
        for _ in range(600):
            time.sleep(0.1)
            if not called:  # it may wait for a processor
                continue
            now, waits = ledger.snapshot().now, time.monotonic() - called[0]
            lasts = 0.5 < now.seconds <= waits
            if lasts and now.state in {"data_wait", "blocked", "idle"}:
                states.append(now.state)
                break
        items.put(None)
        end()
    worker = threading.Thread(target=work, args=(items, called))
    worker.start()
    threading.Thread(target=watch).start()
    meanwhile(worker)
    return states
train = seen(lambda worker: worker.join(), bool)
train += seen(lambda worker: worker.join(), bool, Condition)
server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
serve = seen(lambda _: server.serve_forever(), server.shutdown)
serve += seen(lambda _: server.serve_forever(), server.shutdown, Condition)
alone = []
def look(items, release):
    while True:
        time.sleep(0.05)
        found = ledger._standing(threading.main_thread().ident)
        if found and "queue.py" in str(found["stack"]):
            break
    alone.append([found["alone"], [of.name for of in found["fillers"]]])
    release()
def wait(puts=False):
    items = queue.Queue(maxsize=1)
    if puts:
        items.put(None)
    release = items.get if puts else lambda: items.put(None)
    DaemonThread("jaxmon-test", lambda: look(items, release)).start()
    items.put(None) if puts else items.get()
for thread in threading.enumerate():
    if thread is not threading.main_thread() and not is_ours(thread.ident):
        thread.join()
wait()
wait(puts=True)
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
wait()
wait(puts=True)
def read():
    time.sleep(600)
threading.Thread(target=read, name="reader", daemon=True).start()
wait()
wait(puts=True)
print(json.dumps([train, serve, alone]))
jaxmon.uninstrument()
"""


def test_a_queue_is_idle_while_the_main_thread_waits_for_connections() -> None:
    """
    The same thread waits for data in a training, and for requests in a server. If there
    is no other thread, nothing can fill the queue; one in a line of the program may.
    """
    train, serve, alone = json.loads(run_preloaded("-c", QUEUES).ok().out)
    assert train == ["data_wait", "blocked"]
    assert serve == ["idle", "idle"]
    assert alone[::2] == [[True, []], [False, []], [False, ["reader"]]]
    assert alone[1::2] == [[True, []], [False, []], [False, []]]  # room in a full one


WAITS = """
import asyncio, json, multiprocessing, queue, threading, time
import jax, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.walltime import part
from jaxmon.threads import DaemonThread
part._LONG = 0.3
agent = jaxmon.instrument(port=None, socket=False, time_interval=0.02)
ledger = runtime_of(agent).part(part.WallTimePart)
step = jax.jit(lambda x: x + 1)
lock, before = threading.Lock(), {}
def blocked():
    places = [p for p in ledger.snapshot().since_start.places if p.state == "blocked"]
    new = [p for p in places if p.seconds > before.get(p, 0) + 0.3]
    return new and [[p.divided, p.event_loop, bool(p.caller)] for p in new]
def seen(wanted, end, meanwhile):
    found, before_it = [], ledger.snapshot().since_start.places
    before.update({p: p.seconds for p in before_it})
    def look():
        for _ in range(600):
            time.sleep(0.1)
            if (now := wanted()) or now == []:
                found.append(now)
                break
        end()
    watch = DaemonThread("jaxmon-test", look)
    watch.start()
    meanwhile()
    watch.join()
    return found[0] if found else None
def standing(field, least=0.6):
    now = ledger.snapshot().now
    return [getattr(now, field)] if now.seconds > least else None
def threads(wait):
    ended = threading.Event()
    def work():
        step(1.0)
        while not ended.is_set():
            wait()
    def run():
        workers = [threading.Thread(target=work) for _ in range(3)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
    return seen(lambda: blocked() or None, ended.set, run)
def request():
    time.sleep(0.05)
def handle():
    with jaxmon.request("score"):
        request()
def take():
    with lock:
        pass
def held():
    lock.acquire()
    threading.Timer(1, lock.release).start()
    return threads(take)
def full(consumes):
    items, over = queue.Queue(1), threading.Event()
    def produce():
        for _ in range(5):
            items.put(step(1.0))
    def consume():
        while not over.is_set():
            time.sleep(0.2)
    def run():
        step(1.0)
        if consumes:
            threading.Thread(target=consume).start()
        producer = threading.Thread(target=produce)
        producer.start()
        producer.join()
    def end():
        over.set()
        for _ in range(5):
            items.get()
    (waits,) = seen(lambda: standing("full"), end, run)
    return [thread.stack[2].split(" in ")[1] for thread in waits]
def loop(blocks):
    over = threading.Event()
    def fetch():
        time.sleep(0.05)
    async def handle():
        while not over.is_set():
            fetch() if blocks else await asyncio.sleep(0.05)
    idle = lambda: [] if ledger.snapshot().now.state == "idle" else None
    wanted = (lambda: blocked() or None) if blocks else idle
    return seen(wanted, over.set, lambda: asyncio.run(handle()))
def served():
    items = queue.Queue()
    def work():
        while items.get():
            with jaxmon.request("score"):
                step(1.0)
    worker = threading.Thread(target=work)
    worker.start()
    items.put(True)
    found = loop(True)
    items.put(False)
    worker.join()
    return found
def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end and not enough.is_set():
        pass
enough = multiprocessing.get_context("fork").Event()
def forked(work):
    enough.clear()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        wait = lambda: pool.map(work, [4])
        (count,) = seen(lambda: standing("asleep", 1), enough.set, wait)
    return count
def main():
    step(1.0)
    found = {
        "threads": threads(request), "handlers": threads(handle),
        "lock": held(), "full": full(False),
        "slow": full(True), "loop": loop(True), "awaits": loop(False),
        "served": served(),
        "asleep": forked(time.sleep), "works": forked(spin),
    }
    print(json.dumps(found))
main()
jaxmon.uninstrument()
"""


def test_waits_are_known_by_what_they_wait_for() -> None:
    """
    Threads that wait at once, each by itself, are no threads that wait for a lock, and
    divide work unless they serve requests; a
    queue that nothing empties is none whose consumer is slow; a coroutine that blocks
    is none that awaits, also if its workers wait for requests meanwhile; forked workers
    that do nothing are none that work.
    """
    found = json.loads(run_preloaded("-c", WAITS).ok().out)
    assert [True, False, True] in found["threads"]
    assert not any(divided for divided, *_ in found["handlers"])
    assert not any(divided for divided, *_ in found["lock"])
    assert (found["full"], found["slow"]) == (["run"], [])
    assert [False, True, True] in found["loop"]
    assert [False, True, True] in found["served"]
    assert found["awaits"] == []
    assert (found["asleep"], found["works"]) == (1, 0)


@pytest.mark.parametrize(
    ("asked", "error", "is_over"),
    [(False, None, True), (True, None, False), (False, KeyboardInterrupt(), False)],
)
def test_what_went_on_last_is_over_at_the_end(monkeypatch, asked, error, is_over):
    """Not if a report is asked for meanwhile, nor if the user has ended the program."""
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    looks = SimpleNamespace(progress=SimpleNamespace(current="waits"))
    WallTimePart.refresh(cast("Any", SimpleNamespace(_looks=looks)), asked=asked)

    assert (looks.progress.current is None) == is_over
