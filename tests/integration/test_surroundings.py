"""Agents in processes that find their host in a bad state."""

import errno
import json
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxmon.facts import endings
from jaxmon.facts.ending import FINISHED
from jaxmon.host.http import sockets
from jaxmon.host.http.sockets import Socket
from tests.helpers.agents import instrumented
from tests.helpers.processes import HEAD, Result, files, free_ports


# One agent after the other, each with settings and variables of its own.
STARTED = """
found = []
for settings, environ in json.loads(sys.argv[1]):
    os.environ.update(environ)
    agent = jaxmon.instrument(**settings)
    found.append({"url": agent.url, "socket": agent.socket})
    found[-1]["result"] = float(jax.jit(lambda x: x + 1)(1.0))
    found[-1]["calls"] = sum(
        n for f in agent.collect() for s, n in f.samples if "jit_calls_total" in s)
    jaxmon.uninstrument()
    print("NEXT", file=sys.stderr, flush=True)
print(json.dumps(found))
"""


Start = tuple[dict[str, Any], dict[str, str]]
Started = tuple[dict[str, Any], str]


@pytest.fixture
def starts(preloaded_script: Callable[..., Result]) -> Callable[..., list[Started]]:
    """
    Return a function that starts agents in a process, and returns what each found.
    """

    def run(cases: list[Start], before: str = "") -> list[Started]:
        result = preloaded_script(HEAD + before + STARTED, json.dumps(cases))
        found = result.json()
        assert [one["result"] for one in found] == [2.0] * len(cases)
        assert [one["calls"] for one in found] == [1] * len(cases)
        *logs, after = result.err.split("NEXT\n")
        assert after == ""
        return list(zip(found, logs, strict=True))

    return run


@pytest.fixture
def start(starts: Callable[..., list[Started]]) -> Callable[..., Started]:
    """Return a function that starts an agent and returns what it found and logged."""

    def run(settings: dict[str, Any], before: str = "", **environ: str) -> Started:
        (only,) = starts([(settings, environ)], before)
        return only

    return run


def test_a_busy_port_moves_on_and_says_so(start: Callable[..., Any]) -> None:
    """The next free port is taken, and the log names both."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found, err = start({"port": port})

    assert f"port {port} is in use; jaxmon serves on port " in err
    assert found["url"] is not None
    assert f":{port}/" not in found["url"]


def test_the_port_of_the_sidecar_is_left_alone(
    starts: Callable[..., list[Started]],
) -> None:
    """An agent takes it only if configured so."""
    taken, sidecar, free = free_ports(3)
    before = (
        f"import jaxmon.agent.serving\njaxmon.agent.serving.SIDECAR_PORT = {sidecar}\n"
    )
    with socket.create_server(("127.0.0.1", taken)):
        (moved, _), (asked, _) = starts(
            [({"port": taken}, {}), ({"port": sidecar}, {})], before
        )

    assert moved["url"] == f"http://127.0.0.1:{free}/metrics"
    assert asked["url"] == f"http://127.0.0.1:{sidecar}/metrics"


def test_no_port_and_no_socket_is_silent(start, run_dir):
    """With neither, the agent observes and serves nothing, without a word."""
    found, err = start({"port": None, "socket": False})

    assert found["url"] is found["socket"] is None
    assert err == ""
    assert files(run_dir) == []


NOT_ADDRESSES = ["no.such.host.invalid", "192.0.2.1", "a" * 70, ""]


def test_a_host_that_cannot_be_bound_is_reported(starts):
    """The program goes on without a TCP port."""
    found = starts([({"host": one, "socket": False}, {}) for one in NOT_ADDRESSES])

    for host, (one, err) in zip(NOT_ADDRESSES, found, strict=True):
        assert one["url"] is None, host
        assert err.count("jaxmon could not open a TCP port") == 1, host
        assert "Traceback" not in err, host


def make_file(path: Path) -> Path:
    path.write_text("")
    return path


def make_link_in_temporary(path: Path) -> Path:
    link = Path(tempfile.gettempdir()) / f"jm-link-{path.name}-{os.getpid()}"
    path.mkdir()
    link.symlink_to(path)
    return link


# what is there: how it comes to be, what the log says
UNUSABLE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "file": (make_file, "File exists"),
    "below a file": (lambda path: make_file(path) / "below", "Not a directory"),
    "too long": (lambda path: path / ("x" * 110), "longer than 106 bytes"),
    "link under the temporary directory": (make_link_in_temporary, "symbolic link"),
    "not writable": (lambda _: Path("/proc/jaxmon"), "set JAXMON_RUN_DIR to"),
    "file system that makes no files": (lambda _: Path("/proc/1"), "JAXMON_RUN_DIR"),
}


def test_an_unusable_run_directory_costs_the_socket_only(
    starts: Callable[..., list[Started]], run_dir: Path
) -> None:
    """The agent serves TCP, without a lock."""
    directories = [
        make(run_dir / f"d{number}")
        for number, (make, _) in enumerate(UNUSABLE.values())
    ]
    try:
        found = starts(
            [({"port": 0}, {"JAXMON_RUN_DIR": str(one)}) for one in directories]
        )
    finally:
        for directory in directories:
            if directory.is_symlink():
                directory.unlink()

    for (name, (_, message)), (one, err) in zip(UNUSABLE.items(), found, strict=True):
        assert one["url"] is not None, name
        assert one["socket"] is None, name
        assert "jaxmon could not open the Unix socket for the sidecar" in err, name
        assert message in err, name
        assert len(err.splitlines()) == 1, name


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (
            errno.EPERM,
            "its file system has no Unix sockets; set JAXMON_RUN_DIR to a ",
        ),
        (errno.ENOSPC, "No space left on device; set JAXMON_RUN_DIR to another "),
    ],
)
def test_a_directory_without_room_for_sockets_is_named(
    monkeypatch, caplog, run_dir, number, words
):
    """As on network file systems and full disks, where the lock could be created."""

    class NoSocket(Socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_UNIX:
                raise OSError(number, os.strerror(number))
            super().bind(address)

    monkeypatch.setattr(sockets, "Socket", NoSocket)
    with instrumented(port=0, socket=True) as agent:
        assert agent.url
        assert list(run_dir.iterdir()) == []
    opening = "jaxmon could not open the Unix socket for the sidecar: cannot create "
    assert f"{opening}{run_dir}/agent-0.sock: {words}" in caplog.text


def test_what_is_in_the_place_of_a_socket_costs_its_slot(start, run_dir):
    """Where it cannot be unlinked, the agent takes the next slot, and says nothing."""
    (run_dir / "agent-0.sock").mkdir()
    found, err = start({"port": None})

    assert found["socket"] == str(run_dir / "agent-1.sock")
    assert err == ""


def test_a_missing_run_directory_is_made_for_this_user_only(start, run_dir):
    """Parents are created as well, and no other user may enter."""
    directory = run_dir / "a" / "b"
    found, err = start({"port": None}, JAXMON_RUN_DIR=str(directory))

    assert found["socket"] == str(directory / "agent-0.sock")
    assert directory.stat().st_mode & 0o777 == 0o700
    assert err == ""


def test_a_relative_run_directory_survives_a_change_of_directory(
    preloaded_script: Callable[..., Result], run_dir: Path
) -> None:
    """The files are cleaned up."""
    source = f"""
