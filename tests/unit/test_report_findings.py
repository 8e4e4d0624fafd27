"""All findings together: none where nothing is wrong, the most urgent first."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.catalog import WALL_STATES
from jaxmon.facts.process import read
from jaxmon.symptoms import time
from jaxmon.symptoms.findings import find
from jaxmon.symptoms.recompiles import WHAT_TO_DO, WHY
from jaxmon.symptoms.symptom import Urgency
from tests.advice import LOOPS, PAGE
from tests.helpers.findings import GIB, findings, function


def test_a_healthy_program_gets_no_findings():
    """A few compiles, fetches and a well-filled device are nothing to talk about."""
    assert findings() == []
    assert find(read({})) == []


def test_words_are_for_causes_that_exist():
    """Causes are spelled as in the catalogue."""
    assert {*WHY} == {*WHAT_TO_DO} == {*catalog.CAUSES} - {"unknown"}


def test_the_most_urgent_comes_first():
    """Failures come before slowness, and that before possible gains."""
    fetches = {"file": "a.py", "line": 1, "direction": "device_to_host"}
    parts: dict[str, Any] = {
        "allocations": {"leaks": [{"device": 0, "growth_bytes": GIB, "seconds": 720}]},
        "transfers": {"lines": [{**fetches, "count": 500, "seconds": 32.0}]},
        "functions": function(
            errors={"oom": 1},
            recompiles={"shape": 5},
            phases={"backend_compile": {"seconds": 150.0}},
        ),
    }

    assert [one.topic for one in findings(None, **parts)] == [
        "oom",
        "leak",
        "recompile",
        "transfer",
        "compile_share",
    ]


def test_advice_wins_at_least_half_of_what_it_promises():
    """Each finding on time has a row, measured by ``python -m tests.advice``."""
    row = r"^\| `(\w+)` \| .* \| ([\d.]+) s \| ([\d.]+) s \|$"
    rows = re.findall(row, PAGE.read_text(), re.MULTILINE)
    costs = {one.name for one in time.SYMPTOMS if one.urgency is Urgency.TIME}

    assert [topic for topic, *_ in rows] == [topic for topic, _ in LOOPS.values()]
    assert costs - {topic for topic, *_ in rows} == {"fetch"}  # needs an accelerator
    for topic, promised, won in rows:
        assert 0 < float(promised) <= 2 * float(won), topic


def test_exports_that_all_fail_are_found():
    """Only if that lasts: a receiver that is restarted, or slow once, is no finding."""
    failing = {"failed_in_a_row": 4, "failing_seconds": 240.0}
    for brief in ({"failed_in_a_row": 2}, {"failing_seconds": 100.0}, {}):
        once = {**failing, **brief} if brief else {}
        assert findings(None, exports=once) == []
    (one,) = findings(None, exports=failing)
    assert one.topic == "export"
    assert "for 4 min: the last 4 failed" in one.verdict
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in one.action


def test_spans_that_are_dropped_again_and_again_are_found():
    """Those of one outage long ago are no finding."""
    long, short = ({"observed_seconds": one} for one in (86400.0, 1200.0))
    dropped = {"spans_dropped": 2048}
    assert findings(None, process=long, exports=dropped) == []
    assert findings(None, process=short, exports={"spans_dropped": 150}) == []
    (one,) = findings(None, process=short, exports=dropped)
    assert (one.topic, one.verdict[:12]) == ("spans", "2,048 spans ")


_LENGTH = r"(\d[\d,.]*) (µs|ms|s|min|h|d)\b(?: (\d+) (s|min|h)\b)?"
_UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
# What is shown may be rounded up.
_ROUNDED = 1.06
STATES = tuple(WALL_STATES)


def lengths(text: str) -> list[float]:
    """Return the seconds of all lengths of time in *text*."""
    return [
        float(whole.replace(",", "")) * _UNITS[unit]
        + (float(rest) * _UNITS[smaller] if rest else 0.0)
        for whole, unit, rest, smaller in re.findall(_LENGTH, text)
    ]


def parts_of(chance: random.Random, whole: float, number: int) -> list[float]:
    """Return so many random parts that add up to *whole*, some of them tiny."""
    weights = [chance.random() ** 4 + 1e-9 for _ in range(number)]
    return [whole * weight / sum(weights) for weight in weights]


def some_period(chance: random.Random, seconds: float) -> dict[str, Any]:
    """Return a ledger that adds up."""
    states = chance.sample(STATES, chance.randint(1, 6))
    looks = chance.choice([15, 40, 99, 130, 3_000])
    taken = dict(zip(states, parts_of(chance, seconds, len(states)), strict=True))
    places = [
        {
            "state": state,
            "place": f"train.py:{chance.randint(1, 40)}",
            "function": chance.choice(["", "train.step"]),
            "activity": chance.choice(["", "", "", "save"]),
            "seconds": part,
        }
        for state, spent in taken.items()
        for part in parts_of(chance, spent, chance.randint(1, 5))
    ]
    error = seconds / looks + seconds * 0.5 / looks**0.5
    return {
        "seconds": seconds,
        "looks": looks,
        "states": {
            state: {"seconds": spent, "error_seconds": error}
            for state, spent in taken.items()
        },
        "places": places,
    }


def some_function(chance: random.Random, observed: float) -> dict[str, Any]:
    """Return a function; threads may compile it at once, and samples be skewed."""
    built = chance.choice([1, 1, 2, 30, 300])
    return {
        "internal": chance.random() < 0.4,
        "calls": chance.choice([0, built, 10 * built, 100_000]),
        "misses": built,
        "compiles": {"compiled": built},
        "recompiles": {
            chance.choice(["shape", "dtype", "new_function"]): chance.randrange(built)
        },
        "phases": {
            "backend_compile": {
                "seconds": observed * chance.choice([0.01, 0.3, 1.0, 3.0]),
                "count": built,
            }
        },
        "program": {"devices": chance.choice([1, 1, 8])},
        "samples": {
            "samples": chance.choice([1, 17, 500]),
            "execution_mean": chance.choice([0.0, 1e-4, 1.0, observed]),
            "dispatch_seconds": chance.choice([None, 1e-4, 0.5]),
        },
    }


def some_facts(chance: random.Random) -> dict[str, Any]:
    """Return what an agent may report of a process."""
    observed = chance.choice([0.7, 3.0, 8.0, 30.0, 600.0, 4_000.0])
    now = {
        "state": chance.choice(STATES),
        "place": f"train.py:{chance.randint(1, 40)}",
        "seconds": chance.uniform(0, observed),
    }
    functions = {
        name: some_function(chance, observed)
        for name in chance.sample(["train.step", "a.f", "a.g", "jax._src.add"], 3)
    }
    directions = ["device_to_host", "host_to_device", "sync"]
    return {
        "process": {"observed_seconds": observed, "now": 1e9},
        "functions": functions,
        "time": {
            "since_start": some_period(chance, observed * chance.uniform(0.7, 1.0)),
            "lately": some_period(chance, min(observed, 330.0)),
            "recent": some_period(chance, min(observed, 90.0)),
            "now": now,
        },
        "transfers": {
            "lines": [
                {
                    "file": "train.py",
                    "line": chance.randint(1, 40),
                    "direction": chance.choice(directions),
                    "how": "float",
                    "count": chance.choice([1, 100, 10_000]),
                    "bytes": 560.0,
                    "seconds": part,
                }
                for part in parts_of(chance, observed, 4)
            ],
            "arguments": {"train.step": chance.choice([0, 1 << 27])},
        },
        "usual": {"waiting": chance.choice([None, 0.1, 0.7])},
        "cache": {"enabled": chance.random() < 0.5, "directory": "/cache"},
    }


# Threads may compile at once, and the length from which a run is judged is a limit.
NOT_OF_THE_CLOCK = {"operations", "recompile", "recompiles", "compile_share", "short"}


@pytest.mark.parametrize("seed", range(2))
def test_whatever_the_facts_are_no_part_exceeds_its_whole(seed: int) -> None:
    """And no sum exceeds the time: what is said is no more than what is known."""
    chance = random.Random(seed)  # noqa: S311 - facts, not keys
    topics = set()
    for _ in range(250):
        facts = some_facts(chance)
        observed = facts["process"]["observed_seconds"]
        for one in find(read(facts)):
            told, evidence = lengths(one.verdict), " ".join(one.evidence)
            topics.add(one.topic)
            assert one.seconds <= observed, one
            if one.topic not in NOT_OF_THE_CLOCK:
                every = [*told, *lengths(evidence)]
                assert all(length <= observed * _ROUNDED for length in every), one
            if told and one.topic != "numpy_argument":  # the verdict is on a call
                assert sum(lengths(evidence)) <= told[0] * _ROUNDED, one
                assert told[0] <= max(told), one
            if first := re.search(r"(\d[\d.]*) % of it at", one.verdict):
                part = float(first[1]) / 100 * told[0]
                assert part + sum(lengths(evidence)) <= told[0] * _ROUNDED, one
    assert topics >= {"eager", "host", "device", "compiling", "blocked"}
