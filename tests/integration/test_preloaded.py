"""Programs in forks of a process that has imported JAX are as those in their own."""

import json
import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.preloaded import run_preloaded, shared
from tests.helpers.processes import ROOT, clean_environ, run_python, until


SHOW = """
import atexit, json, os, sys
atexit.register(print, "the end")
print(json.dumps([
    __name__, sys.argv, os.getcwd(), sys.path[0], sys.stdin.read(),
    sorted(os.environ.items()), os.environ.get("OPENBLAS_NUM_THREADS"),
]))
import jax
print(jax.jit(lambda x: x + 1)(1), file=sys.stderr)
"""


@pytest.mark.exhaustive
def test_a_program_finds_what_it_would_find_elsewhere(tmp_path, run_dir):
    """Name, arguments, directories, input and variables; and its output comes back."""
    (tmp_path / "show.py").write_text(SHOW)
    for arguments in (["-c", SHOW], [str(tmp_path / "show.py")], ["-m", "show"]):
        started, forked = (
            run(*arguments, "one", run_dir=run_dir, env={"A": "b"}, cwd=tmp_path).ok()
            for run in (run_python, partial(run_preloaded, optimised=True))
        )
        assert forked == started
        assert forked.err == "2\n"
        assert forked.out.endswith("the end\n")
        assert ["A", "b"] in json.loads(forked.out.splitlines()[0])[5]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise ValueError('mine')", 1),
        ("sys.exit(3)", 3),
        ("sys.exit()", 0),
        ("sys.exit('why')", 1),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), 9)", -9),
        ("pid = os.fork(); pid and sys.exit(os.waitpid(pid, 0)[1])", 0),
    ],
)
def test_it_exits_as_it_would_elsewhere(end: str, code: int) -> None:
    """With its code and the last words of Python."""
    source = f"import os, sys\nprint('worked', flush=True)\n{end}"
    started, forked = (run("-c", source) for run in (run_python, run_preloaded))

    assert (
        (forked.code, forked.out) == (started.code, started.out) == (code, "worked\n")
    )
    assert forked.err.splitlines()[-1:] == started.err.splitlines()[-1:]


def test_programs_know_nothing_of_each_other() -> None:
    """Each starts from the same state, without JAX's backends and without an agent."""
    source = """
import jax, sys
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
from jaxmon.agent.agent import running
assert running() is None
import jaxmon
jaxmon.instrument(port=None, socket=False)
print(jax.device_count())
"""
    flags = "--xla_force_host_platform_device_count="
    for count in (3, 2):
        env = {"XLA_FLAGS": f"{flags}{count}"}
        assert run_preloaded("-c", source, env=env).ok().out == f"{count}\n"


def test_what_comes_too_late_is_refused() -> None:
    """Variables that Python and JAX read at their start have no effect there."""
    for name in ("JAX_ENABLE_X64", "PYTHONPATH"):
        with pytest.raises(ValueError, match=name):
            run_preloaded("-c", "pass", env={name: str(ROOT)})


def test_a_program_that_hangs_is_killed() -> None:
    """The next one runs."""
    with pytest.raises(subprocess.TimeoutExpired):
        run_preloaded("-c", "import time; time.sleep(600)", seconds=0.1)

    assert run_preloaded("-c", "print(1)").ok().out == "1\n"


def test_programs_run_at_the_same_time(tmp_path: Path) -> None:
    """One that runs holds up no other; signals reach it, and in a session it leads."""
    source = "import sys; print(1, flush=True); sys.stdin.read()"
    out = tmp_path / "out"
    reading, writing = os.pipe()
    try:
        with out.open("wb") as file:
            files = (reading, file.fileno(), file.fileno())
            program = shared().start(
                ["-c", source], clean_environ(), files=files, session=True
            )
        until(out.read_text, "the program to run")

        assert run_preloaded("-c", "print(2)").ok().out == "2\n"
        assert os.getsid(program.pid) == program.pid
        assert program.poll() is None
        program.terminate()
        assert program.wait(90) == program.poll() == -signal.SIGTERM
        # It is gone: no other process is meant.
        program.kill()
    finally:
        os.close(reading)
        os.close(writing)


def test_a_compile_cache_is_not_too_late(tmp_path: Path) -> None:
    """What JAX reads early about its cache is as the program's environment says."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    source = "import jax; jax.jit(lambda x: x + 1)(1)"
    with Path(os.devnull).open("r+b") as nothing:
        files = (nothing.fileno(),) * 3
        for enabled in ("false", "true"):
            environ = clean_environ(**cache, JAX_ENABLE_COMPILATION_CACHE=enabled)
            assert shared().suits(environ)
            program = shared().start(["-c", source], environ, files=files)
            assert program.wait(90) == 0
            assert (tmp_path / "cache").exists() is (enabled == "true")


def test_what_it_does_not_suit_is_known() -> None:
    """Python, JAX and the dynamic linker have read other variables by then."""
    environ = clean_environ()
    assert shared().suits({**environ, "JAXMON_PORT": "1", "JAX_PROCESS_ID": "0"})
    for name in ("JAX_ENABLE_X64", "PYTHONPATH", "LD_LIBRARY_PATH"):
        assert not shared().suits({**environ, name: "1"})
