"""`jaxmon explain` beside real programs: under load, hung, killed, and hostile ones."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon import rundir
from jaxmon.cli import workers
from jaxmon.cli.main import main
from jaxmon.report import layout
from jaxmon.report.findings import neighbours
from tests.support import Result, clean_environ, run_python, until


PYTHON = Path(sys.executable).name

# Works without a pause: every call of `forward` has a shape of its own, a value is
# fetched in each round, and arrays pile up in one line.
BUSY = """
import sys, threading
import jaxmon
jaxmon.instrument(port=None, memory_interval=0.1, memory_lines_interval=0.1)
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def forward(batch):
    return batch["x"].sum()

kept = []
size = 0
def work():
    global size
    size += 1
    kept.append(jnp.ones((64, 64)) * size)
    for _ in range(20):
        float(forward({"x": np.ones((4, size), np.float32)}))

for _ in range(10): work()
print("ready", flush=True)
threading.Thread(target=sys.stdin.read, daemon=True).start()
while True: work()
"""
IDLE = """
import sys
import jaxmon
jaxmon.instrument(port=None)
print("ready", flush=True)
sys.stdin.read()
"""


# Compiles for a while when told to; several are told at once.
TOGETHER = """
import sys
import jaxmon
jaxmon.instrument(port=None)
import jax, jax.numpy as jnp, numpy as np
print("ready", flush=True)
sys.stdin.readline()

def slow(x):
    for _ in range(150):
        x = jnp.sort(x @ x) + jnp.cumsum(x, 0)
    return x
