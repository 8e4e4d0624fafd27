"""`jaxmon profile` beside a running program."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from jaxmon.preflight.profile import xspace
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import Result, clean_environ, run_python, until


PROGRAM = """
import sys, pathlib, threading
import jax, jax.numpy as jnp, jaxmon

jaxmon.instrument(port=None)

@jax.jit
def heavy(x):
    with jax.named_scope("layer"):
        return jnp.tanh(x @ x) / x.shape[0]

# Large enough that the product takes most, even if something else waits its turn.
x = jnp.ones((1000, 1000))
heavy(x).block_until_ready()
pathlib.Path(sys.argv[1]).touch()
idle = threading.Event()
while not idle.wait(0.02):
    x = heavy(x).block_until_ready()
"""


# The line of the program that takes the time.
LINE = next(at for at, one in enumerate(PROGRAM.splitlines(), 1) if " @ " in one)


class Running(NamedTuple):
    """A program, where its agent is, and its script."""

    process: Program
    run_dir: Path
    script: Path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a program that calls one jitted function for ever."""
    place = tmp_path_factory.mktemp("program")
    ready, script = place / "ready", place / "heavy.py"
    script.write_text(PROGRAM)
    with TemporaryDirectory(prefix="jm-", dir="/tmp") as run_dir:
        process = start_preloaded(
            *(str(script), str(ready)), environ=clean_environ(Path(run_dir))
        )
        try:
            until(lambda: ready.exists() or process.poll() is not None, "the program")
            yield Running(process, Path(run_dir), script)
        finally:
            process.kill()
            process.wait()


def run(*args: str, run_dir: Path, cwd: Path) -> Result:
    command = ("-m", "jaxmon", "profile", *args)
    return run_python(*command, run_dir=run_dir, cwd=cwd)


def test_table_and_files_of_a_running_program(program: Running, tmp_path: Path) -> None:
    """The line that takes the time is named, the files open, no line is too long."""
    for attempt in range(3):
        command = ("--seconds", "0.5", "--out", str(attempt))
        result = run(*command, run_dir=program.run_dir, cwd=tmp_path).ok()
        head, _, rest = result.out.partition("\n\n")
        # An operation that has to wait for a processor meanwhile may take the longest.
        if "dot_general" in rest.splitlines()[4]:
            break

    assert head.startswith(f"worker 0 · pid {program.process.pid} · python")
    assert len(head) <= 80
    use, table, _ = rest.split("\n\n")
    recorded, located = use.splitlines()
    assert recorded.startswith("recorded 0.")
    assert located.endswith("comes from lines of the program")
    title, first, *_ = table.splitlines()
    assert title.split() == ["LINE", "IN", "MOSTLY", "TIME", "SHARE"]
    line, function, primitive, *_ = first.split()
    assert line.endswith(f"/heavy.py:{LINE}")
    assert (function, primitive) == ("heavy", "dot_general")
    assert max(map(len, result.out.partition("For XProf")[0].splitlines())) <= 80
    (space,) = (tmp_path / str(attempt)).glob("plugins/profile/*/*.xplane.pb")
    assert xspace.parse(space.read_bytes()).planes
    (trace,) = (tmp_path / str(attempt)).glob("plugins/profile/*/*.trace.json.gz")
    names = {
        e["name"]
        for e in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    }
    assert len(names) > 2


def test_json_has_every_operation(program: Running, tmp_path: Path) -> None:
    """The document names function, operation, line, runs and seconds."""
    document = json.loads(
        run("--seconds=0.5", "--json", run_dir=program.run_dir, cwd=tmp_path).ok().out
    )

    assert document["cut_short"] is None
    assert document["without_programs"] is None
    assert document["recorded"] > 0.4
    assert 0 < document["busy"] <= 1
    assert document["located"] > 0.9
    assert all(Path(tmp_path, name).is_file() for name in document["files"].values())
    heaviest = document["operations"][0]
    assert heaviest["function"] == "__main__.heavy"
    assert heaviest["program"] == "jit_heavy"
    assert (heaviest["file"], heaviest["line"]) == (str(program.script), LINE)
    (group,) = [one for one in document["groups"] if one["line"] == LINE]
    assert group["seconds"] >= heaviest["seconds"]
    assert heaviest["count"] > 0
    # Two threads at most work on it, whatever the machine has.
    assert 0 < heaviest["seconds"] < 0.5 * 64


def test_nobody_to_profile(run_dir: Path, tmp_path: Path) -> None:
    """Without a program the command says what to do."""
    result = run(run_dir=run_dir, cwd=tmp_path)

    assert result.code == 1
    assert "no instrumented process is running" in result.err
    assert "jaxmon run PROGRAM" in result.err


def test_a_directory_that_cannot_be_written(program: Running, tmp_path: Path) -> None:
    """The error names the directory, before recording."""
    (tmp_path / "file").touch()
    result = run(
        "--seconds", "60", "--out", "file/below", run_dir=program.run_dir, cwd=tmp_path
    )

    assert result.code == 1
    assert "cannot write to file/below" in result.err
    assert "--out" in result.err
