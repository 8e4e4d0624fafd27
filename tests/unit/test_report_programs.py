"""Findings on what programs contain in vain."""

import pytest

from tests.helpers.findings import GIB, compiled, findings, found, function


CAPTURED = {
    "where": "a.py:9",
    "callers": ["a.py:30"],
    "largest": "float32[40000,512]",
    "bytes": 200e6,
    "arrays": 2,
    "programs": 3,
}


@pytest.mark.parametrize(
    ("changes", "folded", "observed", "is_found"),
    [
        ({}, None, 50.0, True),
        ({"bytes": 1e6}, None, 50.0, False),
        ({"programs": 1}, None, 50.0, False),
        ({}, None, 90.0, False),
        ({}, {"where": "a.py:9", "steps": 10_000_000, "programs": 3}, 50.0, False),
    ],
)
def test_arrays_that_are_constants_of_programs(changes, folded, observed, is_found):
    """If copying them takes long; what XLA computes of them is another finding."""
    program = {"captured": {**CAPTURED, **changes}}
    process = {"observed_seconds": observed, "now": 1000.0}
    functions = compiled(3, 12.0, program={**program, "folded": folded})
    found = findings(functions=functions, process=process)

    got = [of for of in found if of.topic == "captured"]
    assert [(of.where, of.seconds) for of in got] == [("a.py:9", 6.0)] * is_found
    if got:
        assert got[0].verdict == (
            "Compiling train.step took 12.0 s, about 6.0 s of it because 191 MiB of "
            "arrays that the function takes from around it are constants of its "
            "program, float32[40000,512] above all, first used at a.py:9: each compile "
            "copies and searches them."
        )
        assert got[0].evidence == ("called from a.py:30",)


@pytest.mark.parametrize(
    ("read", "programs", "recompiles", "is_found"),
    [
        (40, 1, {}, True),
        (39, 1, {}, False),
        (40, 21, {}, False),
        (40, 1, {"shape": 20}, False),
    ],
)
def test_functions_that_are_one_program(read, programs, recompiles, is_found):
    """If all were read; not if they differ, or are compiled again."""
    given = compiled(40, 12.0, program={"read": read, "programs": programs})
    for of in given.values():
        of["recompiles"] = recompiles
    process = {"observed_seconds": 50.0, "now": 1000.0}
    found = findings(functions=given, process=process)
    got = [of for of in found if of.topic == "alike"]

    assert [of.seconds for of in got] == [pytest.approx(11.7)] * is_found
    if got:
        assert got[0].verdict == (
            "Compiling train.step took 12.0 s: 40 functions of that name were compiled "
            "one by one. Large constants aside, they have 1 program in all."
        )


@pytest.mark.parametrize(
    ("branches", "ratio", "number", "is_found"),
    [(2, 0.9, "both", True), (3, 0.9, "all 3", True), (2, 0.4, "both", False)],
)
def test_branches_that_are_all_computed(branches, ratio, number, is_found):
    """If they may be much of the time: how much is not known, so that it is a hint."""
    choice = {"where": "a.py:7", "branches": branches, "batch": 128, "ratio": ratio}
    found = findings(
        functions=function(
            program={"selected": choice},
            samples={"execution_mean": 0.02, "samples": 9},
        ),
    )

    got = [of for of in found if of.topic == "selected"]
    assert [(of.where, of.seconds) for of in got] == [("a.py:7", 0.0)] * is_found
    if got:
        assert got[0].verdict == (
            f"Under jax.vmap, train.step computes {number} branches of a.py:7 for each "
            "of 128 elements, and selects between the results: 90 % of its operations "
            "are in branches other than the cheapest, up to about 2 min 42 s of "
            "3 min on the device."
        )