jax.jit(slow)(np.ones((8, 8), np.float32))
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def programs(run_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that starts a program and waits until it is ready."""
    with ExitStack() as stack:

        def start(source: str, name: str = "program.py") -> subprocess.Popen[str]:
            path = tmp_path / name
            path.write_text(source)
            return stack.enter_context(running(path, run_dir))

        yield start


@contextmanager
def running(path: Path, run_dir: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(path)],
        env=clean_environ(run_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def serving(path: Path, answer: bytes | None) -> Iterator[None]:
    """Listen on *path* and send every client *answer*, or nothing at all."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            held = []
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    break
                client.settimeout(60)
                client.recv(4096)
                if answer is None:
                    held.append(client)
                else:
                    with suppress(OSError):  # who asked may have heard enough
                        client.sendall(answer)
                    client.close()
            for client in held:
                client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def page(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def explain(run_dir: Path, *args: str, **env: str) -> Result:
    """Run the command in this process, as if on 80 columns."""
    environ = {"JAXMON_RUN_DIR": str(run_dir), "COLUMNS": "80", **env}
    done = CliRunner().invoke(main, ["explain", *args], env=environ)
    if not isinstance(done.exception, SystemExit | None):
        raise done.exception
    return Result(done.exit_code, done.stdout, done.stderr)


def test_a_program_under_load_is_explained(programs, run_dir):
    """
    Causes, differences, lines and advice come while the program works on; everything
    fits 80 columns, and nothing goes to standard error.
    """
    process = programs(BUSY, "train.py")

    def with_memory() -> Result | None:
        done = run_python("-m", "jaxmon", "explain", run_dir=run_dir).ok()
        return done if "train.py:16" in done.out else None

    # The latest snapshot may be from before the program kept anything.
    result = until(with_memory, "the line that holds memory")
    assert result is not None
    lines = result.out.splitlines()
    text = " ".join(result.out.split())

    assert process.poll() is None
    assert result.err == ""
    assert all(layout.columns(line) <= 80 for line in lines)
    assert lines[0].startswith(f"worker 0 · pid {process.pid} · {PYTHON} ")
    assert "__main__.forward was recompiled" in text
    assert "because an argument's shape changed" in text
    assert "argument batch['x']: float32[4," in text
    assert "Advice: Pad to a few fixed sizes (buckets)" in text
    assert "COMPILE TIME: " in text
    assert "PERSISTENT CACHE: off" in text


def test_json_has_everything(programs, run_dir):
    """Advice, figures and events, for programs that read them."""
    process = programs(BUSY)
    found = json.loads(explain(run_dir, "0", "--json").ok().out)

    assert found["schema"] == 1
    assert found["worker"] == "0"
    assert found["overview"]["process"]["pid"] == process.pid
    assert {*found["findings"][0]} == {
        "topic",
        "subject",
        "verdict",
        "evidence",
        "action",
        "where",
        "seconds",
        "urgency",
        "metric",
        "panel",
        "runbook",
    }
    storm = next(one for one in found["findings"] if one["topic"] == "recompile")
    assert storm["subject"] == "__main__.forward"
    recompiles = [event for event in found["events"] if event["kind"] == "recompile"]
    assert recompiles[0]["details"]["cause"] == "shape"
    function = found["overview"]["functions"]["__main__.forward"]
    assert function["recompiles"]["shape"] >= 4


def test_nothing_that_runs_is_said(run_dir):
    """Without a process, the output says where it searched and what to do."""
    result = explain(run_dir)

    assert result.code == 1
    assert result.out == ""
    assert result.err == (
        f"Error: no instrumented process is running: no agent in {run_dir}. "
        "Start one with `jaxmon run PROGRAM`, or set its directory with --run-dir.\n"
    )
    elsewhere = explain(run_dir, "--run-dir", str(run_dir / "none"))
    assert elsewhere.code == 1
    assert f"{run_dir}/none" in elsewhere.err


def test_of_several_programs_one_is_chosen(programs, run_dir, tmp_path):
    """
    Without a choice, the worst finding of each process is printed, the worst first;
    slot, pid, script and beginning of the command choose one, and what fits none or
    several lists them with pid, age and command.
    """
    bad, idle = programs(BUSY, "one.py"), programs(IDLE, "two.py")
    until(lambda: "recompiled" in explain(run_dir, "0").out, "the recompiles")
    several, everyone = explain(run_dir).ok(), explain(run_dir, "--all").ok()
    documents = json.loads(explain(run_dir, "--all", "--json").ok().out)

    lines = several.out.splitlines()
    assert lines[0] == "2 instrumented processes are running here, the worst first."
    assert lines[2].startswith(f"worker 0 · pid {bad.pid} · {PYTHON} ")
    assert "__main__.forward was recompiled" in several.out
    assert several.out.index(f"pid {bad.pid}") < several.out.index(f"pid {idle.pid}")
    assert lines[-1] == "One of them: jaxmon explain 0. All: jaxmon explain --all."
    first, _, second = everyone.out.partition("\n\nworker 1 ")
    assert "Advice: Pad to a few fixed sizes (buckets)" in " ".join(first.split())
    assert second.startswith(f"· pid {idle.pid}")
    assert [one["pid"] for one in documents["processes"]] == [bad.pid, idle.pid]
    assert documents["processes"][0]["findings"]
    for choice in ("1", str(idle.pid), "two.py", "two", f"{tmp_path}/tw"):
        chosen = explain(run_dir, choice).ok().out
        assert f"pid {idle.pid}" in chosen.splitlines()[0], choice
    for choice, said in (
        (str(tmp_path), f"{str(tmp_path)!r} may be any of these; give one by its"),
        ("7", "no process has the number, pid or name '7'; running here:"),
        ("", "no process has the number, pid or name ''; running here:"),
        ("three", "no process has the number, pid or name 'three'; running here:"),
    ):
        wrong = explain(run_dir, choice)
        assert wrong.code == 2
        assert wrong.err.startswith(f"Error: {said}"), choice
        assert f"\n  0  pid {bad.pid}  for " in wrong.err
        assert f"\n  1  pid {idle.pid}  for " in wrong.err
    script = explain(run_dir, "--json")
    assert (script.code, script.out) == (2, "")
    assert "give one by its number, pid or name:" in script.err
    both = explain(run_dir, "--all", "0")
    assert both.code == 2
    stacks = explain(run_dir, "--all", "--stacks").ok().out
    assert stacks.startswith(f"worker 0  pid {bad.pid}  for ")
    assert f"\nworker 1  pid {idle.pid}  for " in stacks
    assert stacks.count("MainThread") == 2


def test_reports_are_repeated_until_interrupted(programs, run_dir):
    """
    With --watch one report follows another, also when no process is left, and Ctrl-C
    ends the command.
    """
    program = programs(IDLE)
    command = [
        sys.executable,
        "-m",
        "jaxmon",
        "explain",
        "0",
        "--watch",
        "--every",
        "1",
    ]
    with subprocess.Popen(
        command,
        env=clean_environ(run_dir),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        heads = [one for one, _ in zip(watching.stdout, range(20), strict=False)]
        program.kill()
        said = next(one for one in watching.stderr if one.startswith("Error"))
        watching.send_signal(signal.SIGINT)
        code = watching.wait(90)

    assert len([one for one in heads if one.startswith("worker 0 · pid ")]) > 1
    assert said.startswith("Error: no instrumented process is running")
    assert code == 130


def test_others_are_not_waited_for(programs, run_dir):
    """
    A request for one process succeeds although another hangs; that one is not queried.
    """
    programs(IDLE)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(run_dir / "agent-1.sock"))
        hung.listen()
        assert explain(run_dir, "0").ok().out.startswith("worker 0 ")
        hung.settimeout(0)
        with pytest.raises(BlockingIOError):
            hung.accept()


def test_a_killed_program_is_none(programs, run_dir):
    """Its socket lies there still, and is not counted."""
    killed, other = programs(IDLE, "one.py"), programs(IDLE, "two.py")
    killed.kill()
    killed.wait(90)

    assert rundir.sockets(run_dir).keys() == {"0", "1"}
    assert f"pid {other.pid}" in explain(run_dir).ok().out
    assert explain(run_dir, "0").code == 2


def test_a_stopped_program_is_not_waited_for(programs, run_dir):
    """
    A process that does not run cannot answer; it is said after seconds, and the
    others are listed beside it.
    """
    hung = programs(IDLE)
    hung.send_signal(signal.SIGSTOP)
    try:
        alone = explain(run_dir)
        fine = programs(IDLE)
        both = explain(run_dir)
        named = explain(run_dir, str(hung.pid))
    finally:
        hung.send_signal(signal.SIGCONT)

    assert (alone.code, both.code) == (1, 0)
    assert "worker 0 does not respond: no complete response within 5 s." in alone.err
    assert "It may be stopped, or running native code" in alone.err
    lines = both.out.splitlines()
    assert lines[2].startswith(f"worker 0  pid {hung.pid}  for ")
    assert f"worker 1 · pid {fine.pid} · {PYTHON} " in both.out
    # By its pid it is found without its response.
    assert (named.code, len(named.err.splitlines())) == (1, len(alone.err.splitlines()))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"nonsense", "its response is not HTTP: b'nonsense'"),
        (page(b"not json"), "its response is not JSON"),
        (page(b"[1]"), "its response is not a JSON object"),
        (page(b"[" * 100_000), "its response is JSON nested deeper than 100 levels"),
        (page(b"{}"), "its response contains no jaxmon data; there is nothing to"),
        (page(b'{"a": 1, "functions": []}'), "its response contains no jaxmon data"),
        (page(b""), "its response is not JSON"),
        (page(b"", "404 Not Found"), "it returned HTTP status 404"),
    ],
)
def test_a_socket_that_is_no_agents_is_said(run_dir, answer, said):
    """Whatever answers there, the message is one line."""
    with serving(run_dir / "agent-0.sock", answer):
        result = explain(run_dir)

    assert result.code == 1
    assert said in result.err
    assert "It may be another version of jaxmon" in result.err
    assert len(result.err.splitlines()) == 1


