"""Advice on compiles, in exact words."""

from itertools import pairwise
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.limits import Limits
from jaxmon.symptoms.recompiles import EQUINOX, GROWS, WHAT_TO_DO, WHY
from jaxmon.symptoms.symptom import Finding
from tests.helpers.findings import Case, findings, function


STORM = int(Limits().recompile_storm)


CASES: dict[str, Case] = {
    "compile stuck": (
        {"compiling": {"count": 1, "oldest_seconds": 1000}},
        [],
        "A compile has been running for 16 min 40 s.",
        (),
        (
            "Large unrolled loops compile slowly: use jax.lax.scan. If other "
            "processes are waiting too, check which rank runs a different program."
        ),
    ),
    "scattered": (
        {
            "functions": {
                f"m.f{n}": {
                    "calls": 9000,
                    "recompiles": {"shape": 2, "dtype": 1},
                    "phases": {"lower": {"seconds": 4.0, "count": 4}},
                }
                for n in range(10)
            }
        },
        [],
        (
            "10 functions were recompiled, 30 times in all, mostly because an "
            "argument's shape changed. Their compiles took 40.0 s."
        ),
        (),
        "Pad to a few fixed sizes (buckets), or drop the smaller last batch.",
    ),
    "operations": (
        {
            "functions": {
                f"jax.numpy.{name}": {
                    "internal": True,
                    "compiles": {"compiled": n},
                    "phases": {"lower": {"seconds": n / 40, "count": n}},
                }
                for name, n in (("add", 200), ("dot", 50))
            }
        },
        [],
        "Eager operations were compiled one by one: 250 programs in 6.2 s.",
        ("add 200, dot 50",),
        (
            "Move them into a jitted function; for set-up code and "
            "post-processing, NumPy works too."
        ),
    ),
    "operations again": (
        {
            "process": {"observed_seconds": 20.0, "now": 1000.0},
            "functions": {
                "jax._src.dispatch.unstack": {
                    "internal": True,
                    "compiles": {"compiled": 23},
                    "recompiles": {"shape": 22},
                    "phases": {"lower": {"seconds": 2.5, "count": 23}},
                }
            },
        },
        [],
        (
            "Eager operations were compiled one by one: 23 programs in 2.5 s, 22 "
            "of them recompiles, mostly because an argument's shape changed."
        ),
        ("unstack 23",),
        (
            "Move them into a jitted function; for set-up code and "
            "post-processing, NumPy works too."
        ),
    ),
    "effects": (
        {"functions": function(misses=5000)},
        [{"kind": "miss", "function": "train.step", "details": {"reason": "effects"}}],
        (
            "train.step left the fast path 5,000 times, because it has an effect, "
            "such as jax.debug.print or io_callback."
        ),
        (),
        (
            "Each such call costs half a millisecond on the host, and what the "
            "callback takes; remove the effect where time matters."
        ),
    ),
    "cache obstacle": (
        {
            "cache": {
                "obstacles": [
                    {
                        "reason": "check_contents",
                        "message": "It compiles each program once",
                        "advice": "Switch it off.",
                    }
                ]
            }
        },
        [],
        "It compiles each program once.",
        (),
        "Switch it off.",
    ),
    "cache errors": (
        {"cache": {"directory": "/cache", "errors": {"read": 1, "write": 2}}},
        [
            {
                "kind": "cache",
                "message": "No space left on device",
                "details": {"operation": "write"},
            },
            {"kind": "cache", "message": "An obstacle", "details": {}},
        ],
        "The persistent cache had 1 read error and 2 write errors.",
        ("No space left on device",),
        "Check space and permissions of /cache.",
    ),
    "compile share": (
        {"functions": function(phases={"backend_compile": {"seconds": 150.0}})},
        [],
        "Compiles took 2 min 30 s, 25 % of 10 min.",
        (),
        (
            "Warm up before the work starts, or reuse compiled programs between "
            "runs: set JAX_COMPILATION_CACHE_DIR."
        ),
    ),
}


def recompile(text: str, **details: Any) -> dict[str, Any]:
    return {
        "kind": "recompile",
        "function": "train.step",
        "details": {"cause": "shape", "differences": [{"text": text}], **details},
    }


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_is_told_in_these_words(case):
    """One mistake makes one finding: verdict, evidence, what to do."""
    parts, events, finding, evidence, action = CASES[case]
    (found,) = findings(events, **parts)

    assert (found.verdict, found.evidence, found.action) == (finding, evidence, action)


def test_recompiles_are_explained_with_their_latest_differences():
    """How often, why, what differed, what to do; equal differences once."""
    texts = [f"argument x: float32[{n}] → float32[{n + 1}]" for n in (1, 2, 3, 3, 4)]
    found = findings(
        list(map(recompile, texts)),
        functions=function(recompiles={"shape": 37, "dtype": 2}),
    )

    assert found == [
        Finding(
            "recompile",
            "train.step",
            "train.step was recompiled 37 times because an argument's shape "
            "changed. Compiling it took 4.0 s.",
            (texts[4], texts[3], texts[1]),
            "Pad to a few fixed sizes (buckets), or drop the smaller last batch.",
            seconds=4.0,
        )
    ]


def test_a_storm_of_today_is_told_after_a_quiet_week():
    """
    What took long in the last ten minutes is reported, however little it is of a long
    run; older events are not.
    """
    week = {"observed_seconds": 604_800.0, "now": 604_800.0}
    parts = {
        "process": week,
        "functions": function(calls=10**8, recompiles={"shape": STORM}),
    }

    def storm(age: float) -> list[dict[str, Any]]:
        return [
            {**recompile("x: f32[1] → f32[2]", seconds=0.6), "time": 604_800.0 - age}
            for _ in range(STORM)
        ]

    (found,) = findings(storm(300.0), **parts)

    assert found.verdict.startswith(
        "train.step was recompiled 5 times (5 of them in the last 10 min) because"
    )
    assert findings(storm(700.0), **parts) == []
    assert findings(storm(300.0)[1:], **parts) == []


