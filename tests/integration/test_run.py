"""
`jaxmon run` against plain Python: the same program, told apart by nothing.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import zipapp
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from jaxmon.catalog import JIT_CALLS
from jaxmon.cli.run import interpreter_options
from tests.support import clean_environ, http_get


DEADLINE = 60
JAXMON = (sys.executable, str(Path(sys.executable).with_name("jaxmon")))


@dataclass(frozen=True, slots=True)
class Program:
    """
    A program to run both ways, and what makes the comparison meaningful.

    Args:
        source: text of ``main.py``.
        arguments: what follows ``python`` and ``jaxmon run``.
        status: exit status that the program must have.
        says: text that must stand on its stdout or stderr.
        files: further files beside ``main.py``.
        stdin: what it reads.
        environ: environment variables on top of the test's own.
        signal: sent once the program has printed a line.
    """

    source: str = ""
    arguments: Sequence[str] = ("main.py",)
    status: int = 0
    says: str = ""
    files: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    signal: int | None = None


RAISES = """
def inner():
    raise RuntimeError("boom")

def outer():
    inner()

outer()
"""

PROGRAMS = {
    "argv": Program(
        "import sys; print(sys.argv)",
        ("main.py", "--port", "1", "-m", "--", "--help", "ä", ""),
        says="['main.py', '--port', '1', '-m', '--', '--help', 'ä', '']",
    ),
    "main_attributes": Program(
        """
        import sys
        print(__name__, __file__, __package__, __spec__, __doc__, __loader__.name)
        print(__builtins__, globals().get("__cached__", "no cached"))
        print(sys.modules["__main__"].__dict__ is globals(), sorted(globals()))
        print(sys.path, sys.flags, sys.warnoptions, sys._xoptions)
        """,
        says="__main__",
    ),
    "environment": Program(
        """
        import os
        print(sorted(os.environ.items()))
        """,
        environ={"JAXMON_PORT": "0"},
        says="JAXMON_PORT",
    ),
    "environment_with_pythonpath": Program(
        """
        import os, sys
        print(sorted(os.environ.items()), sys.path)
        """,
        environ={"PYTHONPATH": "/somewhere::relative"},
        says="/somewhere",
    ),
    "environment_with_empty_pythonpath": Program(
        """
        import os, sys
        print(repr(os.environ["PYTHONPATH"]), sys.path)
        """,
        environ={"PYTHONPATH": ""},
        says="''",
    ),
    "subprocess_is_python_s_own": Program(
        """
        import subprocess, sys
        code = "import os, sys; print(os.environ, sys.path, 'jaxmon' in sys.modules)"
        print(subprocess.check_output([sys.executable, "-c", code], text=True))
        """,
        says="False",
    ),
    "sitecustomize_of_the_site": Program(
        "import sys; print(sys.modules['sitecustomize'].__file__, sys.from_the_site)",
        files={"site/sitecustomize.py": "import sys; sys.from_the_site = 'hello'"},
        environ={"PYTHONPATH": "site"},
        says="hello",
    ),
    "no_sitecustomize": Program(
        "import sys; print('sitecustomize' in sys.modules)", says="False"
    ),
    "traceback": Program(RAISES, status=1, says="in inner"),
    "chained_traceback": Program(
        """
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise ValueError("worse") from error
        """,
        status=1,
        says="direct cause",
    ),
    "syntax_error": Program("x = = 1", status=1, says="SyntaxError"),
    "exit_number": Program("import sys; sys.exit(7)", status=7),
    "exit_text": Program("import sys; sys.exit('oh no')", status=1, says="oh no"),
    "exit_none": Program("import sys; sys.exit()"),
    "exit_hard": Program("import os; os._exit(9)", status=9),
    "exit_in_finally": Program(
        """
        import sys
        try:
            raise KeyError("lost")
        finally:
            sys.exit(3)
        """,
        status=3,
    ),
    "atexit_order": Program(
        """
        import atexit
        atexit.register(print, "first registered")
        atexit.register(print, "last registered")
        print("body")
        """,
        says="body\nlast registered\nfirst registered\n",
    ),
    "interrupt": Program(
        "import signal\nsignal.raise_signal(signal.SIGINT)\nprint('not here')",
        status=-signal.SIGINT,
        says="KeyboardInterrupt",
    ),
    "interrupt_handled": Program(
        """
        import time
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("bye")
            raise SystemExit(4)
        """,
        status=4,
        says="bye",
        signal=signal.SIGINT,
    ),
    "terminate": Program(
        "import time\nprint('ready', flush=True)\ntime.sleep(60)",
        status=-signal.SIGTERM,
        signal=signal.SIGTERM,
    ),
    "signal_dispositions": Program(
        """
        import signal
        for number in sorted(signal.valid_signals()):
            print(number, signal.getsignal(number))
        """,
        says="default_int_handler",
    ),
    "spawn_pickles_a_class_of_main": Program(
        """
        import multiprocessing, os, sys

        class Box:
            def __init__(self, value):
                self.value = value

        def double(box):
            inherited = "JAXMON_BOOTSTRAP" in os.environ or "jaxmon" in sys.modules
            return Box((box.value * 2, type(box).__module__, inherited))

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [Box(1), Box(2)])[1].value)
        """,
        says="(4, '__mp_main__', False)",
    ),
    "pickle_of_a_class_of_main": Program(
        """
        import pickle
        class Box: pass
        print(pickle.dumps(Box()), type(pickle.loads(pickle.dumps(Box()))) is Box)
        """,
        says="True",
    ),
    "sibling_module": Program(
        "import sibling", files={"sibling.py": "print('found', __name__)"}, says="found"
    ),
    "script_elsewhere": Program(
        arguments=("scripts/tool.py",),
        files={
            "scripts/tool.py": "import sys, helper; print(sys.path[0], __file__)",
            "scripts/helper.py": "",
        },
        says="scripts/tool.py",
    ),
    "module": Program(
        arguments=("-m", "package.tool", "-x"),
        files={
            "package/__init__.py": "",
            "package/tool.py": """
            import sys
            from . import other
            print(__name__, __package__, __spec__.name, sys.argv, sys.path[0])
            """,
            "package/other.py": "",
        },
        says="package.tool",
    ),
    "package": Program(
        arguments=("-m", "package", "--help"),
        files={
            "package/__init__.py": "",
            "package/__main__.py": """
            import sys
            print(__name__, __package__, __spec__.name, sys.argv)
            raise LookupError("with a traceback")
            """,
        },
        status=1,
        says="package.__main__",
    ),
    "package_without_main": Program(
        arguments=("-m", "package"), files={"package/__init__.py": ""}, status=1
    ),
    "no_such_module": Program(arguments=("-m", "no.such"), status=1, says="no.such"),
    "no_such_script": Program(
        arguments=("missing.py",), status=2, says="can't open file"
    ),
    "directory": Program(
        arguments=("folder", "x"),
        files={"folder/__main__.py": "import sys; print(sys.argv, sys.path[0])"},
        says="folder",
    ),
    "code": Program(
        arguments=("-c", "import sys; print(sys.argv, __name__)", "-c"),
        says="['-c', '-c'] __main__",
    ),
    "stdin": Program(
        arguments=("-", "x"),
        stdin="import sys; print(sys.argv, __file__)" + RAISES,
        status=1,
        says="RuntimeError: boom",
    ),
    "reads_stdin": Program("print(input())", stdin="a line\n", says="a line"),
    "missing_jax": Program(
        "import jax",
        environ={"PYTHONPATH": "hidden"},
        files={
            "hidden/sitecustomize.py": """
            import sys
            class Nothing:
                def find_spec(self, name, path=None, target=None):
                    if name == "jax":
                        raise ModuleNotFoundError(f"no {name} here", name=name)
            sys.meta_path.insert(0, Nothing())
            """
        },
        status=1,
        says="no jax here",
    ),
    "jax_fails_with_a_value_error": Program(
        "import jax",
        files={"jax/__init__.py": "import jax.core", "jax/core.py": RAISES},
        status=1,
        says="in inner",
    ),
    "jax_fails_with_an_import_error": Program(
        "def f():\n    import jax.numpy\nf()",
        files={"jax/__init__.py": "import no_such_library"},
        status=1,
        says="no_such_library",
    ),
    "jax_has_a_syntax_error": Program(
        "import jax",
        files={"jax/__init__.py": "def = 1"},
        status=1,
        says="SyntaxError",
    ),
    "jax_warns_about_its_importer": Program(
        "try:\n    import jax\nexcept ImportError:\n    pass",
        files={
            "jax/__init__.py": """
            import warnings
            warnings.warn("who imports me", UserWarning, stacklevel=2)
            raise ImportError
            """
        },
        says="main.py:2: UserWarning",
    ),
    "jax_is_looked_for_and_not_imported": Program(
        """
        import importlib.util, sys
        spec = importlib.util.find_spec("jax")
        print(type(spec), type(spec.loader), "jax" in sys.modules)
        """,
        says="False",
    ),
    "xla_flags_set_by_the_program": Program(
        """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax
        print(jax.device_count(), type(jax.__loader__), vars(jax.__spec__.loader))
        print(jax.jit(lambda x: x + 1)(1))
        """,
        says="8 <class",
    ),
    "traceback_from_a_jitted_function": Program(
        """
        import jax, jax.numpy as jnp

        @jax.jit
        def step(x, y):
            return jnp.dot(x, y)

        step(jnp.ones(3), jnp.ones(3))
        step(jnp.ones(3), jnp.ones(4))
        """,
        status=1,
        says="in step",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_behaves_as_under_python(
    name: str, tmp_path: Path, run_dir: Path
) -> None:
    """
    Output and exit status of a program are those it has under plain Python.
    """
    program = PROGRAMS[name]
    for path, text in {"main.py": program.source, **program.files}.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")

    expected = execute((sys.executable,), program, tmp_path)
    options = ("run", "--no-tcp", "--run-dir", str(run_dir))
    actual = execute((*JAXMON, *options), program, tmp_path)

    assert actual == expected
    status, stdout, stderr = expected
    assert status == program.status
    assert program.says in stdout + stderr


def test_zip_archive_runs_as_under_python(tmp_path: Path) -> None:
    """
    A zip archive with a ``__main__`` is a program too.
    """
    (tmp_path / "source").mkdir()
    (tmp_path / "source/__main__.py").write_text(
        "import sys; print(sys.argv, __file__)"
    )
    zipapp.create_archive(tmp_path / "source", tmp_path / "app.pyz")
    program = Program(arguments=("app.pyz", "x"))

    expected = execute((sys.executable,), program, tmp_path)

    assert execute((*JAXMON, "run"), program, tmp_path) == expected
    assert "app.pyz" in expected[1]


def test_closed_pipe_ends_the_program_as_under_python(tmp_path: Path) -> None:
    """
    A reader that goes away is the program's affair, as under plain Python.
    """
    (tmp_path / "main.py").write_text("input()\nfor i in range(99999): print(i)")
    outcomes = []
    for command in ((sys.executable,), (*JAXMON, "run")):
        with subprocess.Popen(
            [*command, "main.py"],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.close()
            process.stdout = None
            _, stderr = process.communicate(b"\n", timeout=DEADLINE)
            outcomes.append((process.returncode, stderr))

    assert outcomes[0] == outcomes[1]
    assert b"BrokenPipeError" in outcomes[0][1]


def test_agent_serves_while_the_program_runs(tmp_path: Path, run_dir: Path) -> None:
    """
    The page of a program that never heard of jaxmon shows its function and calls.
    """
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
    assert list(run_dir.iterdir()) == []


def test_program_that_instruments_itself_has_one_agent(
    tmp_path: Path, run_dir: Path
) -> None:
    """
    The options of the command win, and ``jaxmon.instrument()`` returns that agent.
    """
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
    """
    An agent that cannot start costs the program one line of log.
    """
    (tmp_path / "jax.py").write_text("")
    (tmp_path / "main.py").write_text("import jax, jax; print('ran')")

    status, stdout, stderr = execute((*JAXMON, "run"), Program(), tmp_path)

    assert (status, stdout) == (0, "ran\n")
    assert stderr.count("jaxmon") >= 1
    assert len(stderr.splitlines()) == 1


def test_broken_sitecustomize_is_reported_as_by_python(tmp_path: Path) -> None:
    """
    The site's own start-up module fails as ever, in the command and in the program.
    """
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('no luck')")
    program = Program(arguments=("-c", "1"), environ={"PYTHONPATH": "."})

    _, _, complaint = execute((sys.executable,), program, tmp_path)

    assert "no luck" in complaint
    assert execute((*JAXMON, "run"), program, tmp_path) == (0, "", 2 * complaint)


def test_import_of_jax_may_be_tried_again(tmp_path: Path) -> None:
    """
    Jaxmon starts after the import that works, not after one that fails.
    """
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
        (("run", "--port", "70000", "main.py"), 1, "give 0 to 65535"),
        (("run", "--port", "1", "--no-tcp", "main.py"), 2, "exclude each other"),
        (("run", "-m", "-c", "main.py"), 2, "exclude each other"),
        (("run",), 2, "Missing argument 'PROGRAM'"),
    ],
)
def test_unusable_options_are_refused(
    arguments: Sequence[str], status: int, message: str, tmp_path: Path
) -> None:
    """
    Options that cannot be used end the command before the program starts.
    """
    (tmp_path / "main.py").write_text("print('ran')")

    actual, stdout, stderr = execute(JAXMON, Program(arguments=arguments), tmp_path)

    assert (actual, stdout) == (status, "")
    assert message in stderr


def test_interpreter_that_ignores_its_environment_is_refused(tmp_path: Path) -> None:
    """
    Under ``python -I`` jaxmon could not get in, and says so.
    """
    command = (sys.executable, "-I", JAXMON[1], "run")

    status, _, stderr = execute(command, Program(), tmp_path)

    assert status == 1
    assert "jaxmon.instrument()" in stderr


def test_interpreter_options_reach_the_program(tmp_path: Path) -> None:
    """
    What stands between ``python`` and ``jaxmon`` applies to the program.
    """
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
def test_interpreter_options_are_what_precedes_jaxmon(
    original: list[str], seen: list[str], options: list[str]
) -> None:
    """
    Python's own options are told from its way of being asked for jaxmon.
    """
    assert interpreter_options(original, seen) == options


def execute(
    command: Sequence[str], program: Program, directory: Path
) -> tuple[int, str, str]:
    """
    Return exit status, stdout and stderr of *program* under *command*.
    """
    with subprocess.Popen(
        [*command, *program.arguments],
        cwd=directory,
        env=clean_environ(PYTHONDONTWRITEBYTECODE="1", **program.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        first = ""
        if program.signal is not None:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(program.signal)
        try:
            rest, stderr = process.communicate(program.stdin, timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, first + rest, stderr


def listening_page(pid: int) -> str:
    """
    Return ``/metrics`` of the TCP server of process *pid*.
    """
    ports = [
        connection.laddr.port
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(ports) == 1
    return http_get(f"http://127.0.0.1:{ports[0]}/metrics")
