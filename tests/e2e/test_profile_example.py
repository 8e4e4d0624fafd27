"""A profile of an example says where its time goes."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from tests.helpers.processes import QUICK_COMPILES, ROOT, clean_environ, until


EXAMPLE = ROOT / "examples" / "train_flax_nnx.py"


def profiled(run_dir: Path, out: Path) -> dict[str, Any]:
    """Return what a profile of the program says, empty if it did not train then."""
    words = ["profile", "--json", "--seconds=0.5", f"--out={out}"]
    done = CliRunner().invoke(main, [*words, f"--run-dir={run_dir}"])
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.output)
    lines = EXAMPLE.read_text().splitlines()
    ran = [lines[one["line"] - 1] for one in document["groups"] if one["line"]]
    trained = any("optimizer.update(" in line for line in ran)
    return document if trained else {}


@pytest.mark.exhaustive
def test_nine_tenths_of_the_time_have_a_line_of_the_program(run_dir, tmp_path):
    """Flax and Optax do the work; the lines are those that call them."""
    if find_spec("flax") is None or find_spec("optax") is None:
        pytest.skip("needs flax and optax")
    process = subprocess.Popen(
        [sys.executable, "-u", str(EXAMPLE), "--steps", "100000000"],
        env=clean_environ(run_dir, JAXMON_PORT="0", **QUICK_COMPILES),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("held-out loss"):
            assert process.poll() is None
        # On a busy machine a program may not have its turn within a half second.
        document = until(lambda: profiled(run_dir, tmp_path), "operations")
    finally:
        process.kill()
        process.communicate()

    assert document["located"] >= 0.9
    lines = EXAMPLE.read_text().splitlines()
    seconds = {
        lines[group["line"] - 1].strip(): group["seconds"]
        for group in document["groups"]
        if group["file"] == str(EXAMPLE)
    }
    assert sum(seconds.values()) >= 0.9 * sum(
        group["seconds"] for group in document["groups"]
    )
    for call in ("self.out(nnx.tanh(self.hidden(x)))", "optimizer.update("):
        assert any(call in line for line in seconds)
    libraries = {one["library"] for one in document["operations"]}
    assert "flax Linear" in libraries
    assert any(library and library.startswith("optax ") for library in libraries)
