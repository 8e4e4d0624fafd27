"""Agents in processes that fork, end, are killed, or start another."""

import fcntl
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.helpers import processes, session
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import HEAD, ROOT, files


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock of a slot."""
    with path.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@contextmanager
def waiting(run_dir: Path, source: str) -> Iterator[Program]:
    """Run a program that prints a line when it is ready, and waits for input."""
    process = start_preloaded(
        *("-c", HEAD + source + "\nprint('ready', flush=True)\ninput()"),
        environ=processes.clean_environ(run_dir, JAXMON_PORT="none"),
        stdin=PIPE,
        stdout=PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


# --- fork ------------------------------------------------------------------------

FORKED = """
import warnings
warnings.simplefilter("ignore")
attributes = lambda: [
    jax.jit, jax.pmap, sys.excepthook, threading.excepthook,
    sys.modules["jax._src.pjit"]._infer_params,
    sys.modules["jax._src.compiler"].compile_or_get_cached,
    sys.modules["jax._src.traceback_util"]._filtering_mode,
]
originals = attributes()
from jaxmon.threads import running
monitoring = sys.modules["jax._src.monitoring"]
agent = jaxmon.instrument(port=0)
jitted = jax.jit(lambda x: x + 1)

def in_child(work):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            found = work()
        except BaseException as error:
            found = repr(error)
        os.write(writer, json.dumps(found).encode())
        os.close(writer)
        return None
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = json.loads(pipe.read() or '"died"')
    return found, os.waitpid(pid, 0)[1]

def look():
    return {
        "attributes": all(a is b for a, b in zip(attributes(), originals)),
        "listeners": len(monitoring.get_event_listeners()),
        "threads": threading.active_count() + len(running()),
        "sockets": [t for t in map(
            lambda fd: os.readlink("/proc/self/fd/" + fd) if os.path.lexists(
                "/proc/self/fd/" + fd) else "", os.listdir("/proc/self/fd"))
            if t.startswith("socket:") or "agent-" in t],
        "agent": [agent.running, agent.url, agent.socket],
        "works": float(jitted(1.0)),
    }

def own():
    mine = jaxmon.instrument(port=0)
    counted = jax.jit(lambda x: x * 2)
    counted(1.0); counted(1.0)
    page = get(mine.url)
    found = {
        "other": mine is not agent,
        "socket": os.path.basename(mine.socket),
        "calls": "jaxmon_jit_calls_total" in page and
            [l for l in page.splitlines() if "calls_total{" in l and "<lambda>" in l],
    }
    jaxmon.uninstrument()
    return found

noted = {}
for name, work in (("look", look), ("own", own)):
    outcome = in_child(work)
    if outcome is None:
        sys.exit(0) if name == "own" else os._exit(0)  # once with atexit, once without
    noted[name], noted[name + " status"] = outcome
noted["page"] = "jaxmon_build_info" in get(agent.url)
noted["files"] = sorted(os.listdir(os.environ["JAXMON_RUN_DIR"]))
noted["running"] = agent.running
jitted(1.0)
noted["misses"] = [l for l in get(agent.url).splitlines() if "misses_total{" in l]
print(json.dumps(noted))
"""


def test_a_forked_child_is_free_of_its_parents_agent(preloaded_script, run_dir):
    """The child has no hooks, and may have its own."""
    noted = preloaded_script(HEAD + FORKED).json()

    assert noted["look"] == {
        "attributes": True,
        "listeners": 0,
        "threads": 1,
        "sockets": [],
        "agent": [False, None, None],
        "works": 2.0,
    }
    assert noted["look status"] == noted["own status"] == 0
    assert noted["own"]["other"] is True
    assert noted["own"]["socket"] == "agent-1.sock"
    assert len(noted["own"]["calls"]) == 1
    assert noted["own"]["calls"][0].endswith(" 2")
    assert noted["page"] is True
    assert noted["running"] is True
    records = ["agent-0.end", "agent-1.end"]
    assert noted["files"] == sorted(["agent-0.lock", "agent-0.sock", *records])
    assert len(noted["misses"]) == 1
    assert files(run_dir) == []


MULTIPROCESSING = """
import multiprocessing, warnings
warnings.simplefilter("ignore")

