"""What the page on troubleshooting says of forks, permissions and drivers, provoked."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml.gpus import Gpus
from tests.helpers.processes import (
    ROOT,
    clean_environ,
    http_get,
    require_program,
    until,
)


NOBODY = 65534
# A process that has imported everything needs no permission for it later.
HEAD = f"""
import logging, os, signal, sys
import jaxmon
from click.testing import CliRunner
from jaxmon.cli.main import main
from jaxmon.cli import explain, findings, host, ps, workers
from jaxmon.screens import text

logging.basicConfig()

def command(*words):
    done = CliRunner().invoke(main, words)
    print(done.output, '--', sep='\\n', flush=True)

def become_nobody():
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})

def forked(run):
    if (pid := os.fork()) == 0:
        run()
        os._exit(0)
    return pid
"""
FORKS = """
jaxmon.instrument(port=None)
reading, writing = os.pipe()

def work(observed):
    if observed:
        jaxmon.instrument(port=None)
    os.write(writing, b"x")
    signal.pause()

for observed in (False, True):
    child = forked(lambda: work(observed))
    os.read(reading, 1)
    command("ps", "--seconds", "0")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
UNWRITABLE = """
jaxmon.instrument(port=None)  # loads what it needs
jaxmon.uninstrument()
become_nobody()
for directory in sys.argv[1:]:
    jaxmon.instrument(port=None, run_dir=directory)
    jaxmon.uninstrument()
"""
SHARED_LATE = f"""
jaxmon.instrument(port=None)

def look():
    become_nobody()
    command("ps", "--seconds", "0")
    command("explain")

os.waitpid(forked(look), 0)
os.chmod(sys.argv[1], 0o2770)
os.chown(sys.argv[1], -1, {NOBODY})
os.waitpid(forked(look), 0)
"""

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs to be another user")


def written(*phrases: str) -> None:
    """Assert that the page has these *phrases*, word for word."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    for phrase in phrases:
        assert phrase in " ".join(page.split()), phrase


def printed(phrase: str, text: str) -> bool:
    """Return whether *text* has a *phrase* of the page; ``...`` stands for any."""
    pattern = ".*?".join(map(re.escape, phrase.split("...")))
    return re.search(pattern, " ".join(text.split())) is not None


def test_of_forked_workers_only_the_parent_is_listed(preloaded_script):
    """A child that calls `instrument()` has a row of its own."""
    written("Only the parent is listed", "gets a row of its own")
    result = preloaded_script(HEAD + FORKS).ok()
    first, second = (
        re.findall(r"^(\d+) ", listed, re.MULTILINE)
        for listed in result.out.split("WORKER")[1:]
    )

    assert first == ["0"]
    assert second == ["0", "1"]


@as_root
def test_a_program_that_may_not_write_there_says_so(preloaded_script, run_dir):
    """The log has the words of the page, if the directory is closed or another's."""
    opening = "jaxmon could not open the Unix socket for the sidecar"
    closed, others = (
        f"{opening}: cannot create ...: Permission denied",
        "belongs to uid",
    )
    written(f"*{closed}*", f"*{others} ...*")
    run_dir.chmod(0o755)
    (run_dir / "closed").mkdir(mode=0o700)
    directories = map(str, (run_dir / "closed", run_dir))
    result = preloaded_script(HEAD + UNWRITABLE, *directories).ok()

    assert printed(closed, result.err)
    assert printed(f"{opening}: ... {others} 0", result.err)


@as_root
def test_another_user_is_told_of_the_permissions(preloaded_script, run_dir):
    """Commands name the directory, then its sockets."""
    directory = "run directory ...: Permission denied"
    socket = "cannot connect: ... Permission denied"
    written(f"*{directory}*", f"*{socket}*", "the process is `stuck?`")
    result = preloaded_script(HEAD + SHARED_LATE, str(run_dir)).ok()
    ps, explained, shared_ps, shared_explained = re.split(
        r"^--\n", result.out, flags=re.MULTILINE
    )[:-1]

    assert printed(directory, ps)
    assert printed(directory, explained)
    assert printed(socket, shared_ps)
    assert "stuck?" in shared_ps
    assert printed(socket, shared_explained)


@as_root
def test_a_sidecar_of_another_user_says_so_on_its_page(run_dir: Path) -> None:
    """It does not exit, and counts the failure."""
    written('jaxmon_collector_errors_total{reason="run_dir"}', "it does not exit")
    with sidecar_of_nobody(run_dir) as url:
        until(lambda: collector(url)["message"], "the first poll")
        message = collector(url)["message"]
        metrics = http_get(f"{url}/metrics")
        run_dir.chmod(0o755)
        until(lambda: collector(url)["success"], "the directory to be read")

    assert printed("run directory ...: Permission denied", message)
    counted = re.search(r'errors_total\{.*reason="run_dir"\} (\d+)', metrics)
    assert counted is not None
    assert int(counted[1]) > 0


def test_drivers_say_what_the_page_says(gpus: Callable[..., Gpus]) -> None:
    """Each reason comes with its words."""
    pytest.importorskip("pynvml")
    fleet = gpus(1)
    for code, reason, words in (
        (9, "driver_not_loaded", "the NVIDIA kernel driver is not loaded"),
        (18, "driver_mismatch", "the driver was upgraded under this process"),
        (999, "init_failed", "NVML initialisation failed"),
    ):
        written(f"`{reason}`: *{words}*")
        fleet.order(f"init {code}", "all 1")
        state: dict[str, Any] = {}

        def polled(
            reason: str = reason, state: dict[str, Any] = state
        ) -> dict[str, Any] | None:
            state.update(fleet.poll())
            return state if state["reason"] == reason else None

        until(polled, reason)
        assert words in state["message"]


@contextmanager
def sidecar_of_nobody(run_dir: Path) -> Iterator[str]:
    """Run ``jaxmon exporter`` as another user, and give its address."""
    ids = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    python = (require_program("setpriv"), *ids, sys.executable)
    environ = clean_environ(run_dir, PYTHONDONTWRITEBYTECODE="1")
    if subprocess.run([*python, "-c", ""], check=False, env=environ).returncode:
        pytest.skip("another user may not run this Python")
    with subprocess.Popen(
        [*python, "-m", "jaxmon", "exporter", "--port=0", "--agents-interval=0.2"],
        env=environ,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            said = (
                re.search(r"localhost:(\d+)/", line) for line in iter(process.stderr)
            )
            port = next(found[1] for found in said if found)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def collector(url: str) -> dict[str, Any]:
    """Return what the page says under Collectors of the one that reads agents."""
    every = json.loads(http_get(f"{url}/api/summary"))["collectors"]
    return next(one for one in every if one["name"] == "agents")
