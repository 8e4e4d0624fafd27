"""Reports of real runs, at their end and before, and what two of them differ in."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE

import pytest
from click.testing import CliRunner, Result

from jaxmon.cli.main import main
from jaxmon.screens.runs import Run, read_file
from tests.helpers.preloaded import run_preloaded, start_preloaded
from tests.helpers.processes import ROOT, clean_environ


PROGRAM = ROOT / "tests/programs/versions.py"
SLOWER = "__main__.layer_2"

SHORT = """
import os, sys
import jaxmon
jaxmon.instrument(port=None)
import jax, numpy as np

@jax.jit
def forward(x):
    return x * 2

forward(np.ones(3, np.float32))
print("worked", flush=True)
"""
RUNNING = """
import sys
import jaxmon
jaxmon.instrument(port=None)
import jax, numpy as np

@jax.jit
def forward(x):
    return x * 2

for size in (1, 2, 3):
    forward(np.ones(size, np.float32))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory in which the program's runs left what they left."""
    directory = tmp_path_factory.mktemp("runs")
    run_preloaded(str(PROGRAM), str(directory), run_dir=directory).ok()
    return directory


def compare(*words: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, words)])


@pytest.mark.exhaustive
def test_the_slower_function_is_named_among_many(runs: Path) -> None:
    """With its line, of enough samples, and no other is; but the loop may be."""
    lines = PROGRAM.read_text().splitlines()
    place = next(n for n, line in enumerate(lines, 1) if line.endswith("# here"))
    done = compare(runs / "first", runs / "second", "--json")
    worse = [o for o in json.loads(done.output)["changes"] if o["verdict"] == "worse"]
    found = [one for one in worse if one["what"] == "function"]

    assert done.exit_code == 1, done.output
    assert {(one["what"], one["name"]) for one in worse if one not in found} <= {
        ("loop", "train")
    }
    assert {one["name"] for one in found} == {SLOWER}
    assert {one["place"].rpartition("/")[2] for one in found} == {
        f"versions.py:{place}"
    }
    assert {one["measure"] for one in found} <= {
        "execution_seconds",
        "dispatch_seconds",
    }
    # Of what takes more than twice as long, half of sixteen samples are enough.
    assert all(one["after"] > 2 * one["before"] for one in found)
    assert min(min(one["samples"]) for one in found) >= 8
    text = compare(runs / "first", runs / "second").output
    last = " ".join(text.splitlines()[-2:])
    assert "worse than before: " in last
    assert SLOWER in last


def test_the_same_program_twice_is_not_accused(runs: Path) -> None:
    """In either order."""
    for one, other in (("first", "again"), ("again", "first")):
        done = compare(runs / one, runs / other)

        assert done.exit_code == 0, done.output
        assert "\nWORSE" not in done.output


@pytest.mark.ground_truth
def test_the_summary_has_what_the_program_did(runs: Path) -> None:
    """Steps, requests, failures, calls and recompiles equal what it counted."""
    run = read_file(runs / "second")
    done = json.loads((runs / "second.done").read_text())
    snapshot = run.snapshot
    functions = {one.name: one for one in snapshot.functions}
    (loop,), (route,) = snapshot.steps, snapshot.requests
    finished = {one.outcome: one.count for one in route.finished}
    shaped = functions["__main__.work.<locals>.<lambda>"]

    assert run.state == "finished"
    assert loop.steps == done["steps"]
    assert finished == {
        "success": done["steps"] - done["failed"],
        "error": done["failed"],
    }
    assert functions[SLOWER].calls == done["steps"]
    assert (shaped.calls, shaped.recompiles) == (3, {"shape": 2})
    recompiles = [o.texts for o in snapshot.recompiles if o.function == shaped.name]
    assert recompiles == [
        ("argument x: float32[1] → float32[2]",),
        ("argument x: float32[2] → float32[3]",),
    ]
    assert snapshot.usual.peak_resident_bytes
    assert run.versions["platform"] == "cpu"
    assert "jax" in run.packages


@pytest.mark.ground_truth
def test_the_chart_of_steps_adds_up(runs: Path) -> None:
    """Its rates, times the seconds that they are of, are the steps of the loop."""
    run = read_file(runs / "first")
    series = run.snapshot.charts["steps"]
    times = [run.snapshot.process.started, *series.times]
    counted = sum(
        (end - start) * rate
        for (start, end), rate in zip(pairwise(times), series.values, strict=True)
    )

    assert counted == pytest.approx(run.snapshot.steps[0].steps, rel=0.1)


