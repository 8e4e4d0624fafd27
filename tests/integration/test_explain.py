"""`jaxmon explain` beside real programs: one under load, several, and none."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon.host.formats import layout
from jaxmon.limits import Limits
from jaxmon.limits.shared import publish
from tests.helpers.commands import BUSY, IDLE, PYTHON, explain
from tests.helpers.processes import Result, clean_environ, run_python, until


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


def test_a_program_under_load_is_explained(programs, run_dir):
    """Causes, lines and advice come in 80 columns."""
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
        "severity",
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
    said, *others = result.err.splitlines()
    assert said == (
        f"Error: no instrumented process is running: no agent in {run_dir}. "
        "Start one with `jaxmon run PROGRAM`, with --report if it ends soon, or set "
        "its directory with --run-dir."
    )
    # What runs elsewhere on this machine.
    assert all(" an agent in " in line for line in others)
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
    """With --watch they go on, also without a process."""
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
    assert said.startswith(f"Error: pid {program.pid} (python ")
    assert ") ended without a record: killed, or stopped by a signal; it " in said
    assert "it was last seen alive " in said
    assert code == 130


@pytest.mark.exhaustive
def test_processes_that_compile_the_same_are_told(programs, run_dir):
    """Two that compile the same name each other."""
    publish(run_dir, Limits(together_slow="1s"))
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
