"""Advice on recompiles, in exact words."""

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
from tests.helpers.findings import findings, function, operation, recompile


STORM = int(Limits().recompile_storm)


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


def test_a_function_of_a_library_is_named_with_the_line_that_calls_it():
    """That is what its user can change; a function of the program is known by name."""
    events = [recompile("argument x", place="train.py:20")]
    for package, called in (("flax", ", called at train.py:20,"), ("", "")):
        parts = function(recompiles={"shape": 37}, package=package)
        one, *_ = findings(events, functions=parts)
        assert one.verdict.startswith(f"train.step{called} was recompiled 37 times")
        assert one.where == "train.py:20"


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


@pytest.mark.parametrize(
    ("size", "latest", "count", "calls", "found"),
    [
        (16, 20.0, STORM, 50, 0),
        (16, 31.0, STORM, 50, 1),  # still coming
        (16, 31.0, STORM, 51, 0),  # each is used ten times
        (16, 20.0, 20, 900, 1),  # as many as the alert counts
        (15, 20.0, STORM, 60, 1),  # no bucket
    ],
)
def test_buckets_are_no_storm(size, latest, count, calls, found):
    """A service compiles for each of its sizes, and uses it again and again."""
    change = f"x: f32[{size}] → f32[64]"
    events = [{**recompile(change, seconds=0.2, calls=1), "time": latest}] * count
    parts = {
        "process": {"observed_seconds": 60.0, "now": 60.0},
        "functions": function(calls=calls, recompiles={"shape": count}),
        "requests": {"predict": {}},
    }
    storms = [f for f in findings(events, **parts) if f.topic == "recompile"]
    assert len(storms) == found
    # One that fits none is an accident.
    odd = {**recompile("x: f32[64] → f32[65]", seconds=0.2, calls=9), "time": latest}
    storms = [
        f for f in findings([*events[1:], odd], **parts) if f.topic == "recompile"
    ]
    assert len(storms) == found


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
        (3, "weak_type", 4.5, 14.0, True),
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

    # On a busy machine, one takes long by chance; a few do not.
    busy = findings(
        events, functions=functions, process=process, usual={"waiting": 0.9}
    )
    several = is_found and count > 2 and cause != "shape"
    assert several <= any(of.topic == "recompile" for of in busy)
    assert any(of.topic == "recompile" for of in busy) <= is_found
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
    ("text", "seconds", "is_found"),
    [
        ("f32[64] → f32[37]", 2.0, True),
        ("f32[8,100] → f32[8,128]", 2.0, True),
        ("f32[64] → f32[37]", 0.7, False),
        # Buckets, and what may be one.
        ("f32[64] → f32[96]", 2.0, False),
        ("f32[64] → f32[1]", 2.0, False),
        ("f32[3] → f32[6]", 2.0, False),
        ("f32[64] → f32[64,3]", 2.0, False),
    ],
)
def test_one_recompile_for_an_odd_size_is_judged_by_what_it_took(
    text, seconds, is_found
):
    """A size that has little in common with the one before it is no bucket."""
    functions = function(calls=900, recompiles={"shape": 1})
    event = recompile(f"argument x: {text}", seconds=seconds, place="train.py:80")
    process = {"observed_seconds": 8.0, "now": 1000.0}
    serving: dict[str, Any] = {"/score": {"finished": []}}

    found = findings([event], functions=functions, process=process)
    assert [of.topic for of in found if of.where] == ["recompile"] * is_found
    told = findings([event], functions=functions, process=process, requests=serving)
    assert [of for of in told if of.topic == "recompile"] == []


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
        "jax._src.random.normal": operation(120, 6.0, evicted=100),
    }
    event = recompile("jax.clear_caches() evicted it", cause="evicted", place="a.py:9")
    (found,) = findings([event] * 5, functions=functions)

    assert (found.topic, found.where, found.seconds) == ("evicted", "a.py:9", 15.0)
    assert found.evidence == (
        "a.py:9: jax.clear_caches() evicted it",
        "train.step: 10.0 s",
        "jax._src.random.normal: 5.0 s",
    )


def warmed(
    *lines: str, before: int = 2, calls: int = 900, **more: Any
) -> list[Finding]:
    """
    Return the findings on a function that was recompiled for calls of *lines*, the
    first of which that warms up no others followed *before* calls.
    """
    events = [
        recompile("x: f32[1] → f32[2]", place=line, seconds=4.0, calls=before + number)
        for number, line in enumerate(lines)
    ]
    recompiles = {"cause": "shape", **more}["cause"]
    for event in events:
        event["details"]["cause"] = recompiles
    figures = function(
        calls=calls,
        compiles={"compiled": 1 + len(lines)},
        recompiles={recompiles: len(lines)},
        phases={"backend_compile": {"seconds": 20.0, "count": 1 + len(lines)}},
    )
    process = {"observed_seconds": 60.0, "now": 1000.0}
    found = findings(events, functions=figures, process=process)
    return [of for of in found if of.topic == "recompile"]


def test_a_warm_up_that_lacks_what_is_called_later_is_named():
    """By both lines, and what the later ones took; it need not be a storm."""
    (found,) = warmed("a.py:1", "a.py:9", "a.py:9")

    assert found.verdict == (
        "train.step was recompiled twice at a.py:9 because an argument's shape "
        "changed, although calls at a.py:1 had compiled other programs of it before. "
        "This took 8.0 s of the 20.0 s that its compiles took."
    )
    assert (found.where, found.seconds) == ("a.py:9", 8.0)
    assert "the calls at a.py:1 are to warm it up" in found.action


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        (["a.py:1", "a.py:1", "a.py:1"], {}),
        (["a.py:1", "a.py:9", "a.py:1"], {}),
        (["a.py:1", "a.py:9"], {"before": 400}),
        (["a.py:1", "a.py:9"], {"calls": 4}),
        (["a.py:1", "a.py:9"], {"cause": "unknown"}),
    ],
)
def test_what_may_be_no_warm_up_is_not_called_one(lines, more):
    """
    It fits; both lines go on; a training before its evaluation; a helper that is called
    once for each of its sizes; a cause that is not known.
    """
    assert not any("warm" in found.action for found in warmed(*lines, **more))
