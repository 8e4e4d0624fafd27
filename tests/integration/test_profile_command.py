"""`jaxmon profile` beside a running program."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxmon.profile import xspace
from tests.support import Result, run_python, until


PROGRAM = """
import sys, time, pathlib
import jax, jax.numpy as jnp, jaxmon

jaxmon.instrument(port=None)

@jax.jit
def heavy(x):
    return jnp.tanh(x @ x) / x.shape[0]

x = jnp.ones((400, 400))
heavy(x).block_until_ready()
pathlib.Path(sys.argv[1]).touch()
while True:
    x = heavy(x).block_until_ready()
"""


@pytest.fixture
def program(run_dir: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that calls one jitted function for ever."""
    ready = tmp_path / "ready"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(ready)])
    try:
        until(lambda: ready.exists() or process.poll() is not None, "the program")
        yield process
    finally:
        process.kill()
        process.wait()


def run(*args: str, cwd: Path) -> Result:
    directory = Path(os.environ["JAXMON_RUN_DIR"])
    command = ("-m", "jaxmon", "profile", *args)
    return run_python(*command, run_dir=directory, cwd=cwd)


def test_table_and_files_of_a_running_program(
    program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The function is named by its label, the files open, no line is too long."""
    result = run("--seconds", "0.5", "--out", "here", cwd=tmp_path).ok()

    head, _, rest = result.out.partition("\n\n")
    assert head.startswith(f"worker 0 · pid {program.pid} · python")
    assert len(head) <= 80
    title, first, *_ = rest.splitlines()
    assert title.split() == ["FUNCTION", "OPERATION", "RUNS", "TIME", "SHARE"]
    assert first.startswith("__main__.heavy ")
    listed = rest.partition("\n\n")[0].splitlines()
    assert max(map(len, listed)) <= 80
    (space,) = (tmp_path / "here").glob("plugins/profile/*/*.xplane.pb")
    assert xspace.parse(space.read_bytes())
    (trace,) = (tmp_path / "here").glob("plugins/profile/*/*.trace.json.gz")
    names = {
        e["name"]
        for e in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    }
    assert len(names) > 2


def test_json_has_every_operation(
    program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The document names function, program, operation, runs and seconds."""
    document = json.loads(run("--seconds", "0.5", "--json", cwd=tmp_path).ok().out)

    assert document["cut_short"] is None
    assert all(Path(tmp_path, name).is_file() for name in document["files"].values())
    heaviest = document["operations"][0]
    assert heaviest["function"] == "__main__.heavy"
    assert heaviest["program"] == "jit_heavy"
    assert heaviest["count"] > 0
    # Two threads at most work on it, whatever the machine has.
    assert 0 < heaviest["seconds"] < 0.5 * 64


def test_nobody_to_profile(run_dir: Path, tmp_path: Path) -> None:
    """Without a program the command says what to do."""
    result = run(cwd=tmp_path)

    assert result.code == 1
    assert "no instrumented process is running" in result.err
    assert "jaxmon run PROGRAM" in result.err


def test_a_directory_that_cannot_be_written(
    program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """
    The error names the directory and the option that chooses another, and nothing is
    recorded first: a minute of it would be too long for this test.
    """
    (tmp_path / "file").touch()
    result = run("--seconds", "60", "--out", "file/below", cwd=tmp_path)

    assert result.code == 1
    assert "cannot write to file/below" in result.err
    assert "--out" in result.err


@pytest.mark.parametrize("seconds", ["0", "-1", "61"])
def test_seconds_out_of_range(seconds: str, run_dir: Path, tmp_path: Path) -> None:
    """A length that cannot be used is refused before anything is looked for."""
    result = run("--seconds", seconds, cwd=tmp_path)

    assert result.code == 2
    assert "--seconds" in result.err
