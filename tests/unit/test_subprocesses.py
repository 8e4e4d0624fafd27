"""Programs that are run for their answer."""

import os
import sys
from pathlib import Path

import pytest

from jaxmon.cli import alerts
from jaxmon.host import subprocesses
from jaxmon.preflight.doctor import machine
from tests.helpers.processes import until


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def test_an_answer():
    """Exit code and both outputs come back; what is not UTF-8 is replaced."""
    source = (
        "import os, sys; os.write(1, b'out \\xff'); os.write(2, b'err'); sys.exit(3)"
    )
    done = subprocesses.run(python(source), seconds=60)
    assert done == subprocesses.CompletedRun(3, "out \ufffd", "err")


def test_output_without_end():
    """A program that writes for ever is killed when its time is over."""
    source = "while True: print('x' * 10_000)"
    with pytest.raises(TimeoutError, match=r"took longer than 0\.5 s"):
        subprocesses.run(python(source), seconds=0.5)


def test_the_end_of_much_output_is_kept():
    """Where something failed, the last lines say why."""
    source = "print('x' * 5_000_000); print('why')"
    done = subprocesses.run(python(source), seconds=60, max_bytes=1000)
    assert len(done.out) == 1000
    assert done.out.endswith("\nwhy\n")


def test_a_child_that_holds_the_output_open():
    """It is not waited for: the program itself has ended."""
    source = (
        "import subprocess, sys; print(subprocess.Popen("
        "[sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    )
    done = subprocesses.run(python(source), seconds=60)
    os.kill(int(done.out), 9)
    assert done.code == 0


def test_children_are_killed_with_it(tmp_path):
    """What a program started ends with it when its time is over."""
    path = tmp_path / "pid"
    source = (
        "import subprocess, sys, time; child = subprocess.Popen("
        "[sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"open({str(path)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    with pytest.raises(TimeoutError):
        subprocesses.run(python(source), seconds=2)

    def ended():
        try:
            state = Path(f"/proc/{path.read_text()}/stat").read_text()
        except FileNotFoundError:
            return True
        return state.rpartition(") ")[2].startswith("Z")

    until(ended, "the end of the child")


def test_a_self_test_that_hangs(monkeypatch):
    """The doctor says so."""
    monkeypatch.setattr(machine, "_COMMAND", python("while True: print('x')"))
    monkeypatch.setattr(machine, "_SECONDS", 0.5)
    (finding,) = machine.hooks(os.environ)
    assert "took longer than 0.5 s" in finding.text


@pytest.mark.parametrize("answer", ["5", "[]", "null", "{", "NaN"])
def test_a_self_test_that_answers_nonsense(monkeypatch, answer):
    """What is no object is no answer."""
    monkeypatch.setattr(machine, "_COMMAND", python(f"print({answer!r})"))
    (finding,) = machine.hooks(os.environ)
    assert "the self-test produced no result" in finding.text


def test_a_tool_that_hangs(monkeypatch, tmp_path):
    """`alerts check` reports it like any other problem."""
    tool = tmp_path / "promtool"
    tool.write_text(f"#!{sys.executable}\nwhile True: print('x')")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(alerts, "_SECONDS", 0.5)
    (report,) = alerts.problems({})
    assert report == f"promtool: {tool} took longer than 0.5 s\n"
