"""Advice on compiles, in exact words."""

from itertools import pairwise
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.facts.events import ANOTHER
from jaxmon.limits import Limits
from jaxmon.symptoms.recompiles import (
    EQUINOX,
    GROWS,
    KEEP_AS_ARRAY,
    MAKE_ONCE,
    WHAT_TO_DO,
    WHY,
)
from jaxmon.symptoms.symptom import Finding
from tests.helpers.findings import Case, findings, function


STORM = int(Limits().recompile_storm)


def recompile(text: str, **details: Any) -> dict[str, Any]:
    return {
        "kind": "recompile",
        "function": "train.step",
        "details": {"cause": "shape", "differences": [{"text": text}], **details},
    }


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
                    "compiles": {"compiled": 4},
                    "recompiles": {"shape": 2, "dtype": 1},
                    "phases": {"lower": {"seconds": 4.0, "count": 4}},
                }
                for n in range(10)
            }
        },
        [],
        (
            "10 functions were recompiled, 30 times in all, mostly because an "
            "argument's shape changed. This took 30.0 s."
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
        {
            "functions": function(
                compiles={"compiled": 3}, phases={"backend_compile": {"seconds": 150.0}}
            )
        },
        [{**recompile("x: f32[1] → f32[2]", seconds=30.0), "time": 1.0}],
        (
            "Compiles took 2 min 30 s, 25 % of 10 min: first compiles 2 min, "
            "recompiles 30.0 s."
        ),
        (),
        (
            "Warm up before the work starts, or reuse compiled programs between "
            "runs: set JAX_COMPILATION_CACHE_DIR."
        ),
    ),
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
            "changed. This took 4.0 s of the 4.0 s that its compiles took.",
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

    if cause == "evicted":
        assert found.verdict.startswith("JAX compiled 5 programs again that")
        return
    assert found.verdict.startswith("train.step was recompiled 5 times")
    if cause == "unknown":
        assert "; the cause is unknown. This took" in found.verdict
        assert "JAX_EXPLAIN_CACHE_MISSES=1" in found.action
    else:
        assert f" because {WHY[cause]}. This" in found.verdict
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


@pytest.mark.parametrize(
    ("cause", "text", "why", "action"),
    [
        (
            "tree_structure",
            "static field model.rate: 0.1 → 0.09",
            "a static field of an argument changed",
            KEEP_AS_ARRAY,
        ),
        (
            "tree_structure",
            "static field s.tx.init: init_fn at a.py:7 → the same function, made anew",
            "a static field of an argument changed",
            MAKE_ONCE,
        ),
        (
            "static_argument",
            f"static argument cfg: Config() → Config(){ANOTHER}",
            WHY["static_argument"],
            MAKE_ONCE,
        ),
        (
            "tree_structure",
            "argument x: key 'a' added",
            WHY["tree_structure"],
            WHAT_TO_DO["tree_structure"],
        ),
    ],
)
def test_the_advice_follows_what_differs(cause, text, why, action):
    """The label of a cause comprises what is to be mended in different ways."""
    functions = function(calls=100, recompiles={cause: STORM})
    (found,) = findings([recompile(text, cause=cause)], functions=functions)

    assert f" because {why}. This took" in found.verdict
    assert found.action == action


def test_equinox_makes_numbers_static():
    """Its argument is static because of what it is, not of how it was jitted."""
    (one,) = function(calls=100, recompiles={"static_argument": STORM}).values()
    (found,) = findings(functions={"equinox._jit.make_step": one})

    assert found.action == EQUINOX


@pytest.mark.parametrize(
    ("count", "cause", "seconds", "observed", "is_found"),
    [
        (1, "weak_type", 41.0, 85.0, True),
        (1, "sharding", 6.0, 3600.0, True),
        (1, "weak_type", 1.5, 10.0, True),
        (1, "weak_type", 4.0, 85.0, False),
        (1, "weak_type", 0.3, 2.0, False),
        # Another size needs a program of its own, as in buckets.
        (2, "shape", 22.0, 44.0, False),
        (4, "shape", 6.0, 3600.0, False),
        (4, "shape", 2.0, 4.0, False),
        (4, "shape", 44.0, 85.0, True),
    ],
)
def test_few_recompiles_are_judged_by_what_they_took(
    count, cause, seconds, observed, is_found
):
    """
    From the first on, a tenth of the time, or five seconds, if the earlier program
    would have done; both, of a few, if it may not. Their own time counts, not the mean
    of all compiles.
    """
    functions = function(
        recompiles={cause: count},
        phases={"backend_compile": {"seconds": seconds + 9.0, "count": count + 1}},
    )
    event = recompile("x", cause=cause, seconds=seconds / count, place="train.py:80")
    events = [event] * count
    process = {"observed_seconds": observed, "now": 1000.0}
    found = findings(events, functions=functions, process=process)
    serving: dict[str, Any] = {"/score": {"finished": []}}
    service = findings(events, functions=functions, process=process, requests=serving)

    told = any(of.topic == "recompile" for of in service)
    assert told is (is_found and cause != "shape")
    if not is_found:
        assert [of for of in found if of.topic == "recompile"] == []
        return
    first = found[0]
    assert (first.topic, first.where, first.seconds) == (
        "recompile",
        "train.py:80",
        seconds,
    )
    often = "once" if count == 1 else f"{count} times"
    assert f"was recompiled {often} because" in first.verdict


