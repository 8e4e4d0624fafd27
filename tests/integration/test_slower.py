"""Programs and loops that become slower, found in a running program and across runs."""

import json
import os
from collections.abc import Iterator
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.history.part import SpeedHistory
from jaxmon.agent.history.times import ENOUGH
from jaxmon.agent.sampling.part import Sampling
from jaxmon.facts.process import read
from jaxmon.limits import Limits, shared
from jaxmon.symptoms.findings import find
from jaxmon.symptoms.symptom import Finding
from tests.helpers import inside, timing
from tests.helpers.agents import value
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import some
from tests.helpers.timing import BY_HAND, arm, idle


AGENT = BY_HAND


@pytest.fixture(scope="module")
def nap(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the body of napping programs known to XLA."""
    timing.build(tmp_path_factory.mktemp("nap"))


@pytest.fixture
def accelerated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have naps taken for programs of an accelerator, off the processor."""
    monkeypatch.setattr(
        "jaxmon.agent.sampling.window.runs_on_host_cpu", lambda _: False
    )


class Run:
    def __init__(self, agent: Agent, sampling: Sampling) -> None:
        self.agent = agent
        self._sampling = sampling
        self._history = inside.part(agent, SpeedHistory)
        self._history._spacing = 0.0
        self.step = timing.napping("step")
        self.pad = 0

    def take(self, seconds: Iterator[float], number: int) -> None:
        """
        Take *number* samples of programs of so many *seconds*, and judge them: more
        calls than that on a busy machine, where some are not known well enough.
        """
        enough = self._samples + number
        for one in islice(seconds, 20 * number):
            if self._samples >= enough:
                break
            nap = jnp.pad(timing.duration(one), (0, self.pad))
            jax.block_until_ready(self.step(nap))
            arm(self._sampling)
            for _ in range(3):
                jax.block_until_ready(self.step(nap))
            idle(self._sampling)
            self._history._due = 0.0
            self._history._tick()

    @property
    def _samples(self) -> int:
        return sum(one.samples for one in self._history._programs.values())

    def slowed(self, seconds: float) -> Finding:
        """
        Return the finding on programs that take so many *seconds* from now on: on a
        busy machine, it takes more of them to be sure.
        """
        for _ in range(8):
            self.take(repeat(seconds), ENOUGH + 8)
            if found := self.findings():
                break
        (only,) = found
        return only

    def findings(self) -> list[Finding]:
        """Return what `jaxmon explain` would say is slower."""
        document = inside.overview(self.agent)
        return [one for one in find(read(document)) if one.topic == "slower"]


@pytest.fixture
def run(agent: Agent, sampling: Sampling, nap: None, accelerated: None) -> Run:
    """Return a run of a napping program."""
    return Run(agent, sampling)


MANY = 2 * ENOUGH


def test_agents_judge_by_the_limits_of_their_host(agent, tmp_path, monkeypatch):
    """What is slower is read from the file of limits, at each judgement."""
    history = inside.part(agent, SpeedHistory)
    assert history._margin() == Limits().slower
    path = tmp_path / "limits.json"
    path.write_text(json.dumps({"schema": shared.SCHEMA, "limits": {"slower": 0.9}}))
    monkeypatch.setenv(shared.VARIABLE, str(path))
    assert history._margin() == 0.9


def test_program_that_does_more_work_in_mid_run_is_found(run: Run) -> None:
    """
    The same program with a larger traced argument: the finding, the event and the
    metric name it, with what it took before and takes now.
    """
    run.take(repeat(0.002), MANY)
    assert run.findings() == []
    found = run.slowed(0.012)
    assert found.subject.endswith(".step")
    assert " times as long as before, since " in found.verdict
    assert 4 < value(run.agent, "jaxmon_slowdown", against="earlier") < 8
    assert found.seconds > 0.005 * ENOUGH
    assert "for the same arguments: uint32[5]" in found.evidence
    (event,) = inside.events(run.agent).since(kind="slower")
    assert event.function == found.subject
    run.take(repeat(0.002), ENOUGH + 8)
    assert run.findings() == []
    assert value(run.agent, "jaxmon_slowdown", against="earlier") == 1


@pytest.mark.parametrize(
    "seconds",
    some(
        [cycle([0.002, 0.012]), repeat(0.002), iter([0.05, 0.02, *repeat(0.002, 2000)])]
    ),
    ids=["bimodal", "steady", "warming_up"],
)
def test_programs_without_a_fault_are_not_accused(run, seconds):
    """A steady program, one with two modes and one that warms up are no slowdown."""
    run.take(seconds, MANY + ENOUGH)
    assert run.findings() == []
    assert value(run.agent, "jaxmon_slowdown", against="earlier") == 1


def test_another_shape_is_another_program(run: Run) -> None:
    """Longer calls with other shapes are not compared with the shorter ones."""
    run.take(repeat(0.002), MANY)
    run.pad = 3
    run.take(repeat(0.012), ENOUGH + 8)
    assert run.findings() == []


def test_new_program_is_named_beside_a_slowdown(run: Run) -> None:
    """What began to run, or was compiled, when the slowdown began."""
    run.take(repeat(0.002), MANY)
    step, run.step = run.step, timing.napping("evaluate")
    run.take(repeat(0.002), 3)
    run.step = step
    found = run.slowed(0.012)
    assert "tests.helpers.timing.evaluate began to run" in found.evidence
    compiled = [line for line in found.evidence if line.endswith("compiled")]
    assert any("evaluate" in line for line in compiled)


LOOP = """
import json
import jaxmon
from jaxmon.agent.history.part import SpeedHistory
from jaxmon.facts.record import encoded
from jaxmon.symptoms.findings import as_fact, find
from jaxmon.facts.process import read
from tests.helpers import inside

agent = jaxmon.instrument(port=None, socket=False, sample_rate=1, memory_interval=0)
history = inside.part(agent, SpeedHistory)

def run(seconds, waits, number):
    for _ in range(number):
        counts = inside.indicators(agent).loops.of("train").counts
        for _ in range(3):
            counts.steps += 1
            counts.seconds.observe(seconds)
            counts.waited += waits
        history._due = 0.0
        history._tick()

with_steps = jaxmon.steps(range(1), loop="train")
list(with_steps)
run(0.1, 0.01, 60)
before = [one.verdict for one in find(read(inside.overview(agent)))]
run(0.3, 0.2, 30)
found = read(inside.overview(agent))
# As long as the steps say: a finding is worth no more than the life of the process.
found = found.replace(process=found.process.replace(observed_seconds=600.0))
after = [one for one in find(found) if one.topic == "slower"]
print(json.dumps([before, [encoded(as_fact(one)) for one in after]]))
"""


def test_slower_steps_are_found_with_the_wait_for_data(preloaded_script):
    """A loop whose steps take longer is named, and how much of it is waiting."""
    before, after = json.loads(preloaded_script(LOOP).ok().out)
    assert not any("times as long" in one for one in before)
    (found,) = after
    assert found["verdict"].startswith("A step of loop train takes 3.0 times as long")
    assert "waiting for data: 10 ms of a step → 0.20 s" in found["evidence"]
    assert found["seconds"] == pytest.approx(0.2 * 30 * 3, rel=0.1)


# The time is slept, so that it is the same however busy the processors are.
PROGRAM = """
import json, os, sys, time
import jax, jax.numpy as jnp
import numpy as np
import jaxmon
from jaxmon.agent.history import part
from jaxmon.facts.record import encoded
from jaxmon.symptoms.findings import as_fact, find
from jaxmon.facts.process import read
from tests.helpers import inside
from tests.helpers.processes import some

# Other tests keep the processors busy, more in one run than in the other.
part._MOST_WAITING = 1.0
agent = jaxmon.instrument(port=None, sample_rate=100, transfers=False)
history = inside.part(agent, part.SpeedHistory)
history._spacing = 0.0

PAUSE = 0.1 if os.environ["XLA_FLAGS"] else 0.03

def pause(y):
    time.sleep(PAUSE)
    return np.asarray(y)

@jax.jit
def step(x):
    return jax.pure_callback(pause, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

x = jnp.ones(8)
until = time.time() + 200
while time.time() < until:
    for _ in range(20):
        jax.block_until_ready(step(x))
    if any(one.times.settled for one in history._programs.values()):
        history._due = 0.0
        history._tick()
        break
document = inside.overview(agent)
found = [encoded(as_fact(one)) for one in find(read(document)) if one.topic == "slower"]
jaxmon.uninstrument()
print(json.dumps(found))
"""
SLOW = "--xla_backend_optimization_level=0"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a program that has run once."""
    directory = tmp_path_factory.mktemp("past")
    (directory / "train.py").write_text(PROGRAM)
    assert again(directory) == []
    return directory


def again(place: Path, flags: str = "", **environ: str) -> list[dict[str, Any]]:
    """Run the program with *flags* for XLA; return what is slower."""
    environ["XLA_FLAGS"] = flags
    run_dir = place / "run"
    result = run_preloaded(
        "train.py", run_dir=run_dir, cwd=place, env=environ, optimised=True
    )
    found: list[dict[str, Any]] = json.loads(result.ok().out)
    return found


def test_slower_build_is_named_with_the_flag(place: Path) -> None:
    """The same program with another flag takes longer than in its past."""
    (found,) = again(place, SLOW)
    assert found["subject"] == "__main__.step"
    assert " times as long as in the run that ended " in found["verdict"]
    assert any(f"changed: XLA_FLAGS: none → {SLOW}" in o for o in found["evidence"])
    assert (found["metric"], found["runbook"]) == ("jaxmon_slowdown", "JaxmonSlowdown")
    assert found["seconds"] > 0


def test_directory_that_cannot_be_written_costs_only_the_comparison(place):
    """A file in place of the directory: the program runs and prints as before."""
    (place / "run" / "elsewhere").mkdir()
    (place / "run" / "elsewhere" / "history").write_text("mine")
    elsewhere = str(place / "run" / "elsewhere")
    assert again(place, SLOW, JAXMON_RUN_DIR=elsewhere) == []
    left = os.listdir(elsewhere)  # noqa: PTH208 - names only
    # How the process ended is recorded all the same.
    assert sorted(left) == ["agent-0.end", "history"]
