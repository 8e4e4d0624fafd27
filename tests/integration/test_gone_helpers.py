"""Threads and child processes of the program that have failed."""

import json
import os

import jax
import pytest

from jaxmon.agent.errors.helpers import HelperFailures
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.facts.reader import from_json
from jaxmon.facts.walltime import FailedHelper as Failed
from tests.helpers.preloaded import run_preloaded


PROGRAM = """
import contextlib, json, multiprocessing, os, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import jax, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.errors.part import ErrorPart
from jaxmon.facts.record import encoded

def read(what):
    if what:
        raise ValueError(f"{what} record\\nmore")

def leave():
    sys.exit()

def work(how):
    all_run.wait()
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(how)

def gone():
    return encoded(runtime_of(agent).part(ErrorPart).helpers.latest())

agent = jaxmon.instrument(port=None, time_interval=0)
assert gone() == []
runtime_of(agent).part(ErrorPart).helpers.look()
with ThreadPoolExecutor(1, "pool") as pool:
    kept = pool.submit(read, "kept")
    pool.submit(read, "dropped")
    handled = pool.submit(read, "handled")
    pool.submit(read, "").result()
    with contextlib.suppress(ValueError):
        pool.submit(read, "handled at once").result()
    with contextlib.suppress(ValueError):
        handled.result()
print(json.dumps(gone()))
with contextlib.suppress(ValueError):
    kept.result()
runtime_of(agent).part(ErrorPart).helpers._tasks.clear()
threads = [
    threading.Thread(target=read, args=("corrupt",), name="prefetch"),
    threading.Thread(target=read, args=("",), name="fine"),
    threading.Thread(target=leave, name="leaves"),
]
for one in threads:
    one.start()
    one.join()
fork = multiprocessing.get_context("fork")
# To start a process waits for those that have ended.
all_run = fork.Event()
workers = [fork.Process(target=work, args=(how,)) for how in ("killed", 3, 0)]
others = [subprocess.Popen(["sh", "-c", how]) for how in ("kill -9 $$", "exit 4", "")]
for one in workers:
    one.start()
all_run.set()
for one in (*[w.pid for w in workers], *[o.pid for o in others]):
    os.waitid(os.P_PID, one, os.WEXITED | os.WNOWAIT)
runtime_of(agent).part(ErrorPart).helpers.look()
print(json.dumps(gone()))
# They can still be waited for.
for one in workers:
    one.join()
print([one.exitcode for one in workers], [one.wait() for one in others])
print(len(gone()))
"""


@pytest.mark.parametrize("watched", [True, False])
def test_those_that_failed_are_known(preloaded_script, watched):
    """Threads, workers and children that failed are named, and no others."""
    program = PROGRAM if watched else PROGRAM.replace("look()", "latest()")
    tasks, failed, codes, left = preloaded_script(program).ok().out.splitlines()
    dropped, kept = (from_json(Failed, one) for one in json.loads(tasks))
    assert (dropped.kind, dropped.message) == ("task", "dropped record")
    assert (kept.kind, kept.message, kept.name) == ("task", "kept record", "pool_0")
    assert kept.where.endswith("script.py:11")
    thread, *processes = (from_json(Failed, one) for one in json.loads(failed))
    assert (thread.kind, thread.name) == ("thread", "prefetch")
    assert (thread.type, thread.message) == ("ValueError", "corrupt record")
    assert thread.where.endswith("script.py:11")
    assert thread.function == "read"
    assert 0.0 <= (thread.age_seconds or 0.0) < 600.0
    assert {one.kind for one in processes} == {"process"}
    killed, failed, command = sorted(
        processes, key=lambda one: (-len(one.name), one.pid)
    )
    assert killed.name.startswith("ForkProcess-")
    assert [one.code for one in (killed, failed, command)] == [-9, 3, -9]
    # Since when is known of what was seen before.
    for one in processes:
        assert (one.age_seconds is not None) == watched
        assert 0.0 <= (one.age_seconds or 0.0) < 600.0
    assert command.name == ""
    # They are still the program's to wait for, and then nobody's concern.
    assert codes == "[-9, 3, 0] [-9, 4, 0]"
    assert left == "1"


POOLS = """
import json, multiprocessing, os, signal, sys, threading, time
import jax, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.walltime import part
from jaxmon.facts.record import encoded
from jaxmon.threads import DaemonThread
part._LONG = 0.3
agent = jaxmon.instrument(port=None, socket=False, time_interval=0.02)
ledger = runtime_of(agent).part(part.WallTimePart)
fork = multiprocessing.get_context("fork")

def work(how):
    time.sleep(1)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "leaves":
        sys.exit(3)
    time.sleep(1)

def seen(wait, done):
    found = []
    def look():
        end = time.monotonic() + 30
        while time.monotonic() < end and not found:
            time.sleep(0.1)
            now = ledger.snapshot().now
            found.extend(helper for helper in now.gone if helper.pooled)
            if done.is_set():
                break
    watch = DaemonThread("jaxmon-test", look)
    watch.start()
    wait(watch)
    watch.join()
    return encoded(tuple(found))

def with_pool(how):
    done = threading.Event()
    time.sleep(1)  # so long that a look finds that the wait before has ended
    with fork.Pool(2, maxtasksperchild=1) as pool:
        def wait(watch):
            result = pool.map_async(work, [how, "", "", ""], chunksize=1)
            while watch.is_alive() and not result.ready():
                result.wait(3)
            done.set()
        found = seen(wait, done)
    return found

ended = with_pool("")  # by exiting after a task, and by SIGTERM
failed = {how: with_pool(how) for how in ("killed", "leaves")}
elsewhere = threading.Event()
threading.Timer(2, elsewhere.set).start()
print(json.dumps([ended, failed, seen(lambda _: elsewhere.wait(), elsewhere)]))
jaxmon.uninstrument()
"""


