"""`jaxmon run`: the agent of a program that never heard of it, and its options."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from jaxmon.catalog import JIT_CALLS
from jaxmon.cli.launch import interpreter_options, launch_plain
from tests.helpers.processes import (
    DEADLINE,
    JAXMON,
    Program,
    clean_environ,
    execute,
    files,
    http_get,
)


@pytest.mark.exhaustive
def test_agent_serves_while_the_program_runs(tmp_path: Path, run_dir: Path) -> None:
    """The page of a program that never heard of jaxmon shows its function and calls."""
    (tmp_path / "main.py").write_text(
        dedent(
            """
            import jax

            @jax.jit
            def double(x):
                return x * 2

            for _ in range(5):
                double(1.0)
            print("ready", flush=True)
            input()
            """
        )
    )
    with subprocess.Popen(
        [*JAXMON, "run", "--port", "0", "--run-dir", str(run_dir), "main.py"],
        cwd=tmp_path,
        env=clean_environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        page = listening_page(process.pid)
        process.communicate(b"\n", timeout=DEADLINE)

    assert f'{JIT_CALLS.name}{{function="__main__.double"}} 5\n' in page
    assert process.returncode == 0
    assert files(run_dir) == []


def test_program_that_instruments_itself_has_one_agent(
    tmp_path: Path, run_dir: Path
) -> None:
    """The options of the command win."""
    (tmp_path / "main.py").write_text(
        "import os, psutil, jaxmon\n"
        "agent = jaxmon.instrument()\n"
        "print(agent.settings.max_functions, agent.url)\n"
        "print(len(psutil.Process().net_connections('tcp')))\n"
    )
    options = ("--no-tcp", "--max-functions", "7", "--run-dir", str(run_dir))

    outcome = execute((*JAXMON, "run", *options), Program(), tmp_path)

    assert outcome == (0, "7 None\n0\n", "")


def test_failure_to_start_is_said_once_and_goes_no_further(tmp_path: Path) -> None:
    """An agent that cannot start costs the program one line of log."""
    (tmp_path / "jax.py").write_text("")
    (tmp_path / "main.py").write_text("import jax, jax; print('ran')")

    status, stdout, stderr = execute((*JAXMON, "run"), Program(), tmp_path)

    assert (status, stdout) == (0, "ran\n")
    assert stderr.count("jaxmon") >= 1
    assert len(stderr.splitlines()) == 1


def test_broken_sitecustomize_is_reported_as_by_python(tmp_path: Path) -> None:
    """The site's own start-up module fails as ever."""
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('no luck')")
    program = Program(arguments=("-c", "1"), environ={"PYTHONPATH": "."})

    _, _, complaint = execute((sys.executable,), program, tmp_path)

    assert "no luck" in complaint
    assert execute((*JAXMON, "run"), program, tmp_path) == (0, "", 2 * complaint)


def test_import_of_jax_may_be_tried_again(tmp_path: Path) -> None:
    """Jaxmon starts after the import that works, not after one that fails."""
    (tmp_path / "jax.py").write_text(
        "import sys\nif not hasattr(sys, 'ok'): raise ImportError('not yet')\n"
    )
    (tmp_path / "main.py").write_text(
        "import sys\n"
        "try:\n    import jax\nexcept ImportError as error:\n    print(error)\n"
        "assert 'jaxmon.agent' not in sys.modules\n"
        "sys.ok = True\nimport jax\nassert 'jaxmon.agent' in sys.modules\n"
    )

    status, stdout, _ = execute((*JAXMON, "run"), Program(), tmp_path)

    assert (status, stdout) == (0, "not yet\n")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("run", "--port", "70000", "main.py"), 2, "in the range 0<=x<=65535"),
        (("run", "--port", "\u0661", "main.py"), 2, "is not a number"),
        (("run", "--memory-interval", "0.01", "main.py"), 2, "give 0.1 to 86400"),
        (("run", "--host", "\x1b[31mx", "main.py"), 2, r"host='\x1b[31mx' is invalid"),
        (("run", "--port", "1", "--no-tcp", "main.py"), 2, "are mutually exclusive"),
        (("run", "-m", "-c", "main.py"), 2, "are mutually exclusive"),
        (("run",), 2, "Missing argument 'PROGRAM'"),
        (("run", "python", "main.py"), 2, "omit python: jaxmon run FILE"),
    ],
)
def test_unusable_options_are_refused(arguments, status, message, tmp_path):
    """Options that cannot be used end the command before the program starts."""
    (tmp_path / "main.py").write_text("print('ran')")

    actual, stdout, stderr = execute(JAXMON, Program(arguments=arguments), tmp_path)

    assert (actual, stdout) == (status, "")
    assert message in stderr


def test_interpreter_that_ignores_its_environment_is_refused(tmp_path: Path) -> None:
    """Under ``python -I`` jaxmon could not get in, and says so."""
    command = (sys.executable, "-I", JAXMON[1], "run")

    status, _, stderr = execute(command, Program(), tmp_path)

    assert status == 1
    assert "jaxmon.instrument()" in stderr


def test_interpreter_options_reach_the_program(tmp_path: Path) -> None:
    """What stands between ``python`` and ``jaxmon`` applies to the program."""
    command = (sys.executable, "-O", "-X", "utf8=1", JAXMON[1], "run", "-c")
    program = Program(arguments=("import sys; print(__debug__, sys._xoptions)",))

    assert execute(command, program, tmp_path)[1] == "False {'utf8': '1'}\n"


@pytest.mark.parametrize(
    ("original", "seen", "options"),
    [
        (["python", "jaxmon", "run", "x"], ["jaxmon", "run", "x"], []),
        (["python", "-m", "j", "run"], ["/j.py", "run"], []),
        (["python", "-um", "j", "run"], ["/j.py", "run"], ["-u"]),
        (["python", "-mj", "run"], ["/j.py", "run"], []),
        (["python", "-X", "dev", "jaxmon"], ["jaxmon"], ["-X", "dev"]),
        (["python", "-X", "dev", "-m", "j"], ["/j.py"], ["-X", "dev"]),
    ],
)
def test_interpreter_options_are_what_precedes_jaxmon(original, seen, options):
    """Python's own options are distinguished from jaxmon's."""
    assert interpreter_options(original, seen) == options


@pytest.mark.parametrize(
    "words", ["", "--help", "-m", "-m --x", "-c pass", "python a", "/bin/python3.12 a"]
)
def test_what_the_command_must_judge_is_left_to_it(words):
    """Else the program would have replaced this process."""
    launch_plain(words.split())


def test_a_program_without_options_is_started_before_click_is_loaded(tmp_path: Path):
    """That takes half of the start."""
    program = tmp_path / "program.py"
    program.write_text("print('here')")
    command = (sys.executable, "-X", "importtime", *JAXMON[1:], "run", str(program))
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == "here\n"
    assert "click" not in done.stderr


def listening_page(pid: int) -> str:
    """Return ``/metrics`` of the TCP server of process *pid*."""
    ports = [
        connection.laddr.port
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(ports) == 1
    return http_get(f"http://127.0.0.1:{ports[0]}/metrics")
