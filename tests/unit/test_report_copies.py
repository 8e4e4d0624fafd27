"""Reads and copies between host and device, and the compiles of what runs singly."""

from typing import Any

import pytest

from tests.helpers.findings import (
    NO_MORE,
    compiled,
    computing,
    findings,
    found,
    function,
    ledger,
    operation,
)


def test_reads_are_a_fault_if_the_device_is_idle():
    """Most of such a wait is not the device's computing."""
    (only,) = found({"fetch": 0.5}, functions=computing(60.0))

    assert only.topic == "fetch"
    assert only.seconds == pytest.approx(240.0)


def test_rare_reads_let_the_host_work_ahead():
    """One read in a hundred calls hides nothing that could be hidden."""
    line = {"place": "fetch.py:7", "direction": "device_to_host", "seconds": 300.0}
    figures: dict[str, Any] = {"functions": computing(300.0)}
    states = {"fetch": 0.5, "python": 0.3}

    def topics(reads: int) -> set[str]:
        figures["transfers"] = {"lines": [{**line, "count": reads}]}
        return {one.topic for one in found(states, **figures)}

    assert "fetch" in topics(9_000)
    assert "fetch" not in topics(90)


def test_reads_are_a_fault_if_the_host_could_work_ahead():
    """The shorter of host work and device work could be hidden."""
    by_topic = {
        one.topic: one
        for one in found({"fetch": 0.5, "python": 0.3}, functions=computing(300.0))
    }

    assert by_topic["fetch"].seconds == pytest.approx(180.0)
    on_cpu = found(
        {"fetch": 0.5, "python": 0.3},
        functions=computing(300.0),
        memory={"devices": [{"device": 0, "kind": "cpu"}]},
    )
    assert "fetch" not in {one.topic for one in on_cpu}  # they share processors


def test_large_numpy_arguments_are_copied_on_each_call():
    """JAX copies them in C++: the function looks busy, and is not computing."""
    functions = function(
        compiles={"compiled": 1}, recompiles={}, samples={"dispatch_seconds": 0.02}
    )
    (only,) = found(
        {"device": 0.9},
        functions=functions,
        transfers={"arguments": {"train.step": 36_000_000}},
    )

    assert only.topic == "numpy_argument"
    assert only.seconds == pytest.approx(180.0)
    assert [
        one.topic
        for one in found(
            {"device": 0.9},
            functions=functions,
            transfers={"arguments": {"train.step": 70_000}},
        )
    ] == ["unmeasured"]


@pytest.mark.parametrize("same", [0, 36_000_000])
def test_arrays_that_are_copied_behind_a_call(same):
    """Those that are the same each time are, and need not; others may be needed."""
    samples = {"dispatch_seconds": 1e-4, "execution_mean": 0.06}
    functions = function(compiles={"compiled": 1}, recompiles={}, samples=samples)
    transfers = {"arguments": {"train.step": 36_000_000}, "same": {"train.step": same}}
    (only,) = found({"fetch": 0.9}, functions=functions, transfers=transfers)

    assert only.topic == ("numpy_argument" if same else "device")
    if same:
        # They may take far less of that: no more is certain.
        assert only.seconds == 0.0
        assert only.evidence[0] == "9,000 times, at most 9 min in all"


@pytest.mark.parametrize(
    ("execution", "won"), [(0.03, 180.0), (0.05, 150.0), (0.065, 0)]
)
def test_copies_win_no_more_than_the_device_is_idle(execution, won):
    """While it computes all the time, nothing is to be won, and nothing is found."""
    samples = {"dispatch_seconds": 0.02, "execution_mean": execution}
    functions = function(compiles={"compiled": 1}, recompiles={}, samples=samples)
    transfers = {"arguments": {"train.step": 36_000_000}}
    every = found({"device": 0.9}, functions=functions, transfers=transfers)
    copied = [of.seconds for of in every if of.topic == "numpy_argument"]
    assert copied == [pytest.approx(won)] * bool(won)


def test_small_numpy_arguments_do_not_explain_slow_calls():
    """A call that takes far longer than its copies waits for a busy device."""
    functions = function(
        compiles={"compiled": 1}, recompiles={}, samples={"dispatch_seconds": 0.02}
    )
    (only,) = found(
        {"device": 0.9},
        functions=functions,
        transfers={"arguments": {"train.step": 1 << 20}},
    )

    assert only.topic == "unmeasured"


def test_compiles_of_operations_are_told_once():
    """First compiles of functions are told beside them only if they take long, too."""

    def told(seconds: float) -> list[tuple[str, bool]]:
        """Return topics, and whether they list operations."""
        add = {"jax._src.dispatch.add": operation(130, 200.0)}
        all_ = found(
            {"compile": (200 + seconds) / 600},
            functions={**compiled(1, seconds), **add},
        )
        names = [(one.topic, "dispatch.add" in str(one.evidence)) for one in all_]
        return [one for one in names if one[0] in {"operations", "compiling"}]

    assert told(10.0) == [("operations", False)]
    assert told(100.0) == [("operations", False), ("compiling", False)]


def test_what_jax_initialises_recompiles_nothing():
    """Both totals of recompiles are those of the program's functions."""
    phases = {"lower": {"seconds": 100.0, "count": 2}}
    jax = {"jax._src.random.normal": operation(2, 100.0, shape=1)}

    def verdict(**functions: Any) -> str:
        all_ = found({"compile": 200 / 600}, functions=functions)
        return next(one.verdict for one in all_ if one.topic == "compiling")

    # What the table of compiles has, if looks may mean the same.
    measured = verdict(**compiled(2, 199.4))
    assert measured.startswith("Compiling took 3 min 19 s, 33 % of 10 min")
    took = "Compiling took 3 min 20 s, 33 % of 10 min"
    assert verdict(**compiled(2, 100.0)) == f"{took}, all of it first compiles."
    assert verdict(**compiled(2, 100.0), **jax) == f"{took}."
    time = ledger({"compile": 200 / 600})
    both = findings(
        time=time, **{**NO_MORE, "functions": {**compiled(2, 100.0), **jax}}
    )
    (names,) = [of.evidence for of in both if of.topic == "compiling"]
    assert "operations outside of jit, most at compile.py:7: 1 min 40 s" in names
    again = function(compiles={"compiled": 2}, recompiles={"shape": 1}, phases=phases)
    again["train.step"] |= {"calls": 9_000, "hits": 8_998}
    text = verdict(**again, **jax)
    assert text == f"{took}, of which recompiles about 50.0 s."
