"""
A game day, for real: JAX programs that break, the agent, the sidecar, Prometheus with
the rules, Alertmanager, and what its notifications say.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from jaxmon_alerts.gameday import stack
from jaxmon_alerts.gameday.children import Children
from jaxmon_alerts.gameday.scenarios import SCENARIOS
from jaxmon_alerts.gameday.stack import MonitoringPrograms
from tests.helpers.processes import (
    QUICK_COMPILES,
    ROOT,
    clean_environ,
    require_program,
    until,
)


# All of them take three to four minutes on two processors.
DEADLINE = 1500

_COMMAND = (sys.executable, str(Path(sys.executable).with_name("jaxmon")), "gameday")
# With most of its processes forked off one that has imported JAX.
_PRELOADED = (sys.executable, "-m", "tests.programs.gameday")


@pytest.fixture
def programs() -> MonitoringPrograms:
    return MonitoringPrograms(
        require_program("prometheus"), require_program("prometheus-alertmanager")
    )


@contextmanager
def gameday(
    directory: Path, *arguments: str, command: Sequence[str] = _COMMAND, **environ: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the command with sockets below *directory*, and stop what is left."""
    with subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env={
            **clean_environ(TMPDIR=str(directory), COLUMNS="100"),
            **QUICK_COMPILES,
            **environ,
        },
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def shared_cache(directory: Path) -> dict[str, str]:
    """Return what has all programs share a compile cache, and compile in turn."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(directory / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


# A process that is killed, and hardware; tests/integration/test_alerting.py has errors.
_FEW = ("die", "gpu-lost")


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(_FEW, id="few"),
        pytest.param(
            tuple(one.name for one in SCENARIOS), id="all", marks=pytest.mark.exhaustive
        ),
    ],
)
@pytest.mark.timeout(DEADLINE + 60)
def test_every_fault_brings_its_alert(programs, nvml_library, run_dir, tmp_path, names):
    """
    Each scenario: nothing fires before, the alert is notified, nothing fires that does
    not follow from the fault, the alert is resolved afterwards, and no process and no
    file is left.
    """
    path = tmp_path / "results.json"
    arguments = (*names, "--json", f"--out={path}", f"--driver={nvml_library}")
    environ = shared_cache(tmp_path)
    with gameday(run_dir, *arguments, command=_PRELOADED, **environ) as process:
        out, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0, out + err
    results: list[dict[str, Any]] = json.loads(path.read_text())
    assert [one["scenario"] for one in results] == list(names)
    for one in results:
        assert one["outcome"] == "passed"
        assert one["detected"] > 0
        assert one["resolved"] > 0
        assert one["severity"] in {"page", "ticket"}
        assert one["unexpected"] == []
        assert f"panel    {one['panel']} ({one['board']})" in err
        assert f"runbook  {one['runbook']}" in err
    assert f"{len(names)} of {len(names)} passed" in err
    assert out == ""
    assert list(run_dir.iterdir()) == []


def test_an_interrupted_game_day_leaves_nothing(programs, run_dir):
    """Ctrl-C ends all processes, also those that are stopped, and removes all files."""
    with gameday(run_dir, "freeze") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "broken: " in line:
                break
        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)

    assert process.returncode == 130, out + err
    # Prometheus, Alertmanager, the server, and its sidecar.
    assert len(children) == 4
    assert not any(child.is_running() for child in children)
    assert list(run_dir.iterdir()) == []


@pytest.mark.exhaustive
def test_a_stack_in_use_is_drilled(
    programs: MonitoringPrograms, run_dir: Path, tmp_path: Path
) -> None:
    """A Prometheus in use scrapes the drill's targets, and none at the end."""
    path = tmp_path / "results.json"
    with Children(clean_environ(), tmp_path) as children:
        theirs = stack.start(programs, children, tmp_path, targets={}, webhook=None)
        arguments = (
            *("oom", "--json", f"--out={path}", f"--against={theirs.prometheus}/"),
            *(f"--targets={theirs.targets}", f"--time-scale={stack.SCALE}"),
        )
        with gameday(run_dir, *arguments) as process:
            until(
                lambda: "gameday-oom" in theirs.targets.read_text(),
                "what to scrape",
                seconds=240,
            )
            out, err = process.communicate(timeout=600)

        assert process.returncode == 0, out + err
        assert json.loads(theirs.targets.read_text()) == []
    [result] = json.loads(path.read_text())
    assert (result["alert"], result["outcome"]) == ("JaxmonOutOfMemory", "passed")
    assert re.search(r"Watching http://\S+; what it must scrape is in ", err)


def test_a_stack_that_does_not_respond_is_reported(run_dir, tmp_path):
    """Nothing is started in vain."""
    arguments = ("--against=http://127.0.0.1:9", f"--targets={tmp_path}/targets.json")
    with gameday(run_dir, "oom", *arguments) as process:
        _, err = process.communicate(timeout=240)

    assert process.returncode == 1
    assert "Prometheus at http://127.0.0.1:9/api/v1/alerts does not respond" in err
