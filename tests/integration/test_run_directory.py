"""The run directory under living agents: removed, shared, and fought over."""

import json
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from jaxmon.host import rundir
from jaxmon.host.files.descriptor import identity
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.preflight.doctor import machine
from tests.helpers.preloaded import start_preloaded
from tests.helpers.processes import clean_environ, files, until


# What an agent serves with, less JAX: a process starts in a tenth of the time.
PROGRAM = """
import signal, sys
# Before there are threads, which would take the signal.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
from pathlib import Path
from jaxmon.agent import serving
from jaxmon.agent.serving import LocalSocket
from jaxmon.host.http.server import Response, Server
name, every = sys.argv[2], float(sys.argv[3])
if sys.argv[4:]:  # on another host: neither locks nor connections reach the others
    import fcntl
    from jaxmon.host import rundir
    fcntl.flock, rundir._answers = lambda *_: None, lambda _: False
page = lambda _: Response(name.encode())
server = Server({"/metrics": page, "/-/healthy": page})
local = LocalSocket(server, Path(sys.argv[1]), began=0)
print("go", flush=True)
sys.stdin.readline()
local.open()
server.every(every, local.check)
server.start()
print(local.path, flush=True)
signal.sigwait([signal.SIGTERM])
local.close()
server.stop()
"""

Start = Callable[..., "Process"]


_MOST = 1 << 20  # bytes of a page


