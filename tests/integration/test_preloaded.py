"""Programs in forks of a process that has imported JAX are as those in their own."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.preloaded import run_preloaded
from tests.support import ROOT, run_python


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


def test_a_program_finds_what_it_would_find_elsewhere(
    tmp_path: Path, run_dir: Path
) -> None:
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
from jaxmon.agent.current import running
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
