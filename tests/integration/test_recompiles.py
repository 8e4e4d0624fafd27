"""
A recompile is counted under its cause, and its event lists every difference.

The program provokes them one by one and counts with a listener of its own how often JAX
compiled; causes and words are the same on every supported JAX.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import pytest
from prometheus_client.parser import text_string_to_metric_families

from jaxmon import catalog
from tests.helpers import processes
from tests.helpers.preloaded import run_preloaded
from tests.programs.recompiles import functions
from tests.programs.recompiles.expected import CASES, NONE, SEVERAL, SINCE, TRANSFORMED


pytestmark = pytest.mark.ground_truth

RELEASE = tuple(int(n) for n in jax.__version__.split(".")[:2])
PROGRAM = "tests.programs.recompiles"


@pytest.fixture(scope="module")
def noted() -> Any:
    """Run the program once and return what it printed."""
    env = {"JAXMON_SOCKET": "0"}
    return run_preloaded("-m", PROGRAM, cwd=processes.ROOT, env=env, seconds=540).json()


def test_every_case_is_expected_here(noted: Any) -> None:
    """
    What the program provokes is what the tables list; what it could not provoke, this
    JAX has not got.
    """
    absent = {name for name, since in SINCE.items() if since > RELEASE}

    assert set(noted["absent"]) == absent
    assert set(noted["cases"]) == {*CASES, *NONE, *SEVERAL, *TRANSFORMED} - absent


@pytest.mark.parametrize("name", [n for n in CASES if SINCE.get(n, RELEASE) <= RELEASE])
def test_the_cause_and_every_difference_are_told(noted: Any, name: str) -> None:
    """
    One compile, as JAX itself reports it, makes one event with the cause in words.
    """
    case = noted["cases"][name]
    cause, texts = CASES[name]

    assert case["compiles"] == 1
    (event,) = case["events"]
    told = [
        re.sub(r"\w+\.py:\d+", "FILE:LINE", difference["text"])
        for difference in event["differences"]
    ]
    assert (event["kind"], event["cause"], told) == ("recompile", cause, texts)
    assert event["omitted"] == 0
    assert 0 < event["seconds"] < 60


def test_what_was_evicted_is_blamed_on_what_cleared_the_caches(noted: Any) -> None:
    """The line that clears all of them, not the one that calls the function again."""
    source = Path(functions.__file__).read_text().splitlines()
    number = next(n for n, line in enumerate(source, 1) if "clear_caches()" in line)
    (event,) = noted["cases"]["caches_cleared"]["events"]
    (other,) = noted["cases"]["function_cleared"]["events"]

    assert event["place"].endswith(f"functions.py:{number}")
    assert other["place"]
    assert not other["place"].endswith(f"functions.py:{number}")


@pytest.mark.parametrize("name", TRANSFORMED)
def test_every_recompile_under_a_transformation_is_told(noted: Any, name: str) -> None:
    """Each of its programs, forward and backward, is one as JAX counts compiles."""
    case = noted["cases"][name]
    compiles, cause = TRANSFORMED[name]
    told = [event["cause"] for event in case["events"]]

    if "evicted" not in cause:  # also what JAX runs to differentiate
        assert case["compiles"] == compiles
    assert told == compiles * [cause]


@pytest.mark.parametrize("name", SEVERAL)
def test_each_is_compared_with_the_most_similar(noted: Any, name: str) -> None:
    """
    That is the call with the fewest kinds of differences: all arrays of a large tree
    that are placed elsewhere are no further away than a single shape.
    """
    case = noted["cases"][name]

    assert case["compiles"] == len(SEVERAL[name])
    assert [event["cause"] for event in case["events"]] == SEVERAL[name]


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_recompile_is_none(noted: Any, name: str) -> None:
    """
    First compiles, also of each program of a transformation, those ahead of time, and
    calls that miss without compiling are no recompiles, however often JAX compiles.
    """
    case = noted["cases"][name]

    # Differs by release, and also what JAX runs to differentiate.
    if name not in ("transformed", "many_transformations"):
        assert case["compiles"] == NONE[name]
    assert [e for e in case["events"] if e["kind"] == "recompile"] == []


def test_a_numpy_array_that_misses_is_told_once(noted: Any) -> None:
    """It leaves the fast path although nothing has to be compiled."""
    (event,) = noted["cases"]["numpy_in_place_of_jax"]["events"]

    assert event["reason"] == "numpy_argument"
    assert event["message"].startswith("argument batch['x']: a NumPy array where")


def test_effects_that_miss_every_time_are_told_once(noted: Any) -> None:
    """A hundred misses of a function with ordered effects make one event."""
    (event,) = noted["cases"]["effects"]["events"]

    assert event["reason"] == "effects"
    assert "ordered effects" in event["message"]


def test_counters_equal_the_events(noted: Any) -> None:
    """Every reported recompile is counted under its cause, and no other."""
    told = Counter((function, cause) for function, cause in noted["told"])
    counted = {
        (sample.labels["function"], sample.labels["cause"]): sample.value
        for family in text_string_to_metric_families(noted["page"])
        for sample in family.samples
        if sample.name == "jaxmon_recompiles_total" and sample.value
    }

    assert counted == told
    assert sum(told.values()) >= len(CASES) - len(SINCE)


def test_all_causes_that_exist_are_provoked() -> None:
    """Only what cannot be detected is left without a case."""
    assert set(catalog.CAUSES) - {cause for cause, _ in CASES.values()} == {"unknown"}
