"""What `docs/testing.md` shows, done."""

import re
import shlex
from pathlib import Path

import pytest

from jaxmon.preflight.baseline.record import TOLERANCES
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


DOC = (ROOT / "docs" / "testing.md").read_text()

# Stands in for the user's program.
TRAIN = """
import jax

@jax.jit
def step(x):
    return x * 2

step(1.0)
"""


def blocks(language: str) -> list[str]:
    """Return the fenced blocks in *language*."""
    return re.findall(rf"^```{language}\n(.*?)^```", DOC, re.MULTILINE | re.DOTALL)


def test_tests_of_the_document_pass(tmp_path: Path) -> None:
    """Its Python is a test module, and all of its tests pass."""
    (tmp_path / "test_doc.py").write_text("\n".join(blocks("python")))
    options = ("-q", "-p", "no:cacheprovider", "--strict-markers")
    out = run_preloaded("-m", "pytest", *options, cwd=tmp_path).ok().out
    assert out.splitlines()[-1].startswith("4 passed")


@pytest.mark.exhaustive
def test_commands_of_the_document_work(tmp_path: Path) -> None:
    """Each command can be typed as it stands, one after the other."""
    (tmp_path / "before").mkdir()
    for directory in (tmp_path, tmp_path / "before"):
        (directory / "train.py").write_text(TRAIN)
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    commands = re.findall(r"^\$ (.*)$", "\n".join(blocks("console")), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        once = re.sub(r"^(jaxmon baseline \w+)", r"\1 --runs=1", command)
        run_preloaded("-m", *shlex.split(once), cwd=tmp_path).ok()


def test_every_figure_has_its_reason() -> None:
    """The table of tolerances names all figures."""
    rows = [line for line in DOC.splitlines() if line.startswith("| `")]
    for name in TOLERANCES:
        assert any(f"`{name}`" in row for row in rows)