def test_an_agent_of_another_version_is_read_as_far_as_possible(run_dir):
    """Values that are missing or of another type count as unknown."""
    strange = {
        "schema": 99,
        "process": {"pid": "?", "observed_seconds": "long", "program": ["x"]},
        "functions": {"f": 3, "g": {"calls": "many", "phases": [1], "recompiles": 7}},
        "memory": {"devices": [None, 3, {"device": {}, "in_use": 1e400}]},
        "allocations": [],
        "cache": {"obstacles": {"a": 1}, "requests": [], "entries": True},
        "events": {"events": "none"},
        "left_out": None,
    }
    body = json.dumps(strange).encode()
    with serving(run_dir / "agent-0.sock", page(body)):
        text = explain(run_dir).ok().out
        found = json.loads(explain(run_dir, "--json").ok().out)

    assert "FINDINGS" in text
    assert found["overview"]["schema"] == 99


HOSTILE = r"""
import sys
import jaxmon
jaxmon.instrument(port=None)
import jax, numpy as np

def bad(x, *, s="\x1b]0;owned\x07"):
    return x + 1
bad.__qualname__ = "\x1b[2J\x1b[31m\u202eevil\r\n" + "long" * 500
jitted = jax.jit(bad, static_argnames="s")
for n in range(1, 6):
    jitted(np.ones(n, np.float32), s="\x1b[3%dm" % n)
try:
    jitted("\x1b[5m")
except TypeError:
    pass
print("ready", flush=True)
sys.stdin.read()
"""


