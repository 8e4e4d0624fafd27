"""Advice on compiles, in exact words."""

from typing import Any

import pytest

from jaxmon.limits import Limits
from tests.helpers.findings import (
    Case,
    compiled,
    findings,
    found,
    function,
    operation,
    recompile,
    told,
)


STORM = int(Limits().recompile_storm)


SHORT = {"observed_seconds": 20.0, "now": 1000.0}
MOVE = (
    "Move them into a jitted function; for set-up code and post-processing, NumPy "
    "works too."
)
CASES: dict[str, Case] = {
    "compile stuck": (
        {
            "compiling": {
                "count": 1,
                "oldest_seconds": 1000,
                "function": "m.f",
                "equations": 41_000,
                "most": 38_000,
                "where": "model.py:88",
            }
        },
        [],
        "A compile has been running for 16 min 40 s.",
        ("XLA compiles m.f: 41,000 equations, 38,000 of them from model.py:88.",),
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
                "jax.numpy.add": operation(200, 5.0),
                "jax.numpy.dot": operation(50, 1.25),
            }
        },
        [],
        "Eager operations were compiled one by one: 250 programs in 6.2 s.",
        ("add 200, dot 50",),
        MOVE,
    ),
    "operations again": (
        {
            "process": SHORT,
            "functions": {"jax._src.dispatch.unstack": operation(23, 2.5, shape=22)},
        },
        [],
        (
            "Eager operations were compiled one by one: 23 programs in 2.5 s, 22 "
            "of them recompiles, mostly because an argument's shape changed."
        ),
        ("unstack 23",),
        MOVE,
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
    assert told(CASES[case]) == CASES[case][2:]


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
    found = findings(
        functions=compiled(2, seconds / 2),
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
        ({"inner": "a.py:9"}, 8.0, True),
        ({"times": 12}, 8.0, False),
        ({"ratio": 0.4}, 8.0, False),
        ({}, 4.0, False),
        ({"programs": 2}, 4.0, True),
        ({}, 0.0, False),
    ],
)
def test_an_unrolled_loop_is_most_of_a_long_compile(loop, seconds, is_found):
    """
    If it is most of programs whose compiles are much of the time: a model of a few
    layers is built by a loop, too.
    """
    number = loop.get("programs", 1)
    seconds *= number
    unrolled = {"where": "a.py:35", "times": 22, "ratio": 0.9, "operations": 1706}
    functions = compiled(number, seconds, program={"unrolled": {**unrolled, **loop}})
    found = findings(functions=functions, process=SHORT)

    assert [(of.topic, of.where) for of in found] == (
        [("unrolled", "a.py:35")] if is_found else []
    )
    if found:
        both = ", with one at a.py:9," if "inner" in loop else ""
        assert found[0].seconds == pytest.approx(0.9 * seconds * 21 / 22)
        assert found[0].verdict == (
            "Compiling train.step took 8.0 s, 40 % of 20.0 s: a Python loop at a.py:35"
            f"{both} puts its body into {'the program' * (number == 1)}"
            f"{'each of 2 programs' * (number > 1)} 22 times, 90 % of its 1,706 "
            "operations."
        )


def test_operations_are_told_with_their_lines_and_what_a_loop_takes_of_them():
    """Also beside a jitted function on the line; of few looks, by what recompiles."""
    add = operation(150, 12.0, shape=140)
    event = {"kind": "recompile", "function": "jax.add", "message": ""}
    details = {"cause": "shape", "place": "b.py:2", "seconds": 9.0}
    loop, once = (
        {"state": "compile", "place": place, "seconds": seconds, "once": first}
        for place, seconds, first in (("a.py:7", 6.0, False), ("a.py:1", 3.0, True))
    )

    def told(*places: dict[str, Any]) -> tuple[str, tuple[str, ...], float]:
        period = {"seconds": 20.0, "looks": 200, "places": places}
        states = {"compile": {"seconds": 12.0}, "eager": {"seconds": 1.0}}
        (found,) = (
            of
            for of in findings(
                [{**event, "details": details}],
                functions={"jax.add": add},
                time={"since_start": {**period, "states": states}},
                process=SHORT,
            )
            if of.topic == "operations"
        )
        return found.where, found.evidence[1:], round(found.seconds, 3)

    runs = "they took 1.0 s more to run"
    jitted = {**loop, "function": "train.correct", "seconds": 0.5}
    assert told(loop, once, jitted) == (
        *("a.py:7", ("a.py:7: 6.0 s", "a.py:1: 3.0 s", runs)),
        9.0,
    )
    assert told() == ("b.py:2", ("b.py:2: 9.0 s", runs), 13.0)


@pytest.mark.parametrize(
    ("steps", "seconds", "is_found"),
    [(2_000_000, 8.0, True), (200_000, 8.0, False), (2_000_000, 0.5, False)],
)
def test_a_compile_in_progress_may_compute_constants(steps, seconds, is_found):
    """As long as what it does with them may take that long."""
    cumsum = {"where": "a.py:9", "operation": "cumsum", "constant": "float32[400,400]"}
    found = findings(
        functions={},
        compiling={
            "count": 1,
            "oldest_seconds": seconds,
            "function": "train.step",
            "folded": {**cumsum, "steps": steps},
        },
        process=SHORT,
    )

    assert [of.where for of in found if of.topic == "folded"] == ["a.py:9"] * is_found
    if is_found:
        assert found[0].verdict.startswith(
            "XLA has been compiling train.step for 8.0 s: it may be computing cumsum "
            "at a.py:9 meanwhile, element by element, because it needs no argument"
        )


