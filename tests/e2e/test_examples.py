"""The examples do what they show."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from jaxmon.catalog import COMPILES, JIT_CACHE_HITS, JIT_CALLS
from jaxmon.catalog import STEPS as MARKED_STEPS
from tests.helpers.processes import ROOT, run_python


STEPS = 60
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {
    "train_equinox": ("equinox", "optax"),
    "train_flax_nnx": ("flax", "optax", "orbax"),
}

# Runs an example as a script, then prints the page of the agent that it started.
RUN_AND_READ = """
import runpy, sys, urllib.request
import jaxmon
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
with urllib.request.urlopen(jaxmon.instrument().url) as page:
    print(page.read().decode())
"""


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            path,
            id=path.stem,
            marks=[pytest.mark.exhaustive] if path.stem in NEEDS else [],
        )
        for path in EXAMPLES
    ],
)
def test_example_learns_and_is_observed(example: Path, run_dir: Path) -> None:
    """The loss falls, and the page counts each step: one compile, then hits."""
    for library in NEEDS.get(example.stem, ()):
        if find_spec(library) is None:
            pytest.skip(f"needs {library}")

    out = (
        run_python(
            *("-c", RUN_AND_READ, str(example), "--steps", str(STEPS)),
            env={"JAXMON_PORT": "0"},
            run_dir=run_dir,
        )
        .ok()
        .out
    )

    assert figure(out, r"final loss: (\S+)") < 0.5 * figure(out, r"first loss: (\S+)")
    step = r'\{function="[^"]*\btrain_step"'
    assert figure(out, rf"^{JIT_CALLS.name}{step}\}} (\d+)") == STEPS
    assert figure(out, rf"^{JIT_CACHE_HITS.name}{step}\}} (\d+)") == STEPS - 1
    compiled = rf'^{COMPILES.name}{step},outcome="compiled"\}} (\d+)'
    assert figure(out, compiled) == 1
    if "jaxmon.steps(" in example.read_text():
        assert figure(out, rf'^{MARKED_STEPS.name}\{{loop="train"\}} (\d+)') == STEPS


def test_examples_are_there() -> None:
    """Each of the ways to write a training loop that we name has its example."""
    assert {"train_plain", *NEEDS} == {path.stem for path in EXAMPLES}


def figure(text: str, pattern: str) -> float:
    """Return the number that *pattern* finds, exactly once, in *text*."""
    (found,) = re.findall(pattern, text, re.MULTILINE)
    return float(found)