os.chdir({str(run_dir)!r})
agent = jaxmon.instrument(port=None, run_dir="relative")
before = agent.socket
os.chdir("/")
print(json.dumps([os.path.exists(before), before]))
"""
    exists, path = preloaded_script(HEAD + source).json()

    assert exists is True
    assert path == str(run_dir / "relative" / "agent-0.sock")
    assert files(run_dir / "relative") == []


@pytest.mark.parametrize(
    "exhaust",
    [
        # Descriptors, then threads.
        """
import resource
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    for _ in range(FREE):
        os.close(held.pop())
""".replace("FREE", str(free))
        for free in range(5)
    ]
    + [
        """
def refuse(self):
    raise RuntimeError("can't start new thread")
from jaxmon.threads import DaemonThread
threading.Thread.start = DaemonThread.start = refuse
"""
    ],
)
def test_an_exhausted_process_is_not_disturbed(
    preloaded_script: Callable[..., Result], exhaust: str
) -> None:
    """The agent says so, and the program goes on."""
    source = """
# Imports need descriptors, too.
get(jaxmon.instrument(port=0).url)
jaxmon.uninstrument()
jitted = jax.jit(lambda x: x + 1)
assert jitted(1.0) == 2.0
EXHAUST
agent = jaxmon.instrument(port=0)
assert jitted(1.0) == 2.0
print(agent.running, agent.url)
jaxmon.uninstrument()
assert type(jax.jit(lambda x: x)) is type(jitted)
"""
    result = preloaded_script(HEAD + source.replace("EXHAUST", exhaust)).ok()

    assert "Traceback" not in result.err
    if result.out == "True None\n":
        assert "jaxmon" in result.err
    else:
        assert result.out.startswith("True http")


EDGES = """
import resource
import numpy as np
from jax.tree_util import tree_leaves

observed = len(sys.argv) > 1
# JAX's own imports need descriptors and depth.
jax.jit(lambda x: x)(np.ones(2)), jax.jit(lambda t: t[0])([np.ones(2)])
if observed:
    jaxmon.instrument(port=0)

def nested(depth, leaf):
    for _ in range(depth):
        leaf = [leaf]
    return leaf

def deep(left, call):
    return call() if left == 0 else deep(left - 1, call)

def caught(call):
    try:
        return call()
    except RecursionError:
        return None

inner = jax.jit(lambda tree: tree_leaves(tree)[0] * 2)
found = [float(inner(nested(depth, np.ones(size)))[0])
         for depth in (300, 900) for size in (1, 2)]
# With so few frames left, jitted functions compile and fail, and what is ours is tried.
for left in (50, 100, 200):
    step = jax.jit(lambda x: x * left)
    for size in (1, 2):
        result = caught(lambda: deep(900 - left, lambda: float(step(np.ones(size))[0])))
        found.append(result or float(left))
if observed:
    jaxmon.uninstrument()
    before = caught(lambda: deep(970, lambda: jaxmon.instrument(port=0)))
    jaxmon.uninstrument()
    agent = jaxmon.instrument(port=0)

step = jax.jit(lambda x: x + 1)
step(np.ones(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
found += [float(step(np.ones(size))[0]) for size in (2, 3)]
if observed:
    agent.collect()
    jaxmon.uninstrument()
print(found)
"""


def test_a_program_at_its_limits_is_not_disturbed(preloaded_script, run_dir):
    """
    With no descriptor left, few frames left, or deeply nested arguments, the program
    computes what it does without jaxmon, which says in a line what it cannot do; the
    record says that it finished.
    """
    plain = preloaded_script(HEAD + EDGES).ok()
    result = preloaded_script(HEAD + EDGES, "observed").ok()

    assert result.out == plain.out
    assert "jaxmon failed in causes: maximum recursion depth exceeded" in result.err
    lines = result.err.splitlines()
    assert [one for one in lines if not one.startswith("jaxmon ")] == []
    assert endings.slots(run_dir)["0"].latest.state == FINISHED
