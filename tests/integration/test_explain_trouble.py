"""`jaxmon explain` on programs that hang, are gone, or lie."""

import json
import os
import signal
import socket
from typing import Any

import pytest

from jaxmon.cli import workers
from jaxmon.host import rundir
from tests.helpers.commands import IDLE, PYTHON, explain, page, serving
from tests.helpers.processes import freeze


def test_others_are_not_waited_for(programs, run_dir):
    """A request for one process does not query another that hangs."""
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
    """It is said after seconds, beside the others."""
    hung = programs(IDLE)
    freeze(hung.pid)
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
        (page(b"[" * 100_000), "its response is JSON nested deeper than 90 levels"),
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


def test_an_agent_of_a_later_release_is_refused(run_dir):
    """What its figures mean is not known here."""
    with serving(
        run_dir / "agent-0.sock",
        page(b'{"schema": 99, "process": {}, "functions": {}}'),
    ):
        result = explain(run_dir)

    assert result.code == 1
    assert "its schema is 99; this jaxmon reads up to 1: upgrade it" in result.err


def test_an_agent_of_another_version_is_read_as_far_as_possible(run_dir):
    """Values that are missing or of another type count as unknown."""
    strange = {
        "schema": 1,
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
    assert found["overview"]["schema"] == 1


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
