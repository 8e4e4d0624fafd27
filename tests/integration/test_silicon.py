"""The command that checks figures on an accelerator, on a machine without one."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT, clean_environ, require_program
from tools.silicon import running
from tools.silicon.checks import CHECKS


def run(out: Path, *names: str) -> tuple[int, str, str]:
    """Return exit code, output and report of the command."""
    command = [sys.executable, "-m", "tools.silicon", *names, f"--out={out}"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environ(JAX_PLATFORMS="cpu"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout, (out / "report.md").read_text()


def test_checks_that_need_a_gpu_say_so(tmp_path: Path) -> None:
    """Without a GPU each check that needs one says that; nothing fails."""
    names = [name for name, check in CHECKS.items() if check.gpu]
    code, output, report = run(tmp_path, *names)
    assert code == 0
    assert output.count("no GPU: JAX runs on cpu") == len(names)
    assert report.count(": not possible here") == len(names)


def test_what_a_machine_lacks_is_said(tmp_path, monkeypatch):
    """A check that finds a program missing is not possible, and says which."""
    monkeypatch.setenv("PATH", str(tmp_path))
    result = running.run("smi", tmp_path, "gpu")
    assert result.status == running.IMPOSSIBLE
    assert result.why == "nvidia-smi is not installed"


def test_a_check_out_of_time_fails(tmp_path, monkeypatch):
    """A check that does not finish within its limit is ended, and fails."""
    monkeypatch.setitem(CHECKS, "doctor", replace(CHECKS["doctor"], seconds=0.01))
    result = running.run("doctor", tmp_path, "cpu")
    assert result.status == running.FAILED
    assert result.why.startswith("not finished after 0.01 s")


def test_a_check_that_crashes_fails(tmp_path, monkeypatch):
    """A check whose process ends without a result fails, with its exit code."""
    monkeypatch.setattr(sys, "executable", require_program("false"))
    result = running.run("doctor", tmp_path, "cpu")
    assert (result.status, result.why) == (running.FAILED, "exit code 1: ")


@pytest.mark.exhaustive
@pytest.mark.optimised
def test_checks_that_need_no_gpu_pass(tmp_path: Path) -> None:
    """On a CPU checks that need no GPU pass, and leave their outputs."""
    names = ["profile", "replay", "doctor", "hang"]
    code, output, report = run(tmp_path, *names)
    assert code == 0, output
    assert report.count(": passed\n") == len(names)
    assert (tmp_path / "profile/profile.json").exists()