def test_workers_of_pools_that_failed_are_known_where_it_waits_for_them():
    """Their pool has waited for them, started others, and mentions it nowhere."""
    ended, failed, elsewhere = json.loads(run_preloaded("-c", POOLS).ok().out)
    assert ended == elsewhere == []
    for how, code in (("killed", -9), ("leaves", 3)):
        latest = from_json(Failed, failed[how][0])
        assert latest.name.startswith("ForkPoolWorker-")
        assert (latest.kind, latest.code, latest.pooled) == ("process", code, True)
        assert latest.age_seconds is not None
        assert 0.0 <= latest.age_seconds < 30.0


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (
            Failed("thread", "prefetch", "ValueError", "bad", "a.py:7", "read", 31.0),
            "thread prefetch ended 31 s ago by ValueError: bad, a.py:7 in read",
        ),
        (Failed("thread", "", "KeyError"), "thread ended by KeyError"),
        (
            Failed("task", "pool_0", "ValueError", "bad", "a.py:7", "read", 31.0),
            (
                "a task of thread pool_0 failed 31 s ago, and nothing has read its "
                "exception: ValueError: bad, a.py:7 in read"
            ),
        ),
        (
            Failed("process", "Process-2", pid=7, code=-9),
            "process Process-2 (pid 7) was ended by SIGKILL",
        ),
        (
            Failed("process", pid=7, code=-99),
            "process (pid 7) was ended by signal 99",
        ),
        (
            Failed("process", "w", "", "", "", "", 61.0, 7, -9, pooled=True),
            "process w (pid 7) was ended by SIGKILL 1 min 1 s ago",
        ),
        (
            Failed("process", "w", pid=7, code=3),
            "process w (pid 7) exited with code 3",
        ),
    ],
)
def test_what_is_said_of_them(one: Failed, expected: str) -> None:
    """What it was, how it ended, and where."""
    assert str(one) == expected


THREADS = """
import json, threading
import jax, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.errors.part import ErrorPart
from jaxmon.facts.record import encoded

def run(name, does):
    thread = threading.Thread(target=does, name=name)
    thread.start()
    thread.join()

def fail():
    raise ValueError("empty job")

if EARLY:
    threading.excepthook = lambda args: None
agent = jaxmon.instrument(port=None)
run("ends", int)
run("leaves", exit)
run("fails", fail)
if not EARLY:
    ours = threading.excepthook
    threading.excepthook = lambda args: ours(args)
    run("passes on", fail)
    threading.excepthook = lambda args: None
    run("keeps", fail)
found = encoded(runtime_of(agent).part(ErrorPart).helpers.latest())
print(json.dumps({of["name"]: of["handled"] for of in found}))
"""


@pytest.mark.parametrize("early", [False, True])
def test_a_hook_of_the_program_handles_what_ends_a_thread(preloaded_script, early):
    """Whether it was there before ours, calls ours, or takes its place."""
    done = preloaded_script(THREADS.replace("EARLY", str(early))).ok()
    late = {"fails": False, "passes on": True}
    assert json.loads(done.out) == ({"fails": True} if early else late)


KILLED = """
import json, multiprocessing, os, signal, time
import jax, jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.walltime import part
from jaxmon.facts.record import encoded
from jaxmon.threads import DaemonThread
part._LONG = 0.2
agent = jaxmon.instrument(port=None, socket=False, time_interval=0.02)
ledger = runtime_of(agent).part(part.WallTimePart)
fork = multiprocessing.get_context("fork")
batches, found = fork.Queue(), []

def work():
    batches.put(0)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)

def look():
    end = time.monotonic() + 30
    while time.monotonic() < end and not found:
        time.sleep(0.1)
        gone = ledger.snapshot().now.gone
        found.extend(of for of in gone if of.age_seconds is not None)
    batches.put(None)

jax.numpy.ones(3).block_until_ready()
fork.Process(target=work, name="loader").start()
DaemonThread("jaxmon-test", look).start()
while batches.get() is not None:
    pass
print(json.dumps(encoded(tuple(found))))
jaxmon.uninstrument()
"""


def test_a_worker_that_is_killed_is_known_where_a_loop_waits_for_it():
    """Since when, too; looks note that, and the loop marks nothing."""
    (found,) = run_preloaded("-c", KILLED).json()
    assert (found["name"], found["code"]) == ("loader", -9)
    assert 0.0 <= found["age_seconds"] < 30.0


def test_looks_go_on_without_waitid(monkeypatch):
    """As on macOS before Python 3.13."""
    monkeypatch.delattr(os, "waitid")
    failures = HelperFailures(SourceLineFinder(jax))
    failures.look()
    failures.look()