@pytest.mark.parametrize(
    ("cache", "seconds", "is_found"),
    [
        ({}, 12.0, True),
        ({"requests": {"hit": 1}}, 12.0, False),
        ({"writes": 1}, 12.0, False),
        ({}, 4.0, False),
    ],
)
def test_a_cache_that_stays_empty_is_not_what_was_meant(cache, seconds, is_found):
    """
    A directory is configured, all compiles are below the threshold, and take a tenth of
    the time; where something is stored or found, a threshold does what it is for.
    """
    below = {"reason": "below_threshold", "message": "Too fast", "where": "a.py:6"}
    functions = function(
        recompiles={},
        phases={"backend_compile": {"seconds": seconds / 2, "count": 2}},
    )
    found = findings(
        functions=functions,
        cache={"enabled": True, "directory": "/c", "obstacles": [below], **cache},
        process={"observed_seconds": 50.0, "now": 1000.0},
    )

    assert [(of.topic, of.where, of.evidence) for of in found] == (
        [("cache", "a.py:6", ("set at a.py:6",))] if is_found else []
    )


@pytest.mark.parametrize(
    ("loop", "seconds", "is_found"),
    [
        ({}, 8.0, True),
        ({"times": 12}, 8.0, False),
        ({"ratio": 0.4}, 8.0, False),
        ({}, 4.0, False),
        ({}, 0.0, False),
    ],
)
def test_an_unrolled_loop_is_most_of_a_long_compile(loop, seconds, is_found):
    """
    If it is most of a program whose compile is much of the time: a model of a few
    layers is built by a loop, too.
    """
    unrolled = {"where": "a.py:35", "times": 22, "ratio": 0.9, "operations": 1706}
    functions = function(
        compiles={"compiled": 1},
        recompiles={},
        phases={"backend_compile": {"seconds": seconds, "count": 1}},
        program={"unrolled": {**unrolled, **loop}},
    )
    found = findings(
        functions=functions,
        process={"observed_seconds": 20.0, "now": 1000.0},
    )

    assert [(of.topic, of.where) for of in found] == (
        [("unrolled", "a.py:35")] if is_found else []
    )
    if found:
        assert found[0].verdict == (
            "Compiling train.step took 8.0 s, 40 % of 20.0 s: a Python loop at a.py:35 "
            "puts its body into the program 22 times, 90 % of its 1,706 operations."
        )


@pytest.mark.parametrize(
    ("built", "seconds", "is_found"),
    [(25, 8.0, True), (4, 8.0, False), (25, 1.0, False)],
)
def test_a_body_that_is_new_at_each_call_is_named(built, seconds, is_found):
    """Loops and branches outside of jit are compiled without a cause of recompiles."""
    functions = {
        "jax._src.dispatch.scan": {
            "internal": True,
            "compiles": {"compiled": built},
            "phases": {"lower": {"seconds": seconds, "count": built}},
        }
    }
    place = {"state": "compile", "place": "a.py:7", "seconds": seconds}
    found = findings(
        functions=functions,
        process={"observed_seconds": 40.0, "now": 1000.0},
        time={"since_start": {"places": [place]}},
    )

    assert [(of.topic, of.where, of.seconds) for of in found] == (
        [("control_flow", "a.py:7", 8.0)] if is_found else []
    )
    if found:
        assert found[0].verdict.startswith(
            "jax.lax.scan was compiled 25 times outside of jit, which took 8.0 s: "
        )


def test_evicted_programs_are_blamed_on_what_evicted_them():
    """
    Functions and eager operations count together; where these were called is no cause.
    """
    functions = {
        "train.step": {
            "calls": 600,
            "compiles": {"compiled": 6},
            "recompiles": {"evicted": 5},
            "phases": {"lower": {"seconds": 12.0, "count": 6}},
        },
        "jax._src.random.normal": {
            "internal": True,
            "compiles": {"compiled": 120},
            "recompiles": {"evicted": 100},
            "phases": {"lower": {"seconds": 6.0, "count": 120}},
        },
    }
    event = recompile("jax.clear_caches() evicted it", cause="evicted", place="a.py:9")
    (found,) = findings([event] * 5, functions=functions)

    assert (found.topic, found.where, found.seconds) == ("evicted", "a.py:9", 15.0)
    assert found.evidence == (
        "a.py:9: jax.clear_caches() evicted it",
        "train.step: 10.0 s",
        "jax._src.random.normal: 5.0 s",
    )


def test_the_line_of_a_function_is_none_of_operations():
    """A library calls the function there; the time is that of its recompiles."""
    lines = [
        {"state": "compile", "place": "train.py:20", "seconds": 100.0},
        {"state": "compile", "place": "train.py:5", "seconds": 12.0},
    ]
    operation = {
        "internal": True,
        "compiles": {"compiled": 120},
        "phases": {"lower": {"seconds": 10.0, "count": 120}},
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
        # A model and its optimizer, each operation for a few shapes.
        {
            "process": {"observed_seconds": 20.0, "now": 1000.0},
            "functions": {
                f"jax.f{n}": {
                    "internal": True,
                    "compiles": {"compiled": 9},
                    "recompiles": {"shape": 8},
                    "phases": {"lower": {"seconds": 1.0, "count": 9}},
                }
                for n in range(9)
            },
        },
        {"cache": {"obstacles": [{"reason": "no_directory", "message": "not set"}]}},
    ],
)
def test_what_is_below_the_limits_is_not_worth_a_word(parts):
    """A finding that everyone gets is ignored."""
    assert findings(**parts) == []
