"""What the time goes into while a request waits for a lock, and the server for more."""

import json

from tests.helpers.preloaded import run_preloaded


PROGRAM = """
import json, socketserver, threading, time
import jax, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.walltime import looks
from jaxmon.agent.walltime.part import WallTimePart
looks.IDLE_SECONDS = 0.2
agent = jaxmon.instrument(port=None, socket=False, time_interval=0.02)
ledger = runtime_of(agent).part(WallTimePart)
jax.jit(lambda x: x + 1)(1.0)
lock, event = threading.Lock(), threading.Event()
server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
states = []
def handle(wait):
    with jaxmon.request("score"):
        wait()
def take():
    with lock:
        pass
def state(wanted):
    for _ in range(300):
        time.sleep(0.1)
        now = ledger.snapshot().now
        if now.seconds > 0.5 and now.state == wanted:
            break
    states.append(now.state)
def during(wait, wanted, end):
    thread = threading.Thread(target=handle, args=(wait,))
    thread.start()
    time.sleep(0.6)
    state(wanted)
    end()
    thread.join()
def watch():
    lock.acquire()
    during(take, "blocked", lock.release)
    state("idle")
    during(event.wait, "idle", event.set)
    server.shutdown()
threading.Thread(target=watch).start()
server.serve_forever()
print(json.dumps(states))
jaxmon.uninstrument()
"""


def test_a_program_is_not_idle_while_a_request_waits_for_a_lock() -> None:
    """Although its main thread waits for connections; nor is it blocked by an event."""
    states = json.loads(run_preloaded("-c", PROGRAM, seconds=100).ok().out)
    assert states == ["blocked", "idle", "idle"]
