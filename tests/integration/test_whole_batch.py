"""A program that works far ahead of several devices, and computes all on each."""

import json

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


pytestmark = [pytest.mark.ground_truth, pytest.mark.optimised]


@pytest.mark.parametrize("batch", ["whole", "divided"])
def test_a_batch_that_is_whole_on_each_device_is_found(batch: str) -> None:
    """However seldom results are read; one that is divided is no fault."""
    found = run_preloaded(
        *("-m", "tests.programs.whole_batch", batch),
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        cwd=ROOT,
        seconds=200,
        optimised=True,
    ).json()
    topics, known = set(found["verdicts"]), found["execution"] is not None

    assert ("duplicated" in topics) == (batch == "whole"), json.dumps(found)
    assert found["quiet"] == (batch == "divided" and "unmeasured" not in topics)
    assert not (known and "unmeasured" in topics)
