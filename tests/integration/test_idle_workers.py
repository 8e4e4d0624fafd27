"""Threads that wait for work: idle, unless it is known that none will come."""

import json

import pytest

from tests.helpers.preloaded import run_preloaded


PROGRAM = """
import json, multiprocessing, os, queue, socket, sys, threading, time
import jax, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.walltime import looks, part
from jaxmon.threads import DaemonThread
part._LONG, looks.IDLE_SECONDS = 0.3, 1.0
step = jax.jit(lambda x: x + 1)
agent = jaxmon.instrument(port=None, socket=False, time_interval=0.02)
ledger = runtime_of(agent).part(part.WallTimePart)
found = []
def watch():
    while not found:
        time.sleep(0.1)
        time_now = ledger.snapshot()
        now, idle = time_now.now, time_now.recent.of("idle")
        # Few looks are made while others have the processors.
        seen = now.seconds > (2.0 if idle > 0.5 else 6.0)
        if seen and now.state in STATES:
            found.append([now.state, now.work, now.alone, idle > 0.5, SAYS(time_now)])
    print(json.dumps(found[0]), flush=True)
    os._exit(0)
SAYS = lambda time_now: round(time_now.call_age) > 0
STATES = {"data_wait", "blocked", "idle"}
def feed(put):
    for _ in range(40):
        put(1.0)
        time.sleep(0.02)
def work(take):
    while True:
        step(take())
def worker(take, put, feeds=True):
    DaemonThread("jaxmon-test", watch).start()
    thread = threading.Thread(target=work, args=(take,))
    thread.start()
    feed(put)
    if feeds:
        threading.Timer(600, put, (1.0,)).start()
    thread.join()
def main(take, put):
    DaemonThread("jaxmon-test", watch).start()
    def forward():
        feed(put)
        time.sleep(600)
    threading.Thread(target=forward).start()
    work(take)
def condition():
    ready, items = threading.Condition(), []
    def take():
        with ready:
            while not items:
                ready.wait()
            return items.pop()
    def put(item):
        with ready:
            items.append(item)
            ready.notify()
    return take, put
def simple():
    items = queue.SimpleQueue()
    def take():
        step(0.0)
        return items.get()
    return take, items.put
def typed():
    read, write = os.pipe()
    os.dup2(read, 0)
    sys.stdin = open(0)
    def take():
        step(0.0)
        return float(input())
    return take, lambda item: os.write(write, b"1.0\\n")
def accepted():
    listens = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listens.getsockname())
    def serve():
        while True:
            connection, _ = listens.accept()
            while data := connection.recv(4):
                step(float(data[:3]))
    return serve, lambda item: client.sendall(b"1.0\\n")
def shared(kind):
    items = kind()
    return items.get, items.put
def event():
    ready, freed = threading.Event(), []
    def take():
        step(0.0)
        ready.wait()
        return 0.0
    def put(item):
        ready.set()
        time.sleep(0.01)
        ready.clear()
    return take, put
"""

CASES = {
    "worker of a queue": "worker(*shared(queue.Queue))",
    "queue of processes": "main(*shared(multiprocessing.Queue))",
    "main of a queue": "main(*shared(queue.Queue))",
    "queue in C": "main(*simple())",
    "condition": "worker(*condition())",
}


@pytest.mark.parametrize("name", CASES)
def test_a_queue_that_runs_dry_is_idle(name: str) -> None:
    """At first it waits for an item; after a while, there is nothing to do."""
    state, work, alone, idle, calls_none = _seen(CASES[name])
    assert state == ("blocked" if name == "condition" else "data_wait")
    assert (work, alone, idle, calls_none) == (True, False, True, True)


@pytest.mark.parametrize("kind", ["typed", "accepted"])
def test_who_waits_for_its_user_or_a_client_is_idle(kind: str) -> None:
    """A line of the terminal, or the next request of a connection."""
    assert _seen(f"main(*{kind}())")[0] == "idle"


def test_that_nothing_is_left_to_fill_a_queue_is_known() -> None:
    """The main thread waits for the worker, and the worker for an item."""
    state, _, alone, *_ = _seen("worker(*shared(queue.Queue), feeds=False)")
    assert (state, alone) == ("data_wait", True)


def test_an_event_is_no_work() -> None:
    """What sets it may have failed."""
    state, work, *_ = _seen("main(*event())")
    assert (state, work) == ("blocked", False)


def test_a_marked_loop_waits_for_data() -> None:
    """Its steps are due, so a queue that stays empty is a fault."""
    steps = "iter(jaxmon.steps(iter(take, 0))).__next__"
    case = f"take, put = shared(queue.Queue)\nmain({steps}, put)"
    state, work, _, idle, _ = _seen(case)
    assert (state, work, idle) == ("data_wait", False, False)


def _seen(case: str) -> list[object]:
    found: list[object] = json.loads(run_preloaded("-c", PROGRAM + case).ok().out)
    return found
