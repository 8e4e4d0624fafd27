"""States whose numbers are lost, under ``jaxmon run``, beside healthy ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.processes import ROOT


PROGRAM = "tests/programs/lost_numbers.py"
SECONDS = "10"

pytest.importorskip("optax")
pytestmark = pytest.mark.ground_truth


def findings(kept: Path, cases: str) -> dict[str, dict[str, Any]]:
    """Return the findings on lost numbers in some of the *cases*, by function."""
    words = ["run", "--no-tcp", "--run-dir", str(kept / "agents")]
    subprocess.run(
        [
            *(sys.executable, "-m", "jaxmon", *words),
            *("--summary-dir", str(kept), PROGRAM, cases, SECONDS),
        ],
        check=True,
        cwd=ROOT,
        timeout=240,
    )
    (summary,) = kept.glob("*.json")
    return {
        one["subject"].rpartition(".")[2]: one
        for one in json.loads(summary.read_text())["findings"]
        if one["topic"] in {"rounded", "overflowed"}
    }


def test_what_is_lost_is_found_with_its_line(tmp_path: Path) -> None:
    """Weights that round their updates away, and counts that become negative."""
    source = (ROOT / PROGRAM).read_text().splitlines()
    lines = {
        line.rpartition("# lost: ")[2]: f"{PROGRAM}:{number}"
        for number, line in enumerate(source, 1)
        if "# lost: " in line
    }
    found = findings(tmp_path, "lost")

    assert {name: one["where"] for name, one in found.items()} == lines
    assert {name: one["topic"] for name, one in found.items()} == {
        "bfloat16_weights": "rounded",
        "float16_sgd": "rounded",
        "tokens_in_steps": "overflowed",
        "tokens_in_batches": "overflowed",
    }
    assert "output ['tokens'], int32, was 2," in found["tokens_in_steps"]["verdict"]


@pytest.mark.exhaustive
def test_what_is_kept_is_not_accused(tmp_path: Path) -> None:
    """Masters, frozen, converged and clipped weights; caches; resets and hashes."""
    assert findings(tmp_path, "kept") == {}
