"""Run times in baselines of real programs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.processes import Result, run_python


pytestmark = pytest.mark.exhaustive

# Element-wise chains are what XLA's optimiser makes most of.
PROGRAM = """
import jax, jax.numpy as jnp

def body(_, y):
    for _ in range(4):
        y = jnp.sin(y) * 1.01 + jnp.tanh(y) * jnp.exp(-y * y) - y / (1 + jnp.abs(y))
    return y

@jax.jit
def step(x):
    return jax.lax.fori_loop(0, 8, body, x)

for _ in range(12):
    step(jnp.ones(20_000))
"""
SLOW = "--xla_backend_optimization_level=0"

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a program and its baseline."""
    directory = tmp_path_factory.mktemp("recorded")
    (directory / "train.py").write_text(PROGRAM)
    run_python(
        *("-m", "jaxmon", "baseline", "record", "b.json", "--", "train.py"),
        cwd=directory,
        env={"XLA_FLAGS": ""},
    ).ok()
    return directory


def compared(place: Path, *arguments: str, flags: str = "") -> Result:
    """Run ``jaxmon baseline compare`` with *flags* for XLA."""
    command = ("-m", "jaxmon", "baseline", "compare", *arguments)
    return run_python(*command, cwd=place, env={"XLA_FLAGS": flags})


def test_slower_build_fails_the_gate_and_names_the_flag(place: Path) -> None:
    """The same program with less optimisation fails, and the outcome says why."""
    result = compared(place, "b.json", "--", "train.py", flags=SLOW)
    assert result.code == 1
    row = next(line for line in result.out.splitlines() if "processor_sec" in line)
    assert row.split()[-1] == "WORSE"
    outcome = result.out.partition("1 regression in 1 of 1 function; ")[2]
    assert outcome.split() == ["changed:", "XLA_FLAGS:", "none", "→", SLOW]
    assert result.err.splitlines()[-1] == "run 5 of at most 5"


def test_same_build_is_no_regression(place: Path) -> None:
    """The same program again passes, however busy the machine is."""
    for _ in range(3):
        result = compared(place, "b.json", "--", "train.py")
        assert (result.code, "WORSE" in result.out) == (0, False), result.out


def test_two_commands_are_compared_without_a_file(place: Path) -> None:
    """The older one may run with other flags, or with another Python."""
    older = f"env XLA_FLAGS={SLOW} {sys.executable} train.py"
    result = compared(place, "--against", older, "--", "train.py")
    assert result.code == 0
    assert "better" in result.out
    assert f"changed: XLA_FLAGS: {SLOW} → none" in result.out


def test_baselines_hold_every_run_with_the_machine(place: Path) -> None:
    """Five runs, each with quantiles, how long threads waited, and the calibration."""
    document = json.loads((place / "b.json").read_text())
    assert document["versions"]["processor"]
    assert len(document["runs"]) == 5
    for run in document["runs"]:
        (times,) = run["functions"]["__main__.step"].values()
        # The first call compiled, and the next may have waited for it.
        assert times["calls"] in (10, 11)
        assert times["wall"] == sorted(times["wall"])
        assert run["calibration"]
        assert 0 <= run["waited"] <= 1


TIMED = """
import json, sys, time
import jax, jax.numpy as jnp
import jaxmon

jaxmon.instrument(port=None, socket=False, figures_dir=sys.argv[1], sample_rate=0)

@jax.jit
def step(x, n):
    return jax.lax.fori_loop(0, n, lambda _, y: jnp.sin(y) + 1, x)

outer = []
x = jnp.ones(1000)
for number in range(12):
    began = time.perf_counter()
    x = step(x, 200)
    y = x + 1
    jax.block_until_ready(y)
    outer.append(time.perf_counter() - began)
jax.vmap(step, (0, None))(jnp.ones((2, 9)), 3)
for n in range(3):
    step(jnp.ones((5, 5)), 10)
jax.block_until_ready(step(jnp.ones((5, 5)), 10))
jaxmon.uninstrument()
step(x, 1)
print(json.dumps(sorted(outer)))
"""


@pytest.mark.ground_truth
def test_calls_are_timed_until_their_outputs_are_ready(preloaded_script, tmp_path):
    """
    Each call's time is within that of the program's own clock around it; calls with
    other shapes are another program, calls that JAX traces are none.
    """
    (tmp_path / "times").mkdir()
    result = preloaded_script(TIMED, str(tmp_path / "times")).ok()
    outer: list[float] = json.loads(result.out)
    (file,) = (tmp_path / "times").iterdir()
    programs: dict[str, Any] = json.loads(file.read_text())["times"]["functions"]
    (found,) = programs.values()
    assert list(found) == ["float32[1000], int", "float32[5,5], int"]
    times = found["float32[1000], int"]
    assert times["calls"] == 10
    assert outer[0] / 4 < times["wall"][2] < outer[-1]
    assert found["float32[5,5], int"]["calls"] == 2