class Process:
    """A server in a slot, as a process of its own."""

    def __init__(
        self, run_dir: Path, name: str, every: float, *words: str, err: Any = None
    ) -> None:
        self.name = name
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(run_dir), name, str(every), *words],
            env=clean_environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
        assert self._line() == "go"

    def go(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def listening(self) -> str:
        """Wait until it serves, and return the name of its socket."""
        return Path(self._line()).name

    def end(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    def _line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


@pytest.fixture
def start(run_dir: Path) -> Iterator[Start]:
    """Return a function that starts a process, which waits for its `go`."""
    with ExitStack() as stack:

        def begin(name: str, *, every: float = 0.05) -> Process:
            process = Process(run_dir, name, every)
            stack.enter_context(process.popen)
            stack.callback(process.popen.kill)
            return process

        yield begin


def seen(run_dir: Path) -> dict[str, str]:
    """Return who answers in which slot, as a sidecar sees it; ``""`` who does not."""
    found = fetch_all(rundir.sockets(run_dir), "/metrics", timeout=60, max_bytes=_MOST)
    return {
        slot: "" if isinstance(answer, FetchError) else answer
        for slot, answer in found.items()
    }


def many(start: Start, *names: str, every: float = 0.05) -> list[Process]:
    processes = [start(name, every=every) for name in names]
    for process in processes:
        process.go()
    for process in processes:
        process.listening()
    return processes


def test_agents_that_start_at_once_all_have_a_slot(run_dir: Path, start: Start) -> None:
    """However many ask for the lowest number together, each gets one of its own."""
    names = [f"p{number}" for number in range(12)]
    many(start, *names)
    found = seen(run_dir)

    assert sorted(found.values()) == sorted(names)
    assert sorted(map(int, found)) == list(range(len(names)))


def test_agents_come_back_after_their_directory(run_dir: Path, start: Start) -> None:
    """Where it is removed under them, each listens again, in its slot of before."""
    many(start, "a", "b", "c")
    before = seen(run_dir)
    shutil.rmtree(run_dir)
    until(lambda: seen(run_dir) == before, "all to listen again")

    assert sorted(before.values()) == ["a", "b", "c"]


def test_agents_come_back_when_their_directory_can_be_made_again(run_dir, start):
    """While a file lies there, nothing is done."""
    (one,) = many(start, "a")
    elsewhere = run_dir.with_suffix(".away")
    run_dir.rename(elsewhere)
    try:
        run_dir.write_text("in the way")
        assert one.popen.poll() is None
        run_dir.unlink()
        until(lambda: seen(run_dir) == {"0": "a"}, "it to listen again")
        (other,) = many(start, "b")
        other.end()
        assert other.popen.wait(90) == 0
        assert seen(run_dir) == {"0": "a"}
    finally:
        shutil.rmtree(elsewhere)


def test_a_slot_that_another_program_took_is_left_to_it(run_dir, start):
    """The agent takes another slot."""
    many(start, "a")
    with closing(socket.socket(socket.AF_UNIX)) as other:
        other.bind(str(run_dir / "other"))
        other.listen()
        (run_dir / "other").rename(run_dir / "agent-0.sock")
        mine = identity(run_dir / "agent-0.sock")
        moved = {"1": run_dir / "agent-1.sock"}
        until(
            lambda: (
                fetch_all(moved, "/metrics", timeout=60, max_bytes=_MOST) == {"1": "a"}
            ),
            "the agent to move",
        )

        assert identity(run_dir / "agent-0.sock") == mine


def test_hosts_that_share_a_directory_do_not_fight_for_ever(run_dir: Path) -> None:
    """One of them leaves the slot to the other."""
    with ExitStack() as stack:
        processes = []
        for name in ("a", "b"):
            err = stack.enter_context((run_dir / f"{name}.err").open("w+"))
            one = Process(run_dir, name, 0.05, "other", err=err)
            stack.enter_context(one.popen)
            stack.callback(one.popen.kill)
            processes.append(one)
        for one in processes:
            one.go()
            assert one.listening() == "agent-0.sock"

        def left() -> list[str]:
            texts = {n: (run_dir / f"{n}.err").read_text() for n in ("a", "b")}
            return [name for name, text in texts.items() if "keeps replacing" in text]

        until(left, "one to leave")
        (loser,) = left()
        (winner,) = {"a", "b"} - {loser}
        until(lambda: seen(run_dir) == {"0": winner}, "the other to be alone")
        for one in sorted(processes, key=lambda one: one.name == winner):
            one.end()
            assert one.popen.wait(90) == 0
            assert seen(run_dir) == ({"0": winner} if one.name == loser else {})
        assert left() == [loser]
        said = (run_dir / f"{loser}.err").read_text()
        assert said.count("keeps replacing") == 1
        assert "set JAXMON_RUN_DIR to a directory of this host" in said


@pytest.mark.parametrize("gone", ["*.sock", "*.lock", "*"])
def test_agents_come_back_after_a_cleaner(run_dir, start, gone):
    """Whatever was taken out of the directory is there again."""
    many(start, "a", "b", "c")
    before = seen(run_dir)
    for path in run_dir.glob(gone):
        path.unlink()

    until(
        lambda: len(files(run_dir)) == 6 and seen(run_dir) == before,
        "all files to be there again",
    )


def test_a_newcomer_leaves_an_agent_without_lock_alone(run_dir, start):
    """The socket that answers stays where it is."""
    (old,) = many(start, "old", every=3600)
    (run_dir / "agent-0.lock").unlink()
    findings = list(machine.sockets(run_dir, None))
    new = start("new", every=3600)
    new.go()

    assert new.listening() == "agent-1.sock"
    assert seen(run_dir) == {"0": "old", "1": "new"}
    assert "agents running here: 0" in [one.text for one in findings]
    old.end()
    assert old.popen.wait(90) == 0
    assert seen(run_dir) == {"1": "new"}


def test_an_agent_that_ends_leaves_its_successor_alone(run_dir, start):
    """It unlinks what is its own, which is gone."""
    (old,) = many(start, "old", every=3600)
    shutil.rmtree(run_dir)
    many(start, "new", every=3600)
    old.end()

    assert old.popen.wait(90) == 0
    assert seen(run_dir) == {"0": "new"}


def test_the_doctor_changes_nothing(run_dir: Path, start: Start) -> None:
    """What a killed process left is evidence: it is reported, and kept."""
    (victim,) = many(start, "victim")
    victim.popen.kill()
    victim.popen.wait()
    before = sorted(run_dir.iterdir())
    findings = [one.text for one in machine.sockets(run_dir, None)]

    assert sorted(run_dir.iterdir()) == before
    killed = (
        "worker 0: killed, and the socket is left; the next agent there replaces it"
    )
    assert killed in findings


def test_a_sidecar_follows_no_link(run_dir: Path) -> None:
    """A link could make it connect to any server."""
    other = run_dir / "other"
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(other))
        server.listen()
        server.settimeout(0)
        (run_dir / "agent-0.sock").symlink_to(other)
        found = fetch_all(
            rundir.sockets(run_dir), "/metrics", timeout=60, max_bytes=9999
        )
        with pytest.raises(BlockingIOError):
            server.accept()

    answer = found["0"]
    assert isinstance(answer, FetchError)
    assert (answer.reason, "link" in str(answer)) == (fetch.BROKEN, True)


@pytest.mark.exhaustive
def test_comings_and_goings_are_never_seen_as_broken(run_dir, start):
    """A sidecar sees each process serving or gone."""
    many(start, "stays")
    stop = threading.Event()
    troubles: list[Any] = []
    missing: list[Any] = []

    def look() -> None:
        while not stop.is_set():
            found = fetch_all(
                rundir.sockets(run_dir), "/metrics", timeout=60, max_bytes=9999
            )
            troubles.extend(
                (slot, answer.reason, str(answer))
                for slot, answer in found.items()
                if isinstance(answer, FetchError) and answer.reason != fetch.LEFT
            )
            if found.get("0") != "stays":
                missing.append(found)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for round_ in range(4):
            born = many(start, *(f"{round_}.{number}" for number in range(4)))
            for process in born:
                process.end()
            for process in born:
                assert process.popen.wait(90) == 0
    finally:
        stop.set()
        watcher.join()

    assert (troubles, missing) == ([], [])
    assert seen(run_dir) == {"0": "stays"}


REAL = """
import json, sys
import jax, jaxmon
from jaxmon.agent import serving
serving.EVERY = 0.05
agent = jaxmon.instrument()
for line in sys.stdin:
    print(json.dumps([agent.socket, agent.running]), flush=True)
jaxmon.uninstrument()
print(json.dumps([agent.socket, agent.running]), flush=True)
"""


def test_a_real_agent_is_found_again(run_dir: Path) -> None:
    """It comes back in the same place, and leaves nothing there."""
    with start_preloaded(
        *("-c", REAL),
        environ=clean_environ(run_dir, JAXMON_PORT="none"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            until(lambda: _pages(run_dir), "the agent to serve")
            shutil.rmtree(run_dir)
            until(lambda: _pages(run_dir), "the agent to serve again")
            process.stdin.write("\n")
            process.stdin.flush()
            told = json.loads(process.stdout.readline())
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()

    assert told == [str(run_dir / "agent-0.sock"), True]
    assert json.loads(out.splitlines()[-1]) == [None, False]
    assert "jaxmon's run directory was modified" in err
    assert files(run_dir) == []


REMOVED = """
import os, shutil, time
from pathlib import Path
import jax, jaxmon
os.umask(0o022)
directory = Path(os.environ["JAXMON_RUN_DIR"])
jaxmon.instrument(port=None, socket=False, run="r", run_interval=0.1)
jax.devices()  # only then is it known that this is process 0
for _ in range(3000):
    if list(directory.glob("runs/*.json")):
        break
    time.sleep(0.01)
shutil.rmtree(directory)
jaxmon.uninstrument()
"""


def test_a_removed_directory_is_created_for_this_user_only(run_dir, preloaded_script):
    """Whatever of the agent is the first to write there again."""
    assert preloaded_script(REMOVED).ok().err == ""
    assert (run_dir / "runs" / "run-r.json").exists()
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700


def _pages(run_dir: Path) -> list[str]:
    return [page for page in seen(run_dir).values() if page]


PLANTED = """
import os, sys
from pathlib import Path
import jax, jaxmon
from jaxmon.agent.goodput.store import AttemptIdentity
from jaxmon.agent.history import part, times
from jaxmon.facts import run as record
directory, victim = Path(os.environ["JAXMON_RUN_DIR"]), Path(sys.argv[1])
runs = directory / "runs"
runs.mkdir()
plant = os.link if sys.argv[2] == "hard" else os.symlink
for slot in range(2):
    for name in ("agent-{}.lock", "agent-{}.end", ".agent-{}.sock", "agent-{}.sock"):
        if slot or not name.endswith(("lock", "end")) or sys.argv[3] in name:
            plant(victim, directory / name.format(slot))
plant(victim, record.path_of(runs, "planted"))
plant(victim, directory / f"{os.getpid()}-1")
plant(victim, directory / f"{os.getpid()}-1.json")
history = times.path_of(directory, [])
times.path_of = lambda *_: history
history.parent.mkdir()
plant(victim, history)
agent = jaxmon.instrument(
    port=None, run="planted", run_state=str(runs), run_interval=0.1,
    figures_dir=str(directory), sample_rate=1000,
)
step = jax.jit(lambda x: x + 1)
for x in jaxmon.steps(range(200)):
    step(float(x)).block_until_ready()
print(agent.socket)
jaxmon.uninstrument()
"""


@pytest.mark.parametrize(("kind", "where"), [("hard", "end"), ("soft", "lock")])
def test_what_others_link_to_is_left_alone(
    run_dir, tmp_path, preloaded_script, kind, where
):
    """A linked file keeps its bytes and permissions."""
    run_dir.chmod(0o2770)  # on purpose: files would get the group's permissions
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious" * 1000)
    victim.chmod(0o400)
    before = victim.stat()
    result = preloaded_script(PLANTED, str(victim), kind, where).ok()
    after = victim.stat()

    assert victim.read_bytes() == b"precious" * 1000
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert "Traceback" not in result.err
    socket = run_dir / f"agent-{0 if where == 'end' else 2}.sock"
    assert result.out == f"{socket}\n"
