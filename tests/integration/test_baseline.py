"""`jaxmon baseline` as people run it: real programs, real JAX, real exit codes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon.preflight.baseline.record import TOLERANCES
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import Result, clean_environ


PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

shapes = [int(n) for n in sys.argv[1:]] or [8]
w = np.ones((16, 16), np.float32)
for n in shapes:
    w = step(w, np.ones((n, 16), np.float32))
print("ran", jax.config.jax_enable_compilation_cache)
"""

STEP = "__main__.step"

Command = Callable[..., Result]


def once(verb: str, *arguments: str) -> tuple[str, ...]:
    """Return the arguments for one run, unless they say how many."""
    given = any(one.startswith("--runs") for one in arguments)
    return (verb, *arguments) if given else (verb, "--runs=1", *arguments)


def jaxmon_baseline(directory: Path, *arguments: str) -> Result:
    """Run the command in *directory*; what it runs has a Python of its own."""
    command = ("-m", "jaxmon", "baseline", *arguments)
    return run_preloaded(*command, cwd=directory, env={"XLA_FLAGS": ""}, optimised=True)


@pytest.fixture
def baseline(tmp_path: Path) -> Command:
    """Return a function that runs ``jaxmon baseline`` beside a program to record."""
    (tmp_path / "train.py").write_text(PROGRAM)

    def run(*arguments: str) -> Result:
        return jaxmon_baseline(tmp_path, *once(*arguments))

    return run


@dataclass(frozen=True)
class Recorded:
    """A baseline, and what was printed as it was recorded."""

    baseline: bytes
    result: Result


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """Return baselines of the program by its arguments."""
    directory = tmp_path_factory.mktemp("recorded")
    (directory / "train.py").write_text(PROGRAM)

    def record(arguments: str) -> Recorded:
        command = once("record", "b.json", "--", "train.py", *arguments.split())
        result = jaxmon_baseline(directory, *command)
        return Recorded((directory / "b.json").read_bytes(), result.ok())

    return {arguments: record(arguments) for arguments in ("8", "8 9 8")}


def functions(path: Path) -> dict[str, dict[str, float]]:
    """Return the figures in a recorded file."""
    found: dict[str, dict[str, float]] = json.loads(path.read_text())["functions"]
    return found


@pytest.mark.ground_truth
def test_record_holds_what_the_program_did(recorded: dict[str, Recorded]) -> None:
    """Its counts agree with the program, whose output passes."""
    found = recorded["8 9 8"]
    assert found.result.out == "ran False\n"
    assert "b.json: 1 function" in found.result.err
    document = json.loads(found.baseline)
    assert list(document) == ["schema", "versions", "functions", "runs"]
    versions = document["versions"]
    assert versions["platform"] == "cpu"
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    machine = {"processor", "cores", "devices"}
    assert set(versions) == {"jax", "jaxlib", "python", "platform", "device"} | machine
    (figures,) = document["functions"].values()
    assert (figures["compiles"], figures["recompiles"], figures["programs"]) == (
        2,
        1,
        2,
    )
    assert figures["compile_seconds"] > 0
    # The newest program takes w, 16 by 16, and x, 9 by 16; it returns w.
    assert figures["argument_bytes"] == 4 * (16 * 16 + 9 * 16)
    assert figures["output_bytes"] == 4 * 16 * 16
    assert figures["flops"] > 2 * 2 * 9 * 16 * 16
    assert figures["instructions"] > 0
    assert list(figures) == [name for name in TOLERANCES if name in figures]


@pytest.mark.ground_truth
def test_same_program_passes_and_worse_one_fails(baseline, recorded, tmp_path):
    """The same run has no regression; one that recompiles does, with the reason."""
    (tmp_path / "b.json").write_bytes(recorded["8"].baseline)
    same = baseline("compare", "b.json", "--", "train.py").ok()
    assert same.out.splitlines()[-1] == "no regression in 1 function"
    # The same comparison as of a command, without running it once more.
    (tmp_path / "c.json").write_bytes(recorded["8 9 8"].baseline)
    worse = baseline("compare", "b.json", "--from", "c.json")
    assert worse.code == 1
    lines = [line.split() for line in worse.out.splitlines()]
    assert ["recompiles", "0", "1", "+1", "0", "WORSE"] in lines
    assert ["compiles", "1", "2", "+100.0%", "0", "WORSE"] in lines
    assert max(map(len, worse.out.splitlines())) <= 80
    # The other way round, it got better.
    better = baseline("compare", "c.json", "--from", "b.json").ok()
    assert ["recompiles", "1", "0", "-100.0%", "0", "better"] in [
        line.split() for line in better.out.splitlines()
    ]


def test_tolerances_and_strictness_are_options(baseline, recorded, tmp_path):
    """A tolerance lets a regression pass; ``--strict`` fails for functions that go."""
    (tmp_path / "b.json").write_bytes(recorded["8"].baseline)
    (tmp_path / "c.json").write_bytes(recorded["8 9 8"].baseline)
    compare = ("compare", "b.json", "--from", "c.json")
    assert baseline(*compare).code == 1
    changed = [*functions(tmp_path / "b.json")[STEP]]
    off = [f"--tolerance={name}=off" for name in changed]
    assert baseline(*compare, *off).code == 0
    document = json.loads((tmp_path / "b.json").read_text())
    document["functions"] = {}
    (tmp_path / "d.json").write_text(json.dumps(document))
    assert baseline("compare", "b.json", "--from", "d.json").code == 0
    strict = baseline("compare", "b.json", "--from", "d.json", "--strict")
    assert strict.code == 1
    assert strict.out.endswith(
        "\n--strict: new and vanished functions are regressions\n"
    )