def test_the_line_to_change_is_part_of_the_evidence():
    """It is the line that jits, or that calls with other arguments."""
    (found,) = findings(
        [recompile("a new function object", place="train.py:30")],
        functions=function(recompiles={"shape": STORM}),
    )

    assert found.evidence == ("train.py:30: a new function object",)


def test_a_sweep_is_no_storm():
    """
    A function that is created anew for each of ten values, and called a thousand times
    each, is only a finding if it takes much of the time.
    """
    sweep = {"calls": 10_000, "recompiles": {"new_function": 9}}
    took = {"backend_compile": {"seconds": 40.0, "count": 10}}

    assert findings(functions=function(**sweep)) == []
    (found,) = findings(functions=function(**sweep, phases=took))
    assert found.topic == "recompile"


def test_operations_are_blamed_on_lines_of_their_own():
    """A line that calls a jitted function compiles that; what is short is left out."""
    parts, *_ = CASES["operations"]
    places = [("setup.py:3", "", 5.0), ("a.py:1", "", 0.1), ("train.py:9", "step", 4.0)]
    period = {
        "places": [
            {"state": "compile", "place": line, "function": function, "seconds": took}
            for line, function, took in places
        ]
    }
    (found,) = findings(time={"since_start": period}, **parts)

    assert found.where == "setup.py:3"
    assert found.evidence == ("add 200, dot 50", "setup.py:3: 5.0 s")


@pytest.mark.parametrize("cause", catalog.CAUSES)
def test_every_cause_has_its_words(cause):
    """No cause of the catalogue is without a reason and without advice."""
    (found,) = findings(functions=function(recompiles={cause: STORM}, calls=100))

    assert found.verdict.startswith("train.step was recompiled 5 times")
    if cause == "unknown":
        assert "; the cause is unknown. Compiling it" in found.verdict
        assert "JAX_EXPLAIN_CACHE_MISSES=1" in found.action
    else:
        assert f" because {WHY[cause]}. Compiling" in found.verdict
        assert found.action == WHAT_TO_DO[cause]


def growing(*sizes: int) -> str:
    """Return the advice on a function whose argument had these lengths in turn."""
    texts = [
        f"argument cache['k'][0]: f32[{a},4] → f32[{b},4]" for a, b in pairwise(sizes)
    ]
    functions = function(calls=100, recompiles={"shape": len(texts)})
    (found,) = findings(list(map(recompile, texts)), functions=functions)
    return found.action


def test_what_grows_is_not_to_be_padded():
    """A cache that gets one longer at each call has no last batch."""
    assert growing(9, 3, 4, 5, 6, 7, 8) == GROWS
    assert growing(3, 4, 5, 6, 5, 6, 7) == WHAT_TO_DO["shape"]


def test_equinox_makes_numbers_static():
    """Its argument is static because of what it is, not of how it was jitted."""
    (one,) = function(calls=100, recompiles={"static_argument": STORM}).values()
    (found,) = findings(functions={"equinox._jit.make_step": one})

    assert found.action == EQUINOX


def test_few_recompiles_of_a_large_program_are_enough():
    """If most calls recompile, and that takes much of the time, three are reported."""

    def told(seconds: float, calls: int = 4) -> bool:
        few = {"compiles": {"compiled": 4}, "recompiles": {"shape": 3}, "calls": calls}
        phases = {"backend_compile": {"seconds": seconds, "count": 4}}
        return any(
            one.topic == "recompile"
            for one in findings(functions=function(**few, phases=phases))
        )

    assert told(200.0)
    assert not told(100.0)
    assert not told(200.0, calls=100)


def test_the_line_of_a_function_is_none_of_operations():
    """A library calls the function there; the time is that of its recompiles."""
    lines = [
        {"state": "compile", "place": "train.py:20", "seconds": 100.0},
        {"state": "compile", "place": "train.py:5", "seconds": 12.0},
    ]
    operation = {
        "internal": True,
        "compiles": {"compiled": 9},
        "phases": {"lower": {"seconds": 10.0, "count": 9}},
    }
    users = function(
        recompiles={"shape": 2}, phases={"lower": {"seconds": 30.0, "count": 3}}
    )
    all_ = findings(
        [recompile("x: f32[1] → f32[2]", place="train.py:20")],
        functions={**users, "jax._src.dispatch.add": operation},
        time={"since_start": {"seconds": 600.0, "looks": 900, "places": lines}},
    )
    (found,) = [one for one in all_ if one.topic == "operations"]

    assert (found.where, found.evidence[1:]) == ("train.py:5", ("train.py:5: 10.0 s",))


@pytest.mark.parametrize(
    "parts",
    [
        {"functions": function(recompiles={"shape": STORM - 1, "dtype": STORM - 1})},
        {"functions": function(recompiles={"shape": 8}, phases={})},
        {"compiling": {"count": 1, "oldest_seconds": 200}},
        {"functions": {"jax.f": {"internal": True, "recompiles": {"shape": 99}}}},
        {"cache": {"obstacles": [{"reason": "no_directory", "message": "not set"}]}},
    ],
)
def test_what_is_below_the_limits_is_not_worth_a_word(parts):
    """A finding that everyone gets is ignored."""
    assert findings(**parts) == []
