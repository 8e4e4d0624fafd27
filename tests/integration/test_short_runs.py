"""Findings on programs that end within seconds, as `jaxmon run` reports them."""

from __future__ import annotations

import pytest

from jaxmon.host.formats.durations import seconds
from jaxmon.limits import Limits
from tests.exam.__main__ import fault, mark, run
from tests.helpers.processes import ROOT


pytestmark = pytest.mark.ground_truth

_SHORT = ROOT / "tests" / "programs" / "short"
ENDS, SIZES = _SHORT / "ends.py", _SHORT / "sizes.py"
SOME = pytest.mark.exhaustive
FEW, NOTICED = Limits().recompile_few, seconds(Limits().recompile_noticed)


@pytest.mark.parametrize("name", ["last_step", "last_losses"])
def test_nan_in_the_last_calls_is_found(name: str) -> None:
    """Though no sampled call was NaN, by what the program holds as it ends."""
    ran = run(ENDS, name)

    assert mark(fault(ENDS), ran.findings).passed, ran.report


@pytest.mark.parametrize(
    "name",
    [
        *("skipped_step", "skipped_update", "one_bad_batch"),
        pytest.param("placeholder", marks=SOME),
        pytest.param("finite", marks=SOME),
    ],
)
def test_nan_that_is_meant_is_not_found(name: str) -> None:
    """A step that is skipped, a single bad batch, what the first call returned."""
    assert run(ENDS, name).findings == []


@pytest.mark.parametrize(
    ("sizes", "compiling"),
    [
        pytest.param("64,37", "3", marks=SOME),
        pytest.param("16,17,18", "2", marks=SOME),
        ("16,17,18,19", "2"),
    ],
)
def test_few_recompiles_that_take_long_are_found(sizes: str, compiling: str) -> None:
    """From the first on, with the line, what differs, and the seconds they took."""
    ran = run(SIZES, sizes, compiling, "8")
    count = sizes.count(",")
    if count < FEW and ran.truth["lost"] * (1 - ran.waiting) < NOTICED:
        pytest.skip("the machine is so busy that compiles of a moment take as long")
    found = ran.findings[0]

    assert mark(fault(SIZES), ran.findings).passed, ran.report
    assert found["seconds"] == pytest.approx(ran.truth["lost"], rel=0.1)
    before, after = sizes.split(",")[-2:]
    assert f"batch: float32[{before},32] → float32[{after},32]" in found["evidence"][0]
    assert len(found["evidence"]) == count


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["16,17,18,19", "2", "8", "--fixed"], marks=SOME),
        ["32,64", "2", "6"],
    ],
    ids=["padded", "buckets"],
)
def test_sizes_that_are_meant_are_not_found(arguments: list[str]) -> None:
    """Batches are padded to one size, or to one that is a multiple of another."""
    assert run(SIZES, *arguments).findings == []
