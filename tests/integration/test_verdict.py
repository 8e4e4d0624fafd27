"""Programs with a mistake get the finding on it first, others none at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.preloaded import run_preloaded
from tests.support import ROOT


PROGRAM = ROOT / "tests" / "programs" / "verdict.py"
# Topic, and what the verdict names: the line of the mistake, or the function.
MISTAKES = {
    "forgotten_jit": ("eager", "verdict.py"),
    "shared_lock": ("blocked", "verdict.py"),
    "numpy_arguments": ("numpy_argument", "__main__.first"),
    "bookkeeping": ("host", "verdict.py"),
    "elements": ("eager", "verdict.py"),
}
HEALTHY = (
    "training",
    "reading_each_loss",
    "several_models",
    "idle_server",
    "evaluation_between",
)


def findings(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        run_preloaded(str(PROGRAM), name, seconds=420).ok().out
    )
    return found


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_first(name):
    """The most urgent finding is what takes the time."""
    topic, named = MISTAKES[name]
    found = findings(name)

    assert found, "nothing was found"
    assert found[0]["topic"] == topic, found
    assert named in found[0]["verdict"]
    assert found[0]["seconds"] > 1


@pytest.mark.parametrize("name", HEALTHY)
def test_nobody_is_accused(name):
    """A program without a mistake is told what its time goes into, if anything."""
    accused = [one for one in findings(name) if one["urgency"] != "note"]

    assert accused == []
