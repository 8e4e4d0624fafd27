"""`jaxmon run --children`: processes that the program starts; and the hint without."""

import ast
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jaxmon.cli import workers
from jaxmon.host import bootstrap
from jaxmon.host.bootstrap import HINT
from tests.helpers.processes import (
    DEADLINE,
    JAXMON,
    Program,
    clean_environ,
    execute,
    free_port,
    http_get,
    until,
)


# Starts three children that use JAX; only imports it itself.
PARENT = """
import multiprocessing, subprocess, sys
import child

if __name__ == "__main__":
    children = []
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        context.set_forkserver_preload(["child"])
        process = context.Process(target=child.work, name=method, daemon=True)
        process.start()
        children.append(process)
    command = [sys.executable, "child.py", "of", "subprocess"]
    script = subprocess.Popen(command, stdin=subprocess.PIPE)
    print("ready", flush=True)
    input()
    script.communicate(b"\\n")
"""
CHILD = """
import sys, threading
import jax

def work():
    jax.jit(lambda x: x + 1)(1.0)
    threading.Event().wait()

if __name__ == "__main__":
    jax.jit(lambda x: x + 1)(1.0)
    input()
"""
# What a Python process can tell of having been led to jaxmon.
PLAIN = """
import json, sys
print(json.dumps([sys.path[1:], sorted(sys.modules), len(sys.meta_path)]))
"""
APP = """
import os
import jax
twice = jax.jit(lambda x: x * 2)

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    twice(1.0)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % os.getpid()})
"""
UVICORN = ("-m", "uvicorn", "app:app", "--workers", "2", "--log-level", "error")


