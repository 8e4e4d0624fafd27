"""Devices whose memory is in order, however full it looks."""

import pytest

from jaxmon.facts.process import read
from jaxmon.symptoms.findings import NOTHING, find, unjudged, verdict
from tests.helpers.findings import GIB, findings, function
from tests.helpers.findings import HEALTHY as A_PROGRAM


# With preallocation, the pool is all that JAX may use, and the limit.
PREALLOCATED = {"device": 0, "in_use": 40 * GIB, "limit": 60 * GIB, "pool": 60 * GIB}
BLOCKS = {"largest_free_block": 2 * GIB, "largest_allocation": 8 * GIB}
HEALTHY: dict[str, dict[str, float]] = {
    "preallocated": {
        **PREALLOCATED,
        "largest_free_block": 18 * GIB,
        "largest_allocation": 8 * GIB,
    },
    "a pool that may still grow": {**PREALLOCATED, **BLOCKS, "pool": 48 * GIB},
    "little is free, in small blocks": {**PREALLOCATED, **BLOCKS, "in_use": 53 * GIB},
    "only small arrays": {
        **PREALLOCATED,
        "largest_free_block": 2 * GIB,
        "largest_allocation": GIB,
    },
    "blocks unknown, as on TPUs": {"device": 0, "in_use": 4 * GIB, "limit": 16 * GIB},
    "nothing known, as on the CPU": {"device": 0},
    "a batch size that uses the device": {**PREALLOCATED, "in_use": 52 * GIB},
    "no limit": {"device": 0, "in_use": 4 * GIB, **BLOCKS, "pool": 8 * GIB},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_memory_in_order_has_no_finding(name: str) -> None:
    """
    Free memory counts as fragmented only if what was allocated once would not fit
    again; a pool that takes the device's memory is not in use.
    """
    assert findings(None, memory={"devices": [HEALTHY[name]]}) == []


def test_fragmented_memory_is_found() -> None:
    """Much is free, in blocks that are smaller than what the program allocates."""
    (finding,) = findings(None, memory={"devices": [{**PREALLOCATED, **BLOCKS}]})

    assert finding.topic == "fragmentation"


COPIED = {"bytes": GIB, "fraction": 0.9, "arguments": ["cache"], "dropped": 4}


@pytest.mark.parametrize(
    ("copied", "mean", "found"),
    [
        ({**COPIED, "copying": 4, "donated_inside": "train.py:7"}, 0.02, True),
        ({**COPIED, "copying": 4, "kept": 1}, 0.02, False),
        ({**COPIED, "copying": 4, "dropped": 1}, 0.02, False),
        ({**COPIED, "copying": 4}, 0.002, False),
        ({**COPIED, "copying": 1, "others": 9}, 0.02, False),
        ({}, 0.02, False),
    ],
    ids=["found", "kept", "seldom seen", "quick", "seldom copied", "donated"],
)
def test_copies_of_arguments_are_found(copied, mean, found) -> None:
    """If the caller keeps none of them, and the copies take much of the time."""
    parts = function(program={"copied": copied}, samples={"execution_mean": mean})
    got = [f for f in findings(functions=parts) if f.topic == "copied_argument"]

    assert bool(got) is found
    if found:
        (finding,) = got
        assert finding.verdict == (
            "train.step copies 1 GiB of cache in each call, because it is not donated: "
            "about 8.79 TiB in 9,000 calls, in about 2 min 42 s."
        )
        assert finding.evidence[1] == (
            "donation at train.py:7 has no effect: it is inside train.step, which is "
            "jitted itself"
        )
        assert (finding.where, finding.seconds) == ("train.py:7", 162.0)


HOLDER = {
    "name": "cache",
    "kind": "dict",
    "items": 3_000,
    "bytes": GIB,
    "adds": ["a:3"],
}


@pytest.mark.parametrize(
    ("growth", "found"),
    [
        ({"holder": HOLDER, "full_in_seconds": 1e9}, True),
        ({"full_in_seconds": 3600.0, "seconds": 7200.0}, True),
        ({"full_in_seconds": 1e9, "seconds": 7200.0}, False),
        ({"full_in_seconds": 3600.0, "seconds": 60.0}, False),
    ],
    ids=["held", "nearly full", "room for years", "young"],
)
def test_growth_of_the_host_is_found_with_what_holds_it(growth, found) -> None:
    """Or if that is not known, once it has gone on for long and fills the host soon."""
    host = {"growth_bytes": 2 * GIB, "seconds": 60.0, "calls": 2048, **growth}
    got = findings(None, allocations={"host": host})

    assert bool(got) is found
    if "holder" in growth:
        assert got[0].verdict == (
            "The memory of the process on the host grew steadily by 2 GiB in 1 min and "
            "2,048 calls, 1 MiB for each, beside arrays of JAX."
        )
        assert got[0].evidence == (
            "cache (dict, 3,000 items) holds about 1 GiB, and grows at a:3",
        )
        assert got[0].where == "a:3"


def test_what_grows_on_the_host_and_on_devices_is_one_finding() -> None:
    """If one list holds it, with all sums; what holds them may also differ."""
    held = {"holder": HOLDER}
    line = {"place": "a:3", "arrays": 9, "growth_bytes": GIB}
    leak = {"growth_bytes": GIB, "seconds": 60.0, "lines": [line]}
    host = {"growth_bytes": 2 * GIB, "seconds": 300.0, "calls": 900}

    def found(of_leaks, of_host):
        leaks = [{"device": device, **leak, **of_leaks} for device in "01"]
        allocations = {"leaks": leaks, "host": {**host, **of_host}}
        return findings(None, allocations=allocations)

    (only,) = found(held, {**held, "full_in_seconds": 120.0})
    assert (only.topic, only.where) == ("leak", "a:3")
    assert only.verdict == (
        "Memory of device 0 grew steadily by 1 GiB in 1 min, of device 1 by 1 GiB, "
        "of the process on the host by 2 GiB. At that pace the memory of the host is "
        "full in 2 min."
    )
    several = ["leak", "leak", "host_memory_growth"]
    assert [one.topic for one in found({}, held)] == several
    filled = {"full_in_seconds": 120.0, "seconds": 7200.0}
    assert [one.topic for one in found({}, filled)] == several


def test_memory_that_grows_is_said_before_it_is_a_leak() -> None:
    """With its line and pace, of the device where it is most; a finding says more."""

    def said(*growing: dict[str, object], **more: object) -> str:
        parts = {"allocations": {"growing": list(growing), **more}}
        snapshot = read({**A_PROGRAM, **parts}, {"events": []})
        return verdict(find(snapshot), unjudged(snapshot))

    line = {"file": "a", "line": 3, "arrays": 64, "growth_bytes": GIB // 4}
    less = {"device": "0", "growth_bytes": GIB // 8, "seconds": 8.0, "lines": [line]}
    most = {**less, "device": "1", "growth_bytes": GIB // 4}
    assert said(less, most) == (
        "Memory grows: arrays of a:3 by 32 MiB a second, 256 MiB so far. If that goes "
        "on, it counts as a leak."
    )
    assert said({**most, "lines": [{}]}).startswith("Memory grows: arrays by 32 MiB")
    assert said() == NOTHING
    assert said(most, leaks=[{**most, "growth_bytes": GIB, "seconds": 60.0}]) == ""