@pytest.mark.exhaustive
def test_modules_and_code_can_be_recorded(baseline: Command, tmp_path: Path) -> None:
    """``-m pytest`` and ``-c`` work like scripts."""
    (tmp_path / "test_it.py").write_text(
        dedent(
            """
            import jax
            square = jax.jit(lambda x: x * x)
            def test_it():
                assert square(2.0) == 4.0
            """
        )
    )
    options = ("-q", "-p", "no:cacheprovider")
    baseline("record", "m.json", "--", "-m", "pytest", *options).ok()
    assert functions(tmp_path / "m.json")["test_it.<lambda>"]["compiles"] == 1
    code = "import jax; jax.jit(lambda x: x * x)(2.0)"
    baseline("record", "c.json", "--", "-c", code).ok()
    assert functions(tmp_path / "c.json")["__main__.<lambda>"]["compiles"] == 1


@pytest.mark.exhaustive
def test_processes_are_added_up(baseline: Command, tmp_path: Path) -> None:
    """A shell on the PATH that runs the program twice has compiled it twice."""
    program = f"{sys.executable} train.py; {sys.executable} train.py"
    baseline("record", "b.json", "--", "sh", "-c", program).ok()
    figures = functions(tmp_path / "b.json")[STEP]
    assert (figures["compiles"], figures["programs"]) == (2, 1)


@pytest.mark.exhaustive
def test_program_with_an_agent_of_its_own_is_recorded(
    baseline: Command, tmp_path: Path
) -> None:
    """What happens before it stops its agent counts."""
    source = PROGRAM.replace("import sys", "import sys, jaxmon")
    source += "\njaxmon.uninstrument()\n"
    (tmp_path / "own.py").write_text(source)
    baseline("record", "b.json", "--", "own.py").ok()
    assert functions(tmp_path / "b.json")[STEP]["compiles"] == 1


@pytest.mark.parametrize(
    ("source", "code"),
    [
        pytest.param(f"{PROGRAM}\nsys.exit(7)", 7, marks=pytest.mark.exhaustive),
        pytest.param("raise ValueError", 1, marks=pytest.mark.exhaustive),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + 9),
    ],
)
def test_failing_command_is_passed_on(baseline, recorded, tmp_path, source, code):
    """Its exit code is ours; what was recorded before stays."""
    (tmp_path / "bad.py").write_text(source)
    (tmp_path / "b.json").write_text("precious")
    # The command ends in three ways; whoever runs it treats them alike.
    for verb in ("record", "compare") if code == 7 else ("record",):
        if verb == "compare":
            (tmp_path / "b.json").write_bytes(recorded["8"].baseline)
        before = (tmp_path / "b.json").read_bytes()
        result = baseline(verb, "b.json", "--", "bad.py")
        assert result.code == code
        assert f"failed with exit code {code}" in result.err
        assert (tmp_path / "b.json").read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "b.json",
        "bad.py",
        "train.py",
    ]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("print('no jax')", id="no_jax"),
        pytest.param("import jax", id="no_compile", marks=pytest.mark.exhaustive),
        pytest.param(
            f"{PROGRAM}\nimport os; os._exit(0)",
            id="no_exit",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_command_without_figures_is_misuse(baseline, tmp_path, source):
    """A baseline of nothing would pass for ever."""
    (tmp_path / "empty.py").write_text(source)
    result = baseline("record", "b.json", "--", "empty.py")
    assert result.code == 2
    assert "the command recorded nothing" in result.err
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("record", "none/b.json", "--", "train.py"), "its directory does not exist"),
        (("record", ".", "--", "train.py"), "it is a directory"),
        (("record", "b.json"), "Missing argument"),
        (("record", "b.json", "--", "no-such-program"), "not found"),
        (("compare", "none.json", "--", "train.py"), "none.json: cannot be read"),
        (("compare", "train.py", "--", "train.py"), "train.py is not a baseline"),
        (("compare", "none.json"), "give either a command"),
        (("compare", "x", "--from", "y", "--", "train.py"), "give either a command"),
        (
            ("compare", "x", "--tolerance=flops=all", "--from", "y"),
            "not a valid tolerance",
        ),
    ],
)
def test_misuse_is_told_before_anything_runs(
    tmp_path, monkeypatch, capfd, arguments, message
):
    """What cannot work ends with exit code 2 and a reason, and runs no program."""
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["baseline", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert capfd.readouterr() == ("", "")


# What runs in the background of a shell ignores Ctrl-C, and so would its children.
HEED_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_command(
    baseline: Command, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGTERM and Ctrl-C end the command, and nothing is written."""
    (tmp_path / "wait.py").write_text("print('up', flush=True)\ninput()\n")
    command = ["-m", "jaxmon", "baseline", "record", "b.json", "--", "wait.py"]
    with subprocess.Popen(
        [sys.executable, "-c", HEED_INTERRUPTS, *command],
        cwd=tmp_path,
        env=clean_environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        # First: a closed standard input would end the command as well.
        process.wait(240)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 128 + number
    assert b"nothing was recorded" in err
    assert not (tmp_path / "b.json").exists()


def test_figures_that_cannot_be_left_cost_a_line(tmp_path: Path) -> None:
    """A directory that is gone as the program ends changes nothing but the log."""
    result = run_preloaded(
        "-c",
        "import jaxmon\n"
        "jaxmon.instrument(port=None, socket=False)\n"
        "jaxmon.uninstrument()\nprint('ran')",
        env={"JAXMON_FIGURES_DIR": str(tmp_path / "none")},
    ).ok()
    assert result.out == "ran\n"
    assert "jaxmon could not write the baseline file" in result.err
    assert "Traceback" not in result.err