@pytest.mark.parametrize(
    ("program", "changes", "is_found"),
    [
        ({}, {}, True),
        ({"duplicated": False}, {}, False),
        # An update of parameters in data parallelism, say.
        ({"model_flops": 0.0}, {}, False),
        ({"model_flops": None}, {}, False),
        ({"devices": None}, {}, False),
        ({}, {"samples": {"execution_mean": 0.01, "samples": 9}}, False),
        ({}, {"calls": 1}, False),
    ],
)
def test_what_all_devices_compute_alike(program, changes, is_found):
    """If dividing it may win much of the time."""
    given = {
        "program": {"duplicated": True, "devices": 4, "model_flops": 1e9, **program},
        "samples": {"execution_mean": 0.02, "samples": 9},
        **changes,
    }
    got = [
        of for of in findings(functions=function(**given)) if of.topic == "duplicated"
    ]
    verdict = (
        "Each of 4 devices computes all of train.step: its arguments and results are "
        "whole on each, and none gets anything from another. That is about 3 min, 30 % "
        "of 10 min; divided, up to about 2 min 15 s less."
    )
    assert [of.verdict for of in got] == [verdict] * is_found


UNMEASURED = {
    "program": {"duplicated": True, "devices": 4, "model_flops": 1e9},
    "samples": {"samples": 9},
}


def test_what_all_devices_compute_alike_if_its_time_is_unknown():
    """Less of it wins back no more than calls and waits took; and of which, if two."""
    alone = function(**UNMEASURED, calls=300)
    (of,) = [of for of in found({"fetch": 0.9}, functions=alone) if "4 dev" in of[2]]
    two = alone | {"train.other": {"calls": 2}}

    assert of.verdict.endswith(
        " Calls, and waits for results, took 9 min, 90 % of 10 min; divided, up to "
        "that much less."
    )
    topics = {of.topic for of in found({"fetch": 0.9}, functions=two)}
    assert "duplicated" not in topics
    assert "unmeasured" in topics


@pytest.mark.parametrize("calls", [1, 2])
def test_updates_of_zero(calls):
    """From the second call on: a program that is only compiled is none."""
    content = {"outputs": ["params['w']", "params['b']"], "where": "a.py:7"}
    found = findings(functions=function(program={"zeroed": content}, calls=calls))

    got = [of.verdict for of in found if of.topic == "zeroed"]
    verdict = (
        "train.step multiplies by 0 at a.py:7 what it adds to params['w'], "
        "params['b']: they stay as they are, or become NaN."
    )
    assert got == [verdict] * (calls - 1)


def test_copies_that_drift_apart():
    """Once, though samples show that copies differ, too."""
    content = {"outputs": ["[0]['w']"], "arguments": ["x", "y"], "axis": "data"}
    differing = [{"name": "[0]['w']", "state": "differs", "samples": 9}]
    given = {"numerics": {"outputs": differing}, "calls": 9}
    program = {"unreduced": content | {"devices": 2, "where": "a.py:7"}}

    (of,) = findings(functions=function(program=program, **given))
    verdict = (
        "train.step returns copies that differ between 2 devices: [0]['w'] are "
        "computed from x, y, of which each device has its part along 'data', and "
        "nothing combines them, though out_specs without that axis says that they are "
        "equal. One device's are read."
    )
    assert (of.topic, of.verdict, of.where) == ("unreduced", verdict, "a.py:7")
    (of,) = findings(functions=function(**given))
    assert of.topic == "copies_differ"


STATE = {
    "cause": "state",
    "arrays": ["mu['w']", "mu['v']", "nu['w']", "nu['v']"],
    "bytes": 10.0 * GIB,
    "parts": 8,
    "like": "p['w']",
}
UNEVEN = {
    "cause": "uneven",
    "arrays": ["float32[50257,96]"],
    "bytes": 9.0 * GIB,
    "parts": 4,
    "where": "a.py:32",
}


