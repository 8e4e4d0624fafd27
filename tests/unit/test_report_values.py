"""Findings on values, in exact words."""

from typing import Any

import pytest

from jaxmon.symptoms.results import ALWAYS_NAN, DIVERGING, INFINITE, NONFINITE, SPIKE
from tests.helpers.findings import Case, findings, function, told


SINCE = {"step": 120, "time": 940.0, "kind": "nan"}
LATEST = {"step": 119, "value": 2.25}


def output(state: str, **figures: Any) -> dict[str, Any]:
    """Return the functions of a program with one output in *state*."""
    one = {
        "name": "[1]['loss']",
        "state": state,
        "samples": 9,
        "call": 400,
        "time": 965.0,
        "finite_call": 310,
        "finite_value": 1.5,
        **figures,
    }
    return function(numerics={"values": 900, "nonfinite": 9, "outputs": [one]})


def lost(name: str, run: int, **figures: Any) -> dict[str, Any]:
    """Return a quantity that is not finite; one without *latest* never was."""
    found = {"run": run, "since": SINCE, "latest": LATEST, **figures}
    return {name: {key: one for key, one in found.items() if one is not None}}


CASES: dict[str, Case] = {
    "an output became NaN": (
        {"functions": output("nonfinite", recovered=1)},
        [],
        (
            "train.step returns NaN: output [1]['loss'] was finite in call 310 (1.5), "
            "and NaN in call 400, 35 s ago, and since."
        ),
        (
            "no finite value in 9 sampled calls since",
            "it had recovered once before",
        ),
        NONFINITE,
    ),
    "the program ended with NaN": (
        {"functions": output("nonfinite", call=0, samples=0, where="train.py:9")},
        [],
        (
            "train.step returns NaN: output [1]['loss'] was finite in call 310 (1.5), "
            "and NaN in the newest result that the program held when it ended."
        ),
        ("called at train.py:9",),
        NONFINITE,
    ),
    "the only output became NaN": (
        {"functions": output("nonfinite", name="", finite_value=None)},
        [],
        (
            "train.step returns NaN: its output was finite in call 310, and NaN in "
            "call 400, 35 s ago, and since."
        ),
        ("no finite value in 9 sampled calls since",),
        NONFINITE,
    ),
    "an output became infinite": (
        {"functions": output("infinite")},
        [],
        (
            "train.step returns infinity: output [1]['loss'] was finite in call 310, "
            "and infinite in call 400, 35 s ago, and since."
        ),
        (),
        INFINITE,
    ),
    "an output is always NaN": (
        {"functions": output("always_nan")},
        [],
        "train.step has returned NaN in all of 9 sampled calls: output [1]['loss'].",
        (),
        ALWAYS_NAN,
    ),
    "a logged loss": (
        {"values": lost("loss", 2)},
        [],
        "The logged loss is NaN since step 120, 1 min ago; it was 2.25 at step 119.",
        ("no finite value among 2 since",),
        NONFINITE,
    ),
    "another quantity": (
        {"values": lost("grad_norm", 11)},
        [],
        (
            "The logged grad_norm is NaN since step 120, 1 min ago; it was 2.25 at "
            "step 119."
        ),
        ("no finite value among 11 since",),
        NONFINITE,
    ),
    "a loss that was never finite": (
        {"values": lost("train/loss", 30, latest=None)},
        [],
        "The logged train/loss is NaN since step 120, 1 min ago.",
        ("no finite value among 30 since",),
        NONFINITE,
    ),
    "a spike": (
        {
            "values": {
                "loss": {
                    "spikes": 2,
                    "spike": {"step": 1200, "value": 35.2, "usual": 2.1},
                    "latest": {"step": 1500, "value": 2.0},
                }
            }
        },
        [],
        (
            "The logged loss jumped from 2.1 to 35.2 at step 1,200, as it did twice in "
            "all."
        ),
        ("now: 2",),
        SPIKE,
    ),
    "diverging": (
        {
            "values": {
                "loss": {"first": 6.0, "best": 2.0, "floor": 7.0, "latest": LATEST}
            }
        },
        [],
        "The logged loss diverges: it was 2 at best and stays above 7 at step 119.",
        ("it began at 6; nine in ten of the latest 50 values are above 7",),
        DIVERGING,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_is_told_in_these_words(case):
    """One mistake makes one finding: verdict, evidence, what to do."""
    assert told(CASES[case]) == CASES[case][2:]


@pytest.mark.parametrize(
    "quantities",
    [
        lost("grad_norm", 9),  # skipped by dynamic loss scaling
        lost("loss", 1),
        lost("grad_norm", 50, since={**SINCE, "kind": "inf"}),
        lost("val_loss", 50, latest=None),  # a placeholder before the first evaluation
        lost("val_loss", 9),
        {"accuracy": {"spikes": 3, "spike": {"value": 0.9, "usual": 0.1}}},
        {"g_loss": {"first": 1.0, "best": 0.5, "floor": 4.0}},
        {"policy_loss": {"spikes": 3, "spike": {"value": 9.0, "usual": 0.1}}},
        # Outliers of small batches, and the noise of a loss that is almost 0.
        {"loss": {"count": 900, "spikes": 3, "spike": {"value": 9.0, "usual": 1.0}}},
        {
            "loss": {
                "first": 1.0,
                "spikes": 1,
                "spike": {"value": 1e-6, "usual": 1e-7},
            }
        },
        # At the floor of its noise.
        {"loss": {"first": 1.0, "best": 1e-6, "floor": 1e-5}},
        # Above its best, and still far below its start.
        {"loss": {"first": 9.0, "best": 1.0, "floor": 2.5}},
        {"nll": {"first": -1.0, "best": -5.0, "floor": -3.0}},
        {"loss": {"first": 2.0, "best": 2.0, "floor": 2.0}},
        {"loss": {"first": 2.0, "best": 2.0, "floor": None}},
    ],
)
def test_healthy_quantities_are_not_accused(quantities):
    """Neither what recovers, nor what need not fall, nor a plateau."""
    assert findings(values=quantities) == []


def test_a_negative_loss_diverges_as_well():
    """What it had gained says what is much."""
    (found,) = findings(values={"nll": {"first": -1.0, "best": -5.0, "floor": 4.0}})

    assert found.topic == "diverging"
