"""An out-of-memory report in words."""

from typing import Any

import pytest

from jaxmon.agent.oom.text import advice, render, requested_bytes
from jaxmon.facts.events import EventFact, FailedAllocation, LiveArrays, OomReport
from jaxmon.facts.functions import Program
from jaxmon.facts.memory import Allocations, Arrays, Device, HostMemory, Line


GIB = 1 << 30

FAILURE = FailedAllocation(
    function="train.step",
    type="JaxRuntimeError",
    stage="dispatch",
    where="train.py:7",
    message="RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB",
    text="RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB",
)
REPORT = OomReport(
    time="2026-11-20T19:41:36Z",
    program="train.py",
    pid=42,
    versions={"jax": "0.10.2"},
    failure=FAILURE,
    failures_without_report=3,
    devices=(Device("0", "NVIDIA H100", in_use=79 * GIB, limit=80 * GIB),),
    host=HostMemory(resident=GIB, available=8 * GIB, cgroup=None),
    live_arrays=LiveArrays(
        arrays=12,
        added_up=10,
        bytes=70 * GIB,
        by_dtype={"float32": Arrays(10, 70 * GIB)},
    ),
    lines=Allocations(
        time=1.0,
        lines=(
            Line("train.py", 9, "log", bytes=60 * GIB, arrays=9),
            Line("train.py", 5, "main", bytes=10 * GIB, arrays=1),
        ),
    ),
    asked={"train.step": Program(temporary_bytes=2 * GIB, output_bytes=4)},
    programs={
        "train.step": Program(temporary_bytes=2 * GIB, flops=7, accessed_bytes=GIB)
    },
    compiles=(EventFact(time=1.0, function="train.step", message="compiled\nmore"),),
    leaks=(
        EventFact(message="live bytes on device 0 grew steadily for 600 s:\n  a line"),
    ),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory allocating 400 bytes.", 400),
        ("Out of memory while trying to allocate 17179869184 bytes.", 1 << 34),
        ("Out of memory while trying to allocate 2.50GiB.", 5 * GIB // 2),
        ("Failed to allocate request for 2.00GiB (2147483648B) on device", 2 * GIB),
        ("Attempting to allocate 4.00G. That was not possible.", 4 * GIB),
        ("Unable to allocate 64.0 MiB for an array with shape (16777216,)", 1 << 26),
        ("std::bad_alloc", None),
        ("allocating ... bytes", None),
        ("", None),
    ],
)
def test_what_was_asked_for_is_read_from_the_message(text, expected):
    """Platforms write it as bytes or in binary units."""
    assert requested_bytes(text) == expected


def advised(**changes: Any) -> str:
    return "\n".join(advice(REPORT.replace(**changes)))


def failure(text: str, **changes: Any) -> FailedAllocation:
    return FAILURE.replace(text=text, **changes)


def device(**sizes: int | None) -> tuple[Device, ...]:
    return (Device("0").replace(**sizes),)


def test_a_device_that_was_full_is_named() -> None:
    """Then something holds memory, and the line that does comes next."""
    found = advice(REPORT)

    assert found[0].startswith("device 0 was 99% full when the allocation failed")
    assert found[1].startswith("train.py:9 (log) holds 60 GiB, 86% of the memory")
    assert found[2].startswith("A leak was suspected earlier: live bytes on device 0")
    assert "\n" not in found[2]
    assert "The program of train.step needs 2 GiB of temporary memory" in found[3]


def test_a_request_that_can_never_fit_is_told_from_one_that_does_not_now() -> None:
    """Larger than the device, fragmented, or full: three different things to do."""
    huge = advised(
        failure=failure("allocating 100G"),
        devices=device(limit=80 * GIB, in_use=0),
    )
    fragmented = advised(devices=device(limit=80 * GIB, in_use=40 * GIB))

    assert "larger than device 0 (80 GiB): freeing memory cannot help" in huge
    assert "had 40 GiB free, more than the 2 GiB requested" in fragmented
    assert "full when the allocation" not in huge + fragmented