def work(x):
    running = jaxmon.agent.agent.slot.agent is not None
    return [running, float(jax.jit(lambda y: y + 1)(x))]

if __name__ == "__main__":
    agent = jaxmon.instrument(port=0)
    found = {}
    for method, workers in [("fork", 2), ("spawn", 1)]:
        with multiprocessing.get_context(method).Pool(workers) as pool:
            found[method] = pool.map(work, [1.0, 2.0])
    found["page"] = "jaxmon_build_info" in get(agent.url)
    print(json.dumps(found))
"""


def test_multiprocessing_works_both_ways(python_script, run_dir):
    """Pools of forked and of spawned workers compute, without an agent of their own."""
    source = HEAD.replace(
        "import jax, jaxmon", "import jax, jaxmon, jaxmon.agent.agent"
    )
    found = python_script(source + MULTIPROCESSING).json()

    expected = [[False, 2.0], [False, 3.0]]
    assert found == {"fork": expected, "spawn": expected, "page": True}
    assert files(run_dir) == []


# --- ends ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code", "left"),
    [
        ("pass", 0, []),
        ("sys.exit(3)", 3, []),
        ("raise ValueError", 1, []),
        ("os._exit(4)", 4, ["agent-0.lock", "agent-0.sock"]),
        ("os.kill(os.getpid(), 15)", -15, ["agent-0.lock", "agent-0.sock"]),
        ("os.kill(os.getpid(), 9)", -9, ["agent-0.lock", "agent-0.sock"]),
    ],
)
def test_an_ended_process_leaves_a_free_slot(
    preloaded_script, run_dir, end, code, left
):
    """After any end the slot is free."""
    result = preloaded_script(HEAD + "jaxmon.instrument(port=None)\n" + end)

    assert result.code == code
    assert files(run_dir) == left
    if left:
        assert not is_locked(run_dir / "agent-0.lock")


IMPATIENT = """
import signal
from tests.helpers import inside
agent = jaxmon.instrument(port=None)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
def again():
    os.kill(os.getpid(), signal.SIGTERM)
    while True:  # another thread may take the signal, and the handler runs later
        pass
inside.memory(agent).stop = again
os.kill(os.getpid(), signal.SIGTERM)
while True:
    pass
"""


def test_a_second_signal_at_the_end_prints_nothing(python_script):
    """What its handler raises while the agent stops ends the agent's part of it."""
    result = python_script(HEAD + IMPATIENT, env={"PYTHONPATH": str(ROOT)}).ok()

    assert result.err == ""


def test_a_killed_process_is_replaced_in_its_slot(run_dir: Path) -> None:
    """The successor takes number and socket of the killed one, others keep theirs."""
    start = "jaxmon.instrument()"
    with waiting(run_dir, start) as first, waiting(run_dir, start) as second:
        assert files(run_dir) == [
            f"agent-{n}.{kind}" for n in (0, 1) for kind in ("lock", "sock")
        ]
        first.send_signal(signal.SIGKILL)
        first.wait(90)
        with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as s:
            s.connect(str(run_dir / "agent-0.sock"))

        with waiting(run_dir, start), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(run_dir / "agent-0.sock"))
            assert is_locked(run_dir / "agent-0.lock")
            assert is_locked(run_dir / "agent-1.lock")
            assert len(files(run_dir)) == 4
        assert second.poll() is None


# --- two agents ------------------------------------------------------------------