@contextmanager
def running(
    arguments: tuple[str, ...], directory: Path, run_dir: Path
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*JAXMON, "run", *arguments],
        cwd=directory,
        env=clean_environ(run_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def agents(run_dir: Path) -> set[int]:
    found = workers.running(run_dir)
    return {one.overview["process"]["pid"] for one in found if not one.trouble}


def programs(run_dir: Path) -> dict[int, str]:
    """Return the command line of each observed process that has used JAX."""
    found = {}
    for worker in workers.running(run_dir):
        if worker.overview.get("functions"):
            process = worker.overview["process"]
            found[process["pid"]] = process["program"].partition(" ")[2]
    return found


def test_processes_that_the_program_starts_are_observed(
    tmp_path: Path, run_dir: Path
) -> None:
    """Each child that uses JAX has an agent."""
    (tmp_path / "main.py").write_text(PARENT)
    (tmp_path / "child.py").write_text(CHILD)
    arguments = ("--children", "--no-tcp", "main.py", "-x")
    with running(arguments, tmp_path, run_dir) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = until(
            lambda: now if len(now := programs(run_dir)) >= 3 else {}, "the children"
        )
        others = agents(run_dir) - found.keys()
        _, complaint = process.communicate("\n", timeout=DEADLINE)

    assert set(found.values()) == {
        "main.py -x (spawn)",
        "main.py -x (forkserver)",
        "child.py …",
    }
    assert others == {process.pid}
    assert complaint == ""
    assert process.returncode == 0


@pytest.mark.exhaustive
def test_workers_of_a_server_are_observed(tmp_path: Path, run_dir: Path) -> None:
    """With ``uvicorn --workers 2`` each has an agent."""
    (tmp_path / "app.py").write_text(APP)
    port = free_port()
    arguments = ("--children", *UVICORN, "--port", str(port))
    with running(arguments, tmp_path, run_dir) as server:
        pids = until(
            lambda: now if len(now := agents(run_dir)) == 2 else set(), "the workers"
        )
        assert int(http_get(f"http://127.0.0.1:{port}")) in pids
        assert server.pid not in pids
        server.terminate()
        _, complaint = server.communicate(timeout=DEADLINE)
    assert HINT not in complaint


def test_children_without_jax_load_the_hook_only(tmp_path: Path) -> None:
    """A Python process that does not import JAX has no module and no path of ours."""
    (tmp_path / "plain.py").write_text(PLAIN)
    starts = "import subprocess, sys; subprocess.run([sys.executable, 'plain.py'])"
    program = Program(arguments=("-c", starts))

    status, plain, _ = execute((sys.executable,), program, tmp_path)
    observed = execute((*JAXMON, "run", "--children"), program, tmp_path)
    path, modules, finders = json.loads(plain)

    assert (status, observed[0], observed[2]) == (0, 0, "")
    assert json.loads(observed[1]) == [path, modules, finders + 1]


def test_other_environments_are_left_alone(tmp_path: Path) -> None:
    """A child without jaxmon imports JAX as ever."""
    venv.create(tmp_path / "other", symlinks=True, with_pip=False)
    python = str(tmp_path / "other/bin/python")
    packages = next((tmp_path / "other/lib").glob("python*/site-packages"))
    (packages / "jax.py").write_text("print('another jax')")
    (packages / "sitecustomize.py").write_text("print('its own')")
    (tmp_path / "main.py").write_text(
        "import os, subprocess, sys\n"
        f"run = [{python!r}, '-c', 'import jax']\n"
        "subprocess.run(run, check=True)\n"
        "lost = {k: v for k, v in os.environ.items() if 'JAXMON' not in k}\n"
        "subprocess.run(run, check=True, env=lost)\n"
    )

    found = execute((*JAXMON, "run", "--children"), Program(), tmp_path)

    assert found == (0, "its own\nanother jax\n" * 2, "")


def test_the_hook_needs_no_recent_python() -> None:
    """The Pythons that the program starts, of any release, can read the hook."""
    hook = Path(bootstrap.__file__).with_name("sitecustomize.py")

    tree = ast.parse(hook.read_text(), feature_version=(3, 4))

    recent = (ast.JoinedStr, ast.NamedExpr, ast.AnnAssign, ast.AsyncFunctionDef)
    assert [one for one in ast.walk(tree) if isinstance(one, recent)] == []
    imported = {one.module for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    assert "__future__" not in imported


def test_a_run_within_a_run_observes_what_it_says(tmp_path: Path) -> None:
    """An inner `jaxmon run` without the option leaves no trace of the outer one."""
    names = "[n for n in os.environ if n.startswith(('JAXMON', 'PYTHONP'))]"
    shown = f"import os; print({names})"
    program = Program(arguments=(*JAXMON, "run", "-c", shown))
    command = (
        *JAXMON,
        "run",
        "--children",
        "-c",
        "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))",
    )

    assert execute(command, program, tmp_path) == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("source", "hinted"),
    [
        ("subprocess.run([sys.executable, '-c', ''])", True),
        ("subprocess.run(['./script'])", True),
        ("multiprocessing.get_context('spawn').Process(target=print).start()", True),
        ("subprocess.run(['true'])", False),
        ("multiprocessing.shared_memory.SharedMemory('x', True, 9).unlink()", False),
        ("os.fork() or os._exit(0)", False),
        ("print('nothing')", False),
        ("import jax; subprocess.run([sys.executable, '-c', ''])", False),
        ("subprocess.run([sys.executable, '-c', '']); sys.stderr.close()", False),
    ],
)
def test_a_program_without_jax_names_the_option(
    source: str, *, hinted: bool, tmp_path: Path
) -> None:
    """One line says so, if it started Python."""
    (tmp_path / "jax.py").write_text("")
    (tmp_path / "script").write_text(f"#!{sys.executable}\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "main.py").write_text(
        "import multiprocessing.shared_memory, os, subprocess, sys\n"
        f"if __name__ == '__main__':\n    {source}\n"
    )

    status, _, complaint = execute((*JAXMON, "run"), Program(), tmp_path)

    assert status == 0
    assert [one + "\n" for one in complaint.splitlines() if "run --ch" in one] == (
        [HINT] if hinted else []
    )