@pytest.mark.parametrize(
    ("steps", "seconds", "is_found"),
    [(2_000_000, 8.0, True), (200_000, 8.0, False), (90_000, 0.5, False)],
)
def test_constants_may_be_most_of_a_compile(steps, seconds, is_found):
    """Not of one that takes far longer than computing them, nor of a short one."""
    cumsum = {"where": "a.py:9", "operation": "cumsum", "steps": steps}
    table = {"constant": "float32[400,400]", "programs": 1, "callers": ["a.py:30"]}
    functions = compiled(1, seconds, program={"folded": {**cumsum, **table}})
    found = findings(functions=functions, process=SHORT)

    assert [(of.topic, of.where, of.seconds) for of in found] == (
        [("folded", "a.py:9", 8.0)] if is_found else []
    )
    if found:
        assert found[0].verdict == (
            "Compiling train.step took 8.0 s, 40 % of 20.0 s: XLA computes cumsum at "
            "a.py:9 meanwhile, element by element, because it needs no argument, only "
            "constants: float32[400,400] and what is made of it."
        )
        assert found[0].evidence == ("called from a.py:30",)


@pytest.mark.parametrize(
    ("count", "seconds", "misses", "is_found"),
    [
        (20_000, 90.0, 2, True),
        (20_000, 30.0, 2, False),
        (900, 90.0, 2, False),
        (20_000, 90.0, 20_000, False),
    ],
)
def test_programs_that_call_python_in_a_loop(count, seconds, misses, is_found):
    """Often, and for long; a call that calls back once has a finding of its own."""
    line = {"place": "a.py:4", "count": count, "seconds": seconds}
    found = findings(functions=function(misses=misses), transfers={"callbacks": [line]})

    assert [(of.topic, of.where, of.seconds) for of in found] == (
        [("callbacks", "a.py:4", 90.0)] if is_found else []
    )


@pytest.mark.parametrize(
    ("built", "seconds", "is_found"),
    [(25, 8.0, True), (4, 8.0, False), (25, 1.0, False)],
)
def test_a_body_that_is_new_at_each_call_is_named(built, seconds, is_found):
    """Loops and branches outside of jit are compiled without a cause of recompiles."""
    place = {"state": "compile", "place": "a.py:7", "seconds": seconds}
    found = findings(
        functions={"jax._src.dispatch.scan": operation(built, seconds)},
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


def test_the_line_of_a_function_is_none_of_operations():
    """A library calls the function there; the time is that of its recompiles."""
    lines = [
        {"state": "compile", "place": "train.py:20", "seconds": 100.0},
        {"state": "compile", "place": "train.py:5", "seconds": 12.0},
    ]
    users = function(
        recompiles={"shape": 2}, phases={"lower": {"seconds": 30.0, "count": 3}}
    )
    all_ = findings(
        [recompile("x: f32[1] → f32[2]", place="train.py:20")],
        functions={**users, "jax._src.dispatch.add": operation(120, 10.0)},
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
            "process": SHORT,
            "functions": {f"jax.f{n}": operation(9, 1.0, shape=8) for n in range(9)},
        },
        {"cache": {"obstacles": [{"reason": "no_directory", "message": "not set"}]}},
    ],
)
def test_what_is_below_the_limits_is_not_worth_a_word(parts):
    """A finding that everyone gets is ignored."""
    assert findings(**parts) == []


@pytest.mark.parametrize(
    ("count", "seconds", "is_found"),
    [(600, 90.0, True), (600, 30.0, False), (2, 90.0, False)],
)
def test_profiles_of_every_request(count, seconds, is_found):
    """One long profile is meant. What makes them is no other work in Python."""
    line = {"place": "python.py:7", "count": count, "seconds": seconds}
    seen = found({"python": 0.28}, transfers={"profiles": [line]})

    topics = [(of.topic, of.where, of.seconds) for of in seen]
    expected = [("profiles", "python.py:7", 90.0)]
    assert (topics == expected) is is_found
    assert {topic for topic, *_ in topics} == {"profiles" if is_found else "host"}


def test_arrays_that_lose_values_with_32_bits():
    """Where and how many, without a value; a few that do not survive are no fault."""
    times = {"place": "a.py:4", "dtype": "float64", "spacing": 128.0}
    names = {"function": "train.step", "dtype": "int64"}

    def found(share: float) -> list[tuple[str, str]]:
        losses = [{**times, "share": share}, {**names, "share": share}]
        return [
            (of.where, of.verdict) for of in findings(transfers={"narrowed": losses})
        ]

    assert found(0.1) == []
    (times_lost, times_said), (ids_lost, ids_said) = found(0.86)
    assert (times_lost, ids_lost) == ("a.py:4", "")
    assert times_said == (
        "An array of float64 becomes float32 at a.py:4: 86% of the neighbouring "
        "values that differ are equal then; numbers of float32 are 128 apart there."
    )
    assert ids_said == (
        "An argument of train.step of int64 becomes int32: 86% of the values do not "
        "fit."
    )


def test_a_type_that_jax_narrows_is_judged_by_what_is_lost():
    """A program that asks for float32 means it; one that asks for float64 does not."""
    warned = {"kind": "dtype_unavailable", "where": "a.py:4", "text": "no float64"}
    lost = {"place": "a.py:4", "dtype": "float64", "share": 0.9, "asked": True}

    def topics(**parts: Any) -> list[str]:
        transfers = {"narrowed": parts.get("narrowed", [])}
        found = findings(transfers=transfers, warnings=parts.get("warnings", []))
        return [of.topic for of in found]

    assert topics(narrowed=[lost]) == []
    assert topics(narrowed=[lost], warnings=[warned]) == ["narrowed"]
    few = {**lost, "share": 0.1}
    assert topics(narrowed=[few], warnings=[warned]) == ["warning_dtype_unavailable"]
