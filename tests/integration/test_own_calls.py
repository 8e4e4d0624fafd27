"""
What jaxmon does for each event of a program, in calls: what keeps its cost within
bounds on any machine, however busy.
"""

from typing import Any

import pytest

from tests.helpers.processes import ROOT, run_python


# Calls of our Python functions, and calls by these of other functions. About a tenth
# more than there are: a change that needs more says so here.
MOST = {
    "cached call": (0, 0),
    "device_put": (9, 23),
    "read": (7, 13),
    "sync": (10, 13),
    "warning": (36, 39),
    "marked step": (3, 9.5),
    "small compile": (260, 318),
    "recompile": (268, 353),
    "FLOPs of 1,000 equations": (1_650, 2_750),
    "frequent device_put": (1.3, 0.7),
    "frequent read": (2.3, 0.5),
    "frequent sync": (1.3, 0.5),
    "frequent warning": (2.5, 1.4),
}

# Modules of ours that a compile passes on the program's thread.
PASSED = {"small compile": 41, "recompile": 43}

# Of a start: modules of ours and of others, threads, and blocks of memory.
START = {"modules": 107, "others": 3, "threads": 3, "blocks": 31_000}


@pytest.fixture(scope="module")
def counts() -> Any:
    env = {"JAX_PLATFORMS": "cpu", "JAXMON_SOCKET": "0"}
    done = run_python("-m", "tests.programs.own_calls", cwd=ROOT, env=env, seconds=300)
    return done.json()


def test_a_start_loads_and_starts_so_much(counts: Any) -> None:
    """Modules, threads and memory of `instrument`, after ``import jax``."""
    assert {k: n for k, n in counts["start"].items() if n > START[k]} == {}


def test_each_event_makes_so_many_calls(counts: Any) -> None:
    """A cached call makes none of ours, frequent events next to none."""
    found = counts["costs"]

    assert found.keys() == MOST.keys()
    above = {
        name: cost
        for name, cost in found.items()
        if any(n > most for n, most in zip(cost, MOST[name], strict=True))
    }
    assert above == {}


def test_a_compile_passes_so_many_modules(counts: Any) -> None:
    """What a reader of a compile has to follow, on the program's thread."""
    found = {name: counts["passed"][name] for name in PASSED}

    assert {name: n for name, n in found.items() if n > PASSED[name]} == {}


def test_frequent_events_are_all_counted(counts: Any) -> None:
    """One stands for those before it, so that only the latest may be missing."""
    total, transfers, nbytes, warnings = counts["frequent"]

    assert total - 100 <= transfers <= total + 100
    assert nbytes == transfers * counts["size"]
    assert warnings == total