def test_names_cannot_take_over_the_terminal(programs, run_dir):
    """
    Escape sequences in names, values and messages arrive spelled out, and long names
    cut.
    """
    programs(HOSTILE, "a\x1b[31mred.py")
    for result in (explain(run_dir), explain(run_dir, "9"), explain(run_dir, "--json")):
        for line in (result.out + result.err).splitlines():
            assert line.isprintable(), line
    shown = explain(run_dir).ok().out
    assert "\\x1b[2J" in shown
    assert all(layout.columns(line) <= 80 for line in shown.splitlines())


def test_a_wide_terminal_is_used(programs, run_dir):
    """
    Names that are cut at 80 columns are whole on a wider terminal; beyond 120 columns
    lines do not get longer.
    """
    programs(BUSY)
    widths = {
        columns: max(
            map(layout.columns, explain(run_dir, COLUMNS=columns).ok().out.splitlines())
        )
        for columns in ("40", "80", "110", "300")
    }

    assert widths["40"] == widths["80"] == 80
    assert 80 < widths["110"] <= 110
    assert 110 < widths["300"] <= 120


def test_a_directory_that_cannot_be_read_is_said(run_dir, monkeypatch):
    """What is no directory, or another user's, is no traceback."""
    (run_dir / "file").write_text("")
    result = explain(run_dir, "--run-dir", str(run_dir / "file"))
    assert result.code == 1
    assert "file: Not a directory; run as the program's user, or choose" in (result.err)

    def refuse(_: object) -> Any:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(rundir, "sockets", refuse)
    with pytest.raises(Exception, match="Permission denied; run as the program's user"):
        workers.running(run_dir)


def test_processes_that_compile_the_same_are_told(
    programs: Callable[..., Any], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Two processes of this host that compile the same program at the same time are named,
    by either of them; one that compiled it alone is not.
    """
    monkeypatch.setattr(neighbours, "_WORTH_SECONDS", 0.01)
    both = [programs(TOGETHER), programs(TOGETHER)]
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    assert [one.stdout.readline() for one in both] == ["done\n", "done\n"]
    later = programs(TOGETHER)
    later.stdin.write("go\n")
    later.stdin.flush()
    assert later.stdout.readline() == "done\n"

    found = [together(run_dir, worker) for worker in ("0", "1", "2")]
    assert found[2] is None
    for one in found[:2]:
        assert one is not None
        assert "2 processes of this host compiled __main__.slow" in one["verdict"]
        assert one["urgency"] == "time"
        assert one["seconds"] > 0


def together(run_dir: Path, worker: str) -> Any:
    """Return what `jaxmon explain` finds on the neighbours of *worker*."""

    def read() -> Any:
        arguments = ["explain", worker, "--json", "--run-dir", str(run_dir)]
        document = json.loads(CliRunner().invoke(main, arguments).output)
        function = document["overview"]["functions"]["__main__.slow"]
        return document if function["program"].get("fingerprint") else None

    document = until(read, "the program to be read")
    topics = {one["topic"]: one for one in document["findings"]}
    return topics.get("compiled_together")