@pytest.mark.parametrize(
    ("block", "pool", "room"),
    [
        (GIB, 80 * GIB, "but at most 1 GiB contiguous: its memory is fragmented."),
        # It may still take as much from the device as a piece of its own.
        (GIB, 79 * GIB, "but at most 1 GiB contiguous"),
        (GIB, 70 * GIB, "so its memory is fragmented, or a different device failed."),
        (0, 80 * GIB, "so its memory is fragmented, or a different device failed."),
        (
            3 * GIB,
            80 * GIB,
            "so its memory is fragmented, or a different device failed.",
        ),
    ],
)
def test_fragmentation_is_told_for_sure_where_the_allocator_tells(block, pool, room):
    """A block that is large enough, or none at all, proves nothing."""
    told = advised(
        devices=device(
            limit=80 * GIB,
            in_use=40 * GIB,
            largest_free_block=block,
            pool=pool,
        )
    )

    assert f"had 40 GiB free, more than the 2 GiB requested, {room}" in told


def test_offloaded_arrays_are_told_beside_those_of_the_device() -> None:
    """They take nothing of the memory that ran out."""
    arrays = REPORT.live_arrays.replace(offloaded_bytes=5 * GIB)

    assert "10 of 12 arrays, 70 GiB\n" in render(REPORT)
    assert "70 GiB; 5 GiB more in host memory\n" in render(
        REPORT.replace(live_arrays=arrays)
    )


def test_what_ran_out_where_is_advised_about() -> None:
    """A host or container, a device with figures, constants, outputs to be donated."""
    for devices in ((), device(), device(limit=0)):
        assert "device 0" not in advised(devices=devices, leaks=())
    short = HostMemory(cgroup=99, cgroup_limit=100, virtual=1)
    assert "Host memory is low: 99 B of 100 B" in advised(host=short)
    assert "Host memory is low" not in advised(host=HostMemory())
    built = failure("std::bad_alloc", stage="compile")
    assert "while the program was being compiled" in advised(failure=built)
    assert "being compiled" not in advised()
    asked = {"f": Program(temporary_bytes=1, output_bytes=GIB)}
    assert "The program of f produces 1 GiB of outputs" in advised(asked=asked)


def test_the_text_tells_it_all_in_narrow_lines() -> None:
    """A person reads it in a terminal, from top to bottom."""
    text = render(REPORT.replace(advice=advice(REPORT)))
    lines = text.splitlines()

    assert lines[0] == "train.step ran out of memory"
    for part in (
        "  time      2026-11-20T19:41:36Z",
        "  process   train.py, pid 42",
        "  at        train.py:7",
        "  before    3 earlier failures without a report",
        "0 NVIDIA H100: in use 79 GiB, limit 80 GiB",
        "resident 1 GiB, available 8 GiB",
        "10 of 12 arrays, 70 GiB",
        "      70 GiB        10 float32",
        "      60 GiB         9 train.py:9 (log)",
        "train.step: temporary 2 GiB",
        "Last compiles\n  train.step compiled",
    ):
        assert part in text, part
    assert "accessed" not in text
    assert "Last recompiles" not in text
    assert "Unavailable" not in text
    assert "Full message" not in text
    assert max(map(len, lines)) <= 100


def test_a_long_message_stands_at_the_end() -> None:
    """The runtime's table of buffers is worth keeping, but not first."""
    text = render(REPORT.replace(failure=failure("reason\n" + "buffer\n" * 100)))

    assert text.endswith("  buffer\n" * 10)
    assert "\nFull message\n  reason\n" in text


def test_a_report_without_anything_is_still_a_report() -> None:
    """Every part may be missing, or say why it is."""
    missing = OomReport()
    for name in REPORT.fields[7:-1]:
        missing = missing.without(name, "MemoryError: ")

    assert "ran out of memory" in render(OomReport())
    assert "ran out of memory" in render(missing)
    assert "\nUnavailable\n  devices: MemoryError: \n" in render(missing)
    assert len(advice(missing)) == 1
