"""Agent and sidecar go on where the rooms that commands load do not exist."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.sidecars import exporters


GENERATING = (
    *("jaxmon_alerts", "jaxmon_dashboards", "jaxmon.job", "jaxmon.preflight"),
)
# Python imports this before anything else of a process.
WITHOUT = """\
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith({rooms!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
"""
AGENT = """\
import json, sys, urllib.request
import jax, jax.numpy as jnp
import jaxmon

agent = jaxmon.instrument(port=0)
double = jax.jit(lambda x: x * 2)
for size in jaxmon.steps((2, 3)):
    double(jnp.ones(size)).block_until_ready()

page = urllib.request.urlopen(agent.url).read().decode()
jaxmon.uninstrument()
wanted = ("jaxmon_step_seconds_count", "jaxmon_internal_errors_total{")
print(json.dumps([one for one in page.splitlines() if one.startswith(wanted)]))
"""


@pytest.fixture
def without(tmp_path: Path) -> Callable[[tuple[str, ...]], str]:
    """Return a function that returns a ``PYTHONPATH`` without *rooms*."""

    def path(rooms: tuple[str, ...]) -> str:
        (tmp_path / "sitecustomize.py").write_text(WITHOUT.format(rooms=rooms))
        return str(tmp_path)

    return path


def test_an_agent_without_the_rooms_counts(python_script, without):
    """It observes and serves, with nothing said; only what shows it is absent."""
    path = without((*GENERATING, "jaxmon.cli", "jaxmon.screens"))
    ran = python_script(AGENT, env={"PYTHONPATH": path}).ok()
    (steps,) = json.loads(ran.out)
    assert steps.endswith(" 2")
    assert ran.err == ""


def test_a_sidecar_without_the_rooms_serves(run_dir, without):
    """It serves what it collects and judges, as a command of `jaxmon.cli`."""
    with exporters(run_dir) as start:
        sidecar = start(PYTHONPATH=without(GENERATING))
        sidecar.until_ready()
        assert "jaxmon_collector_success" in sidecar.get()
        assert sidecar.summary()["answer"]["text"].startswith("Not known: ")
        assert "<html" in sidecar.get("/")
