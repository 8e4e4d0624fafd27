"""A service that warms up shapes that no request has, and one that warms up its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.helpers.processes import JAXMON, Program, execute


SOURCE = """
import sys, time
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def predict(x):
    time.sleep(0.5)  # as many layers would take to trace
    return jnp.sort(jnp.sin(x), axis=-1)

for size in (8, 16, 32):
    predict(np.zeros((size + int(sys.argv[1]), 4), np.float32)).block_until_ready()
for request in range(200):
    size = (8, 16, 32)[request % 3]
    predict(np.zeros((size, 4), np.float32)).block_until_ready()
"""


def findings(directory: Path, off: int) -> list[dict[str, Any]]:
    """Return what is said of a warm-up that is *off* by so much."""
    (directory / "main.py").write_text(SOURCE)
    options = "--no-tcp", "--summary-dir", ".", "--run-dir", str(directory / "r")
    program = Program(arguments=("main.py", str(off)))
    status, _, errors = execute([*JAXMON, "run", *options], program, directory)
    assert status == 0, errors
    (summary,) = directory.glob("*.json")
    found = json.loads(summary.read_text())["findings"]
    summary.unlink()
    return [finding for finding in found if finding["urgency"] == "time"]


def test_shapes_that_the_warm_up_lacks_are_named_with_both_lines(tmp_path):
    """Not those of the warm-up, nor with the advice to have a few sizes."""
    lines = SOURCE.splitlines()
    warmed, served = (
        f"main.py:{number}"
        for number, line in enumerate(lines, 1)
        if line.startswith("    predict(")
    )

    found = next(of for of in findings(tmp_path, 1) if of["topic"] == "recompile")

    assert found["subject"] == "__main__.predict"
    assert found["where"].endswith(served)
    assert "was recompiled 3 times at" in found["verdict"]
    assert warmed in found["action"]
    assert "float32[32,4]" in " ".join(found["evidence"])


def test_a_warm_up_that_fits_is_no_fault(tmp_path):
    """Its programs were compiled once, before they were needed."""
    assert [of["topic"] for of in findings(tmp_path, 0)] == []