def test_there_is_one_agent_per_process(preloaded_script):
    """A second call returns the first agent, as it is."""
    source = """
from jaxmon.threads import running
first = jaxmon.instrument(port=0)
again = jaxmon.instrument()
other = jaxmon.instrument(port=None)
found = []
jaxmon.uninstrument()
barrier = threading.Barrier(8)
def start():
    barrier.wait()
    found.append(jaxmon.instrument(port=0))
threads = [threading.Thread(target=start) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
found[0].collect()  # which loads all that runs
print(json.dumps([
    first is again is other, len(set(map(id, found))), found[0] is not first,
    sorted(one.name for one in (*threading.enumerate(), *running())),
    len(os.listdir(os.environ["JAXMON_RUN_DIR"])),
]))
"""
    result = preloaded_script(HEAD + source)

    assert result.json() == [True, 1, True, ["MainThread", *session.THREADS], 3]
    assert len(result.err.splitlines()) == 1
    assert "jaxmon is already running with" in result.err


# --- settings --------------------------------------------------------------------


def test_variables_configure_an_agent_and_arguments_win(preloaded_script, run_dir):
    """``JAXMON_*`` variables are read at `instrument`, not at import."""
    source = """
from jaxmon.threads import running
os.environ["JAXMON_MAX_FUNCTIONS"] = "7"
agent = jaxmon.instrument(memory_interval=0)
agent.collect()  # which loads all that runs
print(json.dumps([
    agent.settings.port, agent.settings.max_functions, agent.settings.calls,
    agent.settings.memory_interval, agent.url,
    sorted(one.name for one in (*threading.enumerate(), *running())),
]))
"""
    result = preloaded_script(
        HEAD + source,
        env={
            "JAXMON_PORT": "none",
            "JAXMON_CALLS": "no",
            "JAXMON_MEMORY_INTERVAL": "5",
        },
    )

    assert result.json() == [None, 7, False, 0, None, ["MainThread", *session.THREADS]]


def test_few_threads_do_all_that_can_be_enabled(preloaded_script, tmp_path):
    """Three threads do it all, and one more for long work."""
    source = """
import sys, time
from jaxmon.threads import running
agent = jaxmon.instrument(
    port=0, memory_interval=1, memory_lines_interval=1, sample_rate=100,
    shadow_interval=0.1, log_events=True, device_figures=True, report=True,
    run="all", run_state=sys.argv[1], run_interval=1, jax_functions=True,
)
step, ended = jax.jit(lambda x: {"loss": x + 1}), time.monotonic() + 60
while True:
    for _ in jaxmon.steps(range(100)):
        jaxmon.log_values(step(1.0))
    agent.refresh()
    names = sorted(one.name for one in running())
    if time.monotonic() > ended or (
        len(names) <= 4 and "jaxmon_execution_seconds" in str(agent.collect())
    ):
        break
jaxmon.uninstrument()
print(json.dumps([names, [one.name for one in running()]]))
"""
    result = preloaded_script(HEAD + source, str(tmp_path / "run"))

    assert result.json() == [[*session.THREADS], []]


def test_disabled_touches_nothing(python_script, run_dir):
    """With ``JAXMON_ENABLED=0`` not even JAX is imported."""
    source = """
import sys, threading, jaxmon
agent = jaxmon.instrument()
print("jax" in sys.modules, threading.active_count(), agent.url, agent.collect())
agent.refresh(); agent.collect(); jaxmon.uninstrument(); repr(agent)
"""
    result = python_script(source, env={"JAXMON_ENABLED": "0"}).ok()

    assert result.out == "False 1 None []\n"
    assert files(run_dir) == []


def test_an_unusable_setting_raises_and_leaves_nothing(preloaded_script, run_dir):
    """It is raised before anything is attached."""
    source = """
jit = jax.jit
for options in ({"port": "x"}, {"no_such": 1}, {"max_functions": 0}):
    try:
        jaxmon.instrument(**options)
    except jaxmon.SettingsError as error:
        print(error)
assert jax.jit is jit
"""
    result = preloaded_script(HEAD + source).ok()

    port, unknown, functions = result.out.splitlines()
    assert port == "port='x' is invalid; give 0 to 65535, or None for no TCP port"
    assert "unknown setting 'no_such'; settings are enabled, host" in unknown
    assert functions == "max_functions=0 is out of range; give 1 to 10000"
    assert files(run_dir) == []