def test_a_page_is_beside_each_summary(runs: Path) -> None:
    """Small, and for its owner only."""
    (path,) = (runs / "first").glob("run-*.html")
    text = path.read_text()

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_suffix(".json").exists()
    assert 10_000 < len(text) < 200_000
    assert SLOWER in text
    assert "Steps a second" in text


@pytest.mark.parametrize(
    ("end", "code", "state"),
    [("sys.exit(3)", 3, "finished"), ("raise ValueError('mine')", 1, "crashed")],
)
def test_however_it_ends_there_is_a_report(
    preloaded_script, tmp_path, end, code, state
):
    """The exit code is the program's, and the report says how it ended."""
    reports = tmp_path / "reports"
    result = preloaded_script(SHORT + end, env={"JAXMON_SUMMARY_DIR": str(reports)})
    run = read_file(reports)

    assert result.code == code
    assert result.out == "worked\n"
    assert run.state == state
    assert {one.name for one in run.snapshot.functions} >= {"__main__.forward"}


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("", "is unusable: File exists"),
        ("resource.setrlimit(resource.RLIMIT_FSIZE, (999, 999))", "File too large"),
    ],
    ids=["no directory", "full disk"],
)
def test_what_cannot_be_written_costs_the_program_nothing(
    preloaded_script, tmp_path, before, reason
):
    """A line on stderr says why; no half-written file is left."""
    reports = tmp_path / "taken"
    if before:
        reports.mkdir()
    else:
        reports.touch()
    # Of what it compiles then, Python would keep half.
    head = "import resource\nsys.dont_write_bytecode = True\n"
    source = f"{SHORT}{head}{before}\nsys.exit(3)"
    result = preloaded_script(source, env={"JAXMON_SUMMARY_DIR": str(reports)})

    assert (result.code, result.out) == (3, "worked\n")
    assert "jaxmon could not write the report of this run: " in result.err
    assert reason in result.err
    assert len(result.err.splitlines()) == 1
    assert not before or list(reports.iterdir()) == []


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the run directory of a program that is running."""
    run_dir = tmp_path_factory.mktemp("run")
    process = start_preloaded(
        *("-c", RUNNING), environ=clean_environ(run_dir), stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield run_dir
    process.communicate("")
    assert process.returncode == 0


def test_a_running_program_has_a_report(program: Path, tmp_path: Path) -> None:
    """Its paths are printed; the same summary is printed for programs to read."""
    words = ["report", f"--run-dir={program}"]
    done = CliRunner().invoke(main, [*words, f"--out={tmp_path / 'new'}"])
    printed = json.loads(CliRunner().invoke(main, [*words, "--json"]).output)
    page, summary = map(Path, done.output.split())
    run: Run = read_file(summary)

    assert done.exit_code == 0, done.output
    assert page.suffix == ".html"
    assert page.stat().st_mode & 0o777 == 0o600
    assert (run.state, printed["state"]) == ("running", "running")
    (forward,) = [o for o in run.snapshot.functions if o.name == "__main__.forward"]
    assert forward.recompiles == {"shape": 2}
    assert forward.place == "<string>:7"
    assert printed["functions"][0]["name"] == run.snapshot.functions[0].name


def test_all_processes_have_reports(program: Path, tmp_path: Path) -> None:
    """One page and one summary each."""
    words = ["report", f"--run-dir={program}", "--all", f"--out={tmp_path}"]
    done = CliRunner().invoke(main, words)

    assert done.exit_code == 0, done.output
    assert len(list(tmp_path.iterdir())) == 2


def test_a_running_program_is_compared_with_a_file(program, tmp_path):
    """By its number, or any other name of it."""
    words = ["report", f"--run-dir={program}", f"--out={tmp_path}"]
    assert CliRunner().invoke(main, words).exit_code == 0
    done = compare(tmp_path, "0", f"--run-dir={program}")

    assert done.exit_code == 0, done.output
    assert "nothing worse among" in done.output


def test_what_is_no_run_is_named(program: Path, tmp_path: Path) -> None:
    """Neither a file nor a process, or a directory without a summary: exit code 2."""
    nothing = compare("nothing", "0", f"--run-dir={program}")
    empty = compare(tmp_path, "0", f"--run-dir={program}")

    assert (nothing.exit_code, empty.exit_code) == (2, 2)
    assert "'nothing' is no file or directory, and no process has" in nothing.output
    assert "has no summary" in empty.output
