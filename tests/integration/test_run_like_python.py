"""`jaxmon run` against plain Python: the same program, without any difference."""

import signal
import subprocess
import sys
import zipapp
from pathlib import Path
from textwrap import dedent

import pytest

from jaxmon.host.bootstrap import HINT, environment
from tests.helpers.processes import DEADLINE, JAXMON, Program, clean_environ, execute


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
    "syntax_error": Program("x = = 1", status=1, says="SyntaxError"),
    "exit_number": Program("import sys; sys.exit(7)", status=7),
    "exit_text": Program("import sys; sys.exit('oh no')", status=1, says="oh no"),
    "exit_hard": Program("import os; os._exit(9)", status=9),
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
}

# Others show nearly the same.
ALIKE = {"environment_with_empty_pythonpath", "exit_text", "no_such_script"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if name in ALIKE else [])
        for name in PROGRAMS
    ],
)
def test_program_behaves_as_under_python(name, tmp_path, run_dir):
    """Output and exit status of a program are those it has under plain Python."""
    program = PROGRAMS[name]
    for path, text in {"main.py": program.source, **program.files}.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")

    expected = execute((sys.executable,), program, tmp_path)
    options = ("run", "--no-tcp", "--run-dir", str(run_dir))
    status, output, complaint = execute((*JAXMON, *options), program, tmp_path)

    # What `jaxmon run` alone says, to a program that starts others.
    assert (status, output, complaint.removesuffix(HINT)) == expected
    status, stdout, stderr = expected
    assert status == program.status
    assert program.says in stdout + stderr


def test_zip_archive_runs_as_under_python(tmp_path: Path) -> None:
    """A zip archive with a ``__main__`` is a program too."""
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
    """A reader that goes away is the program's affair, as under plain Python."""
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


def test_an_interrupt_before_the_program_starts_is_silent(tmp_path: Path) -> None:
    """Python would print a fatal error about the module that it was importing."""
    (tmp_path / "json.py").write_text("import signal\nsignal.raise_signal(2)\n")
    environ = environment(clean_environ(PYTHONPATH=str(tmp_path)), {})
    result = subprocess.run(
        [sys.executable, "-c", "print('not here')"],
        env=environ,
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (-signal.SIGINT, b"")
    assert result.stderr == b""
