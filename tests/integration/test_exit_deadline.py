"""How long the end of a program may take when nothing that it sends to responds."""

from contextlib import nullcontext

import pytest

from tests.fakes.hostile import ENDLESS, hostile
from tests.helpers.preloaded import run_preloaded


# Counts the time in which no thread of the process runs, or waits for a processor.
PROGRAM = """
import atexit, json, os, sys, threading, time
def now():
    delays = {}
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/schedstat") as file:
                delays[task] = int(file.read().split()[1]) / 1e9
        except OSError:
            pass
    return time.monotonic() - time.process_time(), delays
began = []
def last():
    (idle, before), (now_idle, delays) = began[0], now()
    waited = sum(delays[task] - before.get(task, 0) for task in delays)
    print(now_idle - idle - waited, flush=True)
atexit.register(last)
import jax, jaxmon
from jaxmon.agent.goodput.store import Store
agent = jaxmon.instrument(
    port=0, report=True, summary_dir=sys.argv[1], run="r", log_events=True
)
if sys.argv[2:]:
    jaxmon.log_to(lambda values, step: threading.Event().wait(), every=1)
    Store.write = lambda store, record: threading.Event().wait()
@jax.jit
def step(x):
    return x + 1
for _ in jaxmon.steps(range(4), loop="train"):
    with jaxmon.request("predict"):
        step(1.0)
step(2)
atexit.register(lambda: began.append(now()))
sys.exit(7)
"""
SECONDS = 3.0
# Of threads that have ended, no delay is known any more.
MARGIN = 1.0


RARER = [
    ("http/protobuf", ""),
    ("grpc", ""),
    ("http/protobuf", "headers that drip"),
    ("http/protobuf", "a status line"),
]


@pytest.mark.parametrize(
    ("protocol", "answer", "more"),
    [
        ("http/protobuf", "silence", ("hangs",)),
        ("grpc", "silence", ()),
        *[pytest.param(*one, (), marks=pytest.mark.exhaustive) for one in RARER],
    ],
)
def test_all_that_waits_at_exit_shares_three_seconds(tmp_path, protocol, answer, more):
    """All that waits takes no longer than one may, and the program exits as ever."""
    with hostile(ENDLESS[answer]) if answer else nullcontext() as server:
        url = "http://127.0.0.1:1" if server is None else server.url
        done = run_preloaded(
            "-c",
            PROGRAM,
            str(tmp_path),
            *more,
            run_dir=tmp_path,
            env={
                "OTEL_EXPORTER_OTLP_ENDPOINT": url,
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                "OTEL_LOGS_EXPORTER": "otlp",
            },
        )
    assert done.code == 7
    assert "Traceback" not in done.err
    assert "FINDINGS" in done.err
    assert list(tmp_path.glob("*.html"))
    assert float(done.out) < SECONDS + MARGIN, done.err