@pytest.mark.parametrize(
    ("content", "device", "is_found"),
    [
        (STATE, {"limit": 80 * GIB}, True),
        (UNEVEN, {"limit": 80 * GIB}, True),
        (STATE, {"limit": 120 * GIB}, False),
        (STATE, {}, True),
    ],
)
def test_arrays_that_each_device_holds_whole(content, device, is_found):
    """If that is much of its memory, or of the arguments if its size is not known."""
    found = findings(
        functions=function(program={"whole": content, "argument_bytes": 50.0 * GIB}),
        memory={"devices": [{"device": 0, **device}]},
    )

    got = [of for of in found if of.topic == "whole"]
    assert len(got) == is_found
    verdicts = {
        "state": (
            "Each device holds mu['w'], mu['v'], nu['w'] and 1 other of train.step "
            "whole, although p['w'] is divided into 8 parts, and combined with them "
            "element by element: 10 GiB more than its part."
        ),
        "uneven": (
            "Each device holds float32[50257,96] of train.step whole, although the "
            "constraint at a.py:32 asks for 4 parts, which cannot be equal, and has no "
            "effect on a result: 9 GiB more than its part."
        ),
    }
    assert [of.verdict for of in got] == [verdicts[content["cause"]]] * is_found


def test_one_constraint_is_one_finding():
    """Of several functions with its results, that with most is named."""
    functions = {
        name: {"program": {"whole": {**UNEVEN, "bytes": size * GIB}}}
        for name, size in (("init", 9.0), ("step", 11.0))
    }
    found = [of for of in findings(functions=functions) if of.topic == "whole"]

    assert [of.subject for of in found] == ["step"]


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("lookup", "looks up rows by a product of one-hot vectors, f[9]"),
        ("sort", "sorts 9,000 elements, and uses 32 of them"),
        ("product", "multiplies all pairs, f[9], and sums these products"),
    ],
)
@pytest.mark.parametrize(("ratio", "is_found"), [(0.9, True), (0.4, False)])
def test_operations_with_a_cheaper_form(kind, verdict, ratio, is_found):
    """If they may be much of the time."""
    given = {"kind": kind, "array": "f[9]", "size": 9000, "used": 32, "where": "a.py:7"}
    samples = {"execution_mean": 0.02, "samples": 9}
    program = {"inefficient": {**given, "ratio": ratio}}
    found = findings(functions=function(program=program, samples=samples))

    got = [of for of in found if of.topic == "inefficient"]
    assert [(of.where, of.seconds) for of in got] == [("a.py:7", 0.0)] * is_found
    if got:
        assert got[0].verdict == (
            f"train.step {verdict}, at a.py:7: 90 % of its operations, up to about "
            "2 min 42 s of 3 min on the device."
        )


def test_what_each_call_computes_again_is_found():
    """With the arguments from which it follows; if no call was timed, by the waits."""
    names = {"arguments": ["a", "b"], "samples": 5, "calls": 90, "where": "a.py:7"}
    given = {"kind": "work", "operation": "lu", "ratio": 0.8, **names}
    waits = {"device": {"seconds": 200.0, "error_seconds": 0.0}}
    since = {"seconds": 600.0, "looks": 900, "states": waits}
    program = {"flops": 1e9}

    def found(time, **other):
        functions = function(numerics={"repeated": given}, samples={}, **other)
        got = findings(functions=functions, time=time)
        return [of.verdict for of in got if of.topic == "recomputed"]

    again = (
        "train.step computes lu at a.py:7 again, from the same a, b in 90 calls, as "
    )
    (only,) = found({"since_start": since}, program=program)
    assert f"Each call of {again}" in only
    assert only.endswith(
        "up to about 2 min 40 s of 3 min 20 s of calls and waits for results."
    )
    assert found({}, program=program) == []


def test_no_part_is_larger_than_the_time():
    """Samples of a busy machine may say that calls took longer than the program ran."""
    given = {"kind": "sort", "ratio": 0.5, "where": "a.py:7"}
    samples = {"execution_mean": 1.0, "samples": 9}
    (only,) = [
        of
        for of in findings(
            process={"observed_seconds": 60.0, "now": 1000.0},
            functions=function(program={"inefficient": given}, samples=samples),
        )
        if of.topic == "inefficient"
    ]
    assert only.verdict.endswith("up to about 30.0 s of 1 min on the device.")
