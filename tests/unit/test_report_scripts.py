"""Findings on scripts: loops in jitted functions, first calls, pools of processes."""

from typing import Any

import pytest

from jaxmon.facts.process import read
from jaxmon.screens import text
from tests.helpers.findings import NO_MORE, computing, findings, found, function, ledger


STEP, LINE = "train.step", "train.py:12"


def tracing(loop: str, seconds: float = 60.0, **now: Any) -> dict[str, Any]:
    """Return the ledger of a program that traces its function for the first time."""
    time = ledger({"compile": 0.99})
    whole = time["since_start"]
    whole.update(seconds=seconds, looks=200)
    whole["states"] = {"compile": {"seconds": seconds, "error_seconds": 1.0}}
    traced = {"state": "compile", "function": STEP, "place": "model.py:8"}
    whole["places"] = [{**traced, "caller": loop, "seconds": seconds}]
    going_on = {"state": "compile", "place": "model.py:8", "function": STEP}
    return {**time, "now": {**going_on, "seconds": seconds, **now}}


def first_compile(time: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return the facts of a program whose only function is being compiled."""
    first = {STEP: {"calls": 1, "misses": 1, **parts}}
    return {
        "process": {"observed_seconds": 62.0, "now": 1000.0},
        "functions": first,
        "transfers": {},
        "time": time,
    }


def test_a_function_that_is_traced_is_no_operation_outside_of_jit():
    """JAX reports what a trace took at its end; until then, looks say it."""
    (loop, compiling) = findings(**first_compile(tracing(LINE)))

    assert (loop.topic, loop.subject, loop.where) == ("unrolled", STEP, LINE)
    assert loop.verdict == (
        f"Compiling {STEP} has taken 1 min so far: for 1 min of it, JAX traced the "
        f"Python loop around {LINE}, pass by pass."
    )
    assert loop.seconds == 0.0
    assert compiling.topic == "compiling"
    assert compiling.evidence == (f"{STEP}: 1 min, and not done yet",)
    # Tracing that belongs to no call is one of operations.
    time = tracing("", function="")
    time["since_start"]["places"][0]["function"] = ""
    assert [of.topic for of in findings(**first_compile(time))] == ["eager"]


def test_a_trace_without_a_loop_of_python_is_only_a_compile():
    """So is one of which loops are a small part, or that takes a moment."""
    assert [of.topic for of in findings(**first_compile(tracing("")))] == ["compiling"]
    time = tracing("")
    (place,) = time["since_start"]["places"]
    time["since_start"]["places"].append({**place, "caller": LINE, "seconds": 20.0})
    topics = [of.topic for of in findings(**first_compile(time))]
    assert topics == ["compiling"]
    # While XLA compiles, the line is that of the call.
    time["now"]["place"] = "train.py:30"
    place["place"] = "train.py:30"
    by_xla = {"count": 1, "oldest_seconds": 40.0, "function": STEP}
    loop = findings(**first_compile(time), compiling=by_xla)[0]
    assert loop.verdict == (
        f"Compiling {STEP} has taken 1 min 20 s so far: JAX traced the Python loop "
        f"around {LINE}, pass by pass; XLA has had the program for 40.0 s."
    )
    short = findings(**first_compile(tracing(LINE, 4.0)))
    assert "unrolled" not in [of.topic for of in short]


def test_what_is_compiled_for_the_first_time_is_in_the_head():
    """With its name: the call lasts, so that no calls are missed."""
    facts = {**first_compile(tracing(LINE)), "compiling": {"count": 1}}
    time = {**facts["time"], "rates": {STEP: 0.02}, "call_age": 61.0}
    lines = text.explanation(read({**facts, "time": time}), [], worker="0")

    assert f"Compiling {STEP}." in "\n".join(lines)
    assert "no call" not in "\n".join(lines)


LOOPS = {"flops": {"open_loop": "ode.py:18"}, "calls": 1, "hits": 0}


@pytest.mark.parametrize(
    ("parts", "now"),
    [
        ({"flops": {}}, {}),
        ({"calls": 3}, {}),
        ({}, {"seconds": 10.0}),
        ({}, {"state": "python"}),
        ({}, {"called": ["train.step", "train.other"]}),
    ],
)
def test_a_first_call_that_loops_and_lasts_may_not_end(parts, now):
    """It is said with caution, since a long call may be right; of others, it is not."""
    lasts = {"state": "device", "place": "ode.py:21", "seconds": 70.0, "called": [STEP]}

    def topics(parts: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
        time = ledger({"device": 0.99}, **{**lasts, **now})
        functions = function(**{**computing(0.0)[STEP], **LOOPS, **parts})
        seen = findings(time=time, **{**NO_MORE, "functions": functions})
        return {of.topic: of.verdict for of in seen}

    assert topics({}, {})["first_call"] == (
        f"The first call of {STEP} has been running for 1 min 10 s at ode.py:21. It "
        "loops until a condition is met, at ode.py:18: if that is never met, it does "
        "not end."
    )
    assert "first_call" not in topics(parts, now)


@pytest.mark.parametrize(
    ("count", "took", "calls", "found"),
    [(1, 0.1, 2, True), (1, 9.0, 2, False), (1, 0.1, 3, False), (0, 0.0, 2, False)],
)
def test_a_call_may_not_end_though_one_before_did(count, took, calls, found):
    """If that was read there at once; of calls dispatched ahead, all are waited for."""
    lasts = {"state": "fetch", "place": "ode.py:21", "seconds": 50.0, "called": [STEP]}
    loops = {**LOOPS, "calls": calls, "program": {"devices": 2}}
    functions = function(**{**computing(0.0)[STEP], **loops})
    read = {"file": "ode.py", "line": 21, "count": count, "seconds": took}
    facts = {"functions": functions, "transfers": {"lines": [read]}}
    seen = findings(time=ledger({"fetch": 0.99}, **lasts), **{**NO_MORE, **facts})
    lasting = [of for of in seen if of.topic == "first_call"]

    assert bool(lasting) is found
    for of in lasting:
        assert of.verdict.startswith(f"Call 2 of {STEP} has been running for 50.0 s")
        assert "jax.lax.pmax" in of.action


@pytest.mark.parametrize(
    ("more", "topic"),
    [
        ({}, "idle"),
        ({"call_age": 595.0}, "idle"),
        ({"call_age": 20.0}, "data_wait"),
        ({"now": {"asleep": 2}}, "data_wait"),
        ({"eager": 0.2}, "data_wait"),
        ({"divided": False}, "data_wait"),
    ],
)
def test_a_parent_of_workers_waits_for_no_data(more, topic):
    """What they compute is the work, if it has computed nothing since it waits."""
    states = {"data_wait": 0.9, **({"eager": more["eager"]} if "eager" in more else {})}
    time = {**ledger(states), **more}
    time["since_start"]["places"][0]["divided"] = more.get("divided", True)
    seen = findings(time=time, **NO_MORE)

    assert topic in [of.topic for of in seen]
    assert {"idle", "data_wait"} & {of.topic for of in seen} == {topic}


def test_a_line_that_calls_a_function_cannot_leave_the_loop():
    """What a call takes in Python is less in one that does several steps."""
    (host,) = [of for of in found({"python": 0.3}) if of.topic == "host"]
    assert host.action.startswith("Do this work less often, out of the loop")
    time = ledger({"python": 0.3, "device": 0.3})
    for place in time["since_start"]["places"]:
        place["place"] = LINE
    time["since_start"]["places"][1]["function"] = STEP
    (host,) = [of for of in findings(time=time, **NO_MORE) if of.topic == "host"]
    assert host.where == LINE
    assert host.action.startswith(f"This line calls {STEP}. If it does little else")


def test_a_host_that_is_its_own_device_computes_while_a_read_takes_long():
    """Samples under-estimate that; a read of what is done takes microseconds."""
    cpu = {"devices": [{"device": 0, "kind": "cpu"}]}

    def topics(count: int, memory: dict[str, Any]) -> list[str]:
        line = {"direction": "device_to_host", "count": count, "file": "a", "line": 1}
        parts = {"memory": memory, "transfers": {"lines": [line]}}
        states = {"fetch": 0.9, "device": 0.01}
        return [of.topic for of in found(states, **{**HALF, **parts})]

    assert "fetch" not in topics(4_000, cpu)
    assert "fetch" in topics(4_000_000, cpu)
    assert "fetch" in topics(4_000, {"devices": [{"device": 0, "kind": "H200"}]})


HALF = {"functions": computing(60.0)}


def test_a_line_that_copies_in_a_loop_is_judged_once():
    """By what its copies took, unless other lines copy as well."""
    line = {"direction": "host_to_device", "file": "transfer.py", "line": 7}
    loop = {"lines": [{**line, "count": 14_000, "bytes": 9e4, "seconds": 80.0}]}
    time = ledger({"transfer": 0.3, "device": 0.5})

    def topics() -> set[str]:
        return {
            of.topic for of in findings(time=time, **{**NO_MORE, "transfers": loop})
        }

    assert topics() == {"transfer", "device"}
    (copies, *_) = time["since_start"]["places"]
    # It waited for a processor, or in a thread beside what takes the time.
    copies["state"] = "fetch"
    assert "transfer" not in topics()
    copies["state"] = "transfer"
    other = {"state": "transfer", "place": "other.py:7", "seconds": 70.0}
    time["since_start"]["places"].append(other)
    assert topics() == {"transfer", "copies", "device"}
    other["seconds"], copies["caller"] = 9.0, "train.py:3"
    time["since_start"]["states"]["transfer"]["seconds"] = 120.0
    assert topics() == {"transfer", "device"}


@pytest.mark.parametrize(("size", "is_found"), [(4, False), (4_000, True)])
def test_a_number_is_copied_in_no_time(size, is_found):
    """In a short run, threads that wait for a processor seem to copy for long."""
    line = {"direction": "host_to_device", "file": "a.py", "line": 7, "seconds": 1.2}
    copies = {"lines": [{**line, "count": 400, "bytes": 400.0 * size}]}
    process = {"observed_seconds": 4.0, "now": 1000.0}
    found = findings(process=process, transfers=copies, functions={})

    assert [of.where for of in found if of.topic == "transfer"] == ["a.py:7"] * is_found


@pytest.mark.parametrize(("last", "goes_back"), [(1, False), (400, True)])
def test_there_is_no_checkpoint_from_before_the_first_call(last, goes_back):
    """What was finite only in the first call has no state worth going back to."""
    output = {"name": "loss", "state": "nonfinite", "finite_call": last}
    lost = {"outputs": [{**output, "call": last + 1, "samples": 3, "time": 990.0}]}
    (nan,) = [
        of
        for of in findings(functions=function(numerics=lost))
        if of.topic == "nonfinite"
    ]
    assert nan.action.startswith("Go back to a checkpoint") is goes_back
    assert "jax.debug_nans" in nan.action
